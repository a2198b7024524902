"""Exercises the GPUs in a process of its own: copies patterns between them, multiplies matrices, copies memory.

It writes each result to a file at once, because the process may hang later.
"""
from __future__ import absolute_import, division, print_function

import ctypes

import numpy as np

from .. import files
from ..clock import now
from . import cublas, driver_api, probe_cuda
from .driver_api import Failed

PATTERN_BYTES = 16 << 20
COPY_BYTES = 256 << 20
AT_LEAST_S = 0.25
MOST_TIMES = 1 << 14
# Rows of the matrices: few for fp64, which is slow on gaming GPUs, and many for types that are fast on tensor cores.
SIZES = {'fp64_gflops': 3072, 'fp32_gflops': 4096, 'tf32_gflops': 8192, 'fp16_gflops': 8192}


class Notes(object):
    """The file with the results so far. The parent reads it, even if this process hangs."""

    def __init__(self, path):
        self.path, self.content = path, {'doing': '', 'devices': [], 'pairs': [], 'problem': ''}

    def doing(self, words):
        self.content['doing'] = words
        files.write_json(self.path, self.content)


def main(path, wanted, count):
    """Test the first `count` GPUs that libcuda lists: copies between them, and the speed of each if `wanted` has 'rates'."""
    notes = Notes(path)
    lib, problem = probe_cuda.load()
    try:
        if lib is None or lib.cuInit(0) != 0:
            raise Failed(problem or 'cuInit fails')
        devices = [driver_api.Device(lib, index) for index in range(count)]
        if 'rates' in wanted:
            for device in devices:
                notes.doing('GPU %d' % device.index)
                notes.content['devices'].append(_rates(device))
        for one in devices:
            for other in devices:
                if one.index < other.index:
                    notes.doing('copies between GPU %d and %d' % (one.index, other.index))
                    notes.content['pairs'].append(_pair(lib, one, other))
    except Failed as error:
        notes.content['problem'] = str(error)
    notes.doing('')
    return 0


def _rates(device):
    out = {'index': device.index, 'not_measured': {}}
    for key, measure in (('memory_GBps', _memory), ('host', _host)):
        try:
            out.update(measure(device))
        except Failed as error:
            out['not_measured'][key.split('_')[0]] = str(error)
    try:
        blas = cublas.Blas()
    except Failed as error:
        out['not_measured']['arithmetic'] = str(error)
        return out
    for kind in sorted(SIZES):
        try:
            out[kind] = _arithmetic(device, blas, kind, SIZES[kind])
        except Failed as error:
            if kind != 'tf32_gflops':
                out['not_measured'][kind.split('_')[0]] = str(error)
    blas.close()
    return out


def _seconds(device, start):
    """Return the seconds that one call takes.

    After one call to warm up, many calls are timed together: enough calls to take AT_LEAST_S, but at most MOST_TIMES.
    """
    start()
    device.wait()
    times = 1
    while True:
        begin = now()
        for _ in range(times):
            start()
        device.wait()
        took = now() - begin
        if took >= AT_LEAST_S or times >= MOST_TIMES:
            return took / times
        times *= 2


def _arithmetic(device, blas, kind, size):
    width = cublas.BYTES[cublas.KINDS[kind][0]]
    places = [device.alloc(size * size * width) for _ in range(3)]
    try:
        for place in places:
            device.call('cuMemsetD8_v2', place, ctypes.c_ubyte(0), ctypes.c_size_t(size * size * width))
        # Different small numbers: with zeros alone, a GPU draws less power and raises its clock.
        device.put(places[0], np.random.RandomState(1).rand(1 << 20).astype({8: 'float64', 4: 'float32', 2: 'float16'}[width]))
        return 2.0 * size ** 3 / _seconds(device, blas.multiplication(kind, size, *places)) / 1e9
    finally:
        device.free(*places)


def _memory(device):
    """Measure copies within the GPU's memory; read bytes and written bytes both count."""
    source, target = device.alloc(COPY_BYTES), device.alloc(COPY_BYTES)
    try:
        seconds = _seconds(device, lambda: device.call('cuMemcpyDtoD_v2', target, source, ctypes.c_size_t(COPY_BYTES)))
        return {'memory_GBps': 2.0 * COPY_BYTES / seconds / 1e9}
    finally:
        device.free(source, target)


def _host(device):
    """Measure copies from and to page-locked memory of the host."""
    there, here, size = device.alloc(COPY_BYTES), ctypes.c_void_p(), ctypes.c_size_t(COPY_BYTES)
    device.call('cuMemAllocHost_v2', ctypes.byref(here), size)
    try:
        come = _seconds(device, lambda: device.call('cuMemcpyHtoD_v2', there, here, size))
        go = _seconds(device, lambda: device.call('cuMemcpyDtoH_v2', here, there, size))
        return {'from_host_GBps': COPY_BYTES / come / 1e9, 'to_host_GBps': COPY_BYTES / go / 1e9}
    finally:
        device.call('cuMemFreeHost', here)
        device.free(there)


def _pair(lib, one, other):
    """Copy a pattern from one GPU to the other and back, and compare every number after each copy."""
    out, can = {'gpus': [one.index, other.index], 'peer': True, 'wrong': 0}, ctypes.c_int()
    try:
        for first, second in ((one, other), (other, one)):
            lib.cuDeviceCanAccessPeer(ctypes.byref(can), first.handle, second.handle)
            out['peer'] = out['peer'] and bool(can.value)
        if out['peer']:
            one.reach(other)
            other.reach(one)
        pattern = (np.arange(PATTERN_BYTES // 4, dtype='uint32') * np.uint32(2654435761)) ^ np.uint32(one.index << 8 | other.index)
        here, there = one.alloc(PATTERN_BYTES), other.alloc(PATTERN_BYTES)
        try:
            one.put(here, pattern)
            driver_api.copy_to_peer(one, here, other, there, PATTERN_BYTES)
            out['wrong'] += _different(other, there, pattern)
            one.put(here, np.zeros_like(pattern))
            driver_api.copy_to_peer(other, there, one, here, PATTERN_BYTES)
            out['wrong'] += _different(one, here, pattern)
            out['GBps'] = PATTERN_BYTES / _seconds(one, lambda: driver_api.copy_to_peer(one, here, other, there, PATTERN_BYTES)) / 1e9
        finally:
            one.free(here)
            other.free(there)
    except Failed as error:
        out['not_measured'] = str(error)
    return out


def _different(device, place, pattern):
    got = np.zeros_like(pattern)
    device.get(place, got)
    return int((got != pattern).sum())
