"""Watches GPUs while they work: a thread asks NVML a few times a second for memory, clock, temperature and the reasons for a
low clock.

Each question takes microseconds and does not hold Python's global lock, so the timed steps are not slowed down. Nothing is
watched without NVML, or if the UUIDs of the used GPUs are unknown. (Numbers are not enough: if CUDA_VISIBLE_DEVICES is set,
CUDA and NVML number the GPUs differently.)
"""
from __future__ import absolute_import, division, print_function

import collections
import ctypes
import threading

from ..clock import now, pause
from . import probe_nvml

EVERY_S = 0.2
KEPT = 50           # the number of samples whose clocks are kept: ten seconds


class Watch(object):
    """A context manager that watches the GPUs with these UUIDs."""

    def __init__(self, uuids):
        self._uuids, self._nvml, self._handles = [uuid for uuid in uuids if uuid], None, []
        self._seen, self._lock, self._over, self._thread = [], threading.Lock(), threading.Event(), None
        self._clocks = collections.deque(maxlen=KEPT)

    def __enter__(self):
        self._nvml = probe_nvml.opened() if self._uuids else None
        if self._nvml is not None:
            self._handles = [self._handle(uuid) for uuid in self._uuids]
            self._thread = threading.Thread(target=self._watch)
            self._thread.daemon = True
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._nvml.lib.nvmlShutdown()

    def _handle(self, uuid):
        handle = ctypes.c_void_p()
        found = self._nvml.lib.nvmlDeviceGetHandleByUUID(uuid.encode('ascii'), ctypes.byref(handle)) == 0
        return handle if found else None

    def _watch(self):
        while not self._over.is_set():
            looks = [handle and _look(self._nvml, handle) for handle in self._handles]
            with self._lock:
                self._seen.append(looks)
                self._clocks.append((now(), [look and look['sm_clock_mhz'] for look in looks]))
            pause(EVERY_S)         # not Event.wait, which on Python 2.7 depends on the time of day

    def clocks(self, since):
        """For each GPU, return the SM clocks in MHz seen since `since`, a time of clock.now(); [] if nothing is watched."""
        if self._thread is None:
            return []
        with self._lock:
            seen = [looks for when, looks in self._clocks if when >= since]
        return [[looks[place] for looks in seen] for place in range(len(self._handles))]

    def take(self):
        """For each GPU, return the peaks since the last call, the lowest clock and why it was low.

        Return [] if nothing is watched.
        """
        with self._lock:
            seen, self._seen = self._seen, []
        out = [_summary(uuid, [each for each in looks if each]) for uuid, looks in zip(self._uuids, zip(*seen))]
        return [dict(each, ecc_errors=handle and probe_nvml.errors(self._nvml, handle)) for each, handle in zip(out, self._handles)]


def _look(nvml, handle):
    use, reasons = probe_nvml.use(nvml, handle), nvml.large('nvmlDeviceGetCurrentClocksThrottleReasons', handle) or 0
    return {'mem_used_bytes': use['mem_used_bytes'], 'util_pct': use['util_pct'], 'processes': use['processes'],
            'sm_clock_mhz': nvml.number('nvmlDeviceGetClockInfo', handle, probe_nvml.SM_CLOCK),
            'temperature_c': nvml.number('nvmlDeviceGetTemperature', handle, probe_nvml.TEMPERATURE),
            'held_down': [words for bit, words in probe_nvml.HELD_DOWN if reasons & bit]}


def _summary(uuid, looks):
    def most(key, choose=max):
        known = [each[key] for each in looks if each[key] is not None]
        return choose(known) if known else None

    return {'uuid': uuid, 'mem_used_bytes': most('mem_used_bytes'), 'util_pct': most('util_pct'),
            'processes': most('processes'),
            'sm_clock_mhz': most('sm_clock_mhz', min), 'temperature_c': most('temperature_c'),
            'held_down': sorted(set(why for each in looks for why in each['held_down']))}
