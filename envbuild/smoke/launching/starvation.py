"""Measures how long silent ranks waited for a processor, so that a busy machine is not taken for a hang.

The kernel counts for each thread how long it was ready to run but had no processor (the second number of /proc/<pid>/schedstat:
https://docs.kernel.org/scheduler/sched-stats.html). On a machine with two cores and 20 other jobs of higher priority, healthy
ranks of TensorFlow made no step for more than 60 s, and an import took more than 300 s.
"""
from __future__ import absolute_import, division, print_function

import io
import os

from . import processes

QUIET_S = 2.0           # after this many silent seconds, the counters are read for the first time
AGAIN_S = 1.0           # after the time limit, the counters are read again after every AGAIN_S seconds
# A silence of more than MOST times the limit is always a hang: ranks that hang in a busy loop wait for a processor, too.
MOST = 5


class Starvation(object):
    """How long processes waited for a processor since the last progress of any rank.

    `pids` is a function that returns the processes of this machine's ranks.
    """

    def __init__(self, pids):
        self._pids, self._last, self._before = pids, None, None
        self._asked, self._waited = 0.0, 0.0

    def explains(self, last, silent, patience):
        """Whether waiting for a processor explains why no rank made progress for more than `patience` seconds.

        `last` is the time of the last progress, `silent` the number of seconds since then. The wait explains the silence if
        `silent` minus the seconds of waiting is at most `patience`. Call this method again and again during the whole silence,
        because it compares the counters with those near the start of the silence.
        """
        if last != self._last:
            self._last, self._before, self._asked, self._waited = last, None, 0.0, 0.0
        if self._before is None and silent > min(QUIET_S, patience / 2.0):
            self._before = waited(self._pids())
        if silent <= patience or self._before is None or silent > MOST * patience:
            return False
        if silent - self._asked >= AGAIN_S:
            self._waited = sum(max(0.0, seconds - self._before.get(thread, 0.0)) for thread, seconds in waited(self._pids()).items())
            self._asked = silent
        return silent - self._waited <= patience


def waited(pids):
    """Return {(process, thread): seconds without a processor} for these processes and those that they started.

    It is empty where the kernel does not count this.
    """
    found = {}
    for pid in set(pids).union(*[processes.started_by(pid) for pid in pids]):
        try:
            threads = os.listdir('/proc/%d/task' % pid)
        except OSError:
            continue                    # the process has ended
        for thread in threads:
            try:
                with io.open('/proc/%d/task/%s/schedstat' % (pid, thread), encoding='ascii') as stream:
                    found[pid, thread] = int(stream.read().split()[1]) / 1e9
            except (IOError, OSError, IndexError, ValueError):
                continue                # the thread has ended, or the kernel does not count
    return found
