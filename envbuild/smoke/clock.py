"""One clock for durations: monotonic where Python has one, else the wall clock (Python 2.7)."""
from __future__ import absolute_import, division, print_function

import time

now = getattr(time, 'perf_counter', time.time)


def utc(seconds=None):
    """A time of the wall clock as ISO 8601 in UTC."""
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() if seconds is None else seconds))
