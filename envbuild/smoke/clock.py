"""The clock for durations and deadlines. It never jumps, even if the time of day is changed.

All processes of one machine read the same clock, so the times of ranks on one machine can be compared. The clock of another
machine starts from another zero: `launching.wire` measures the difference between the clocks of two machines.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import errno
import io
import os
import select
import time

_MONOTONIC = 1              # CLOCK_MONOTONIC of Linux
UPTIME = '/proc/uptime'     # a library that replaces the clock functions does not change what the kernel writes there
SLEEPS = '/sys/power/suspend_stats/success'     # counts how often the machine was suspended; missing where it cannot be


class _Timespec(ctypes.Structure):
    _fields_ = [('seconds', ctypes.c_long), ('nanoseconds', ctypes.c_long)]


def _by_the_c_library():
    """Return a function that reads the C library's monotonic clock, because Python 2.7 has none."""
    for library in (None, 'librt.so.1'):            # glibc before 2.17 keeps it in librt
        try:
            ask = ctypes.CDLL(library).clock_gettime
        except (AttributeError, OSError):
            continue

        def read(ask=ask):
            time_there = _Timespec()                # a new structure for each call: several threads may call at once
            if ask(_MONOTONIC, ctypes.byref(time_there)) != 0:
                return os.times()[4]
            return time_there.seconds + time_there.nanoseconds * 1e-9

        return read
    return lambda: os.times()[4]                    # also monotonic, but in steps of 10 ms


now = getattr(time, 'monotonic', None) or _by_the_c_library()


class Comparison(object):
    """Compares this process's clock with the time since the machine was started, as the kernel writes it into a file."""

    def __init__(self):
        self._sleeps, self._begin = _number(SLEEPS), _both()

    def drift(self):
        """Return (the seconds by which this clock fell behind the kernel's, the seconds of the kernel in which it did).

        The first number is negative if this clock ran ahead. A busy machine may stop this process while it reads the clocks.
        So its own clock is read before and after the kernel's, and the smallest drift that fits is returned. Returns (0.0, 0.0)
        if the kernel's time cannot be read, or if the machine was suspended meanwhile: the kernel's time counts the seconds of
        sleep, and the monotonic clock does not.
        """
        (before, kernel, after), (before_now, kernel_now, after_now) = self._begin, _both()
        if None in (kernel, kernel_now) or _number(SLEEPS) != self._sleeps:
            return 0.0, 0.0
        seconds = kernel_now - kernel
        least, most = seconds - (after_now - before), seconds - (before_now - after)
        return max(least, 0.0) + min(most, 0.0), seconds


def _both():
    """Read the clock of this process, the kernel's time, and the clock of this process again, in this order."""
    before = now()
    return before, _number(UPTIME), now()


def _number(path):
    """Return the first number in a file of the kernel; None if there is none."""
    try:
        with io.open(path) as stream:
            return float(stream.read().split()[0])
    except (IOError, OSError, ValueError, IndexError):
        return None


def pause(seconds):
    """Wait.

    Do not use `time.sleep`: from Python 3.11 on it waits for an absolute time, which is wrong or refused under libfaketime.
    """
    try:
        select.select([], [], [], seconds)
    except (select.error, OSError) as error:        # Python 2 does not go on waiting after a signal
        if error.args[0] != errno.EINTR:
            raise


def utc(seconds=None):
    """A time of the wall clock as ISO 8601 in UTC. For people: no duration is ever computed from it."""
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() if seconds is None else seconds))
