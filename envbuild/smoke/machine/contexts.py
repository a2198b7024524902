"""Asks the driver on which GPUs this process has a primary context.

Libraries need the primary context to work on a GPU. All libraries of a process share it. A rank asks just before it ends.
Asking makes no context on a GPU that the rank has not used.
"""
from __future__ import absolute_import, division, print_function

import ctypes

from . import mapped, probe_cuda


def facts():
    """Return [{'uuid', 'used_bytes'}] of the GPUs on which this process has a context; None if the driver cannot tell.

    `used_bytes` is the GPU memory that all processes together use; None if unknown. The driver has these facts even where NVML
    has no figures for memory or load (in virtual machines and in WSL).
    """
    paths = mapped.paths('libcuda')
    if not paths:
        return []                       # a process that has not loaded the driver's library uses no GPU
    try:
        lib = ctypes.CDLL(paths[0])
    except OSError:
        return None
    count, found = ctypes.c_int(), []
    if not hasattr(lib, 'cuDevicePrimaryCtxGetState') or lib.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    for index in range(count.value):
        device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        if lib.cuDeviceGet(ctypes.byref(device), index) == 0 and \
                lib.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value:
            found.append({'uuid': probe_cuda.uuid(lib, device), 'used_bytes': _taken(lib, device)})
    return found


def _taken(lib, device):
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    if lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        return None
    try:
        if lib.cuCtxPushCurrent_v2(context) != 0:
            return None
        known = lib.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        lib.cuCtxPopCurrent_v2(ctypes.byref(context))
        return total.value - free.value if known else None
    finally:
        (getattr(lib, 'cuDevicePrimaryCtxRelease_v2', None) or lib.cuDevicePrimaryCtxRelease)(device)
