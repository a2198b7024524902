"""What NVML knows beyond libcuda: the driver's release, and for each GPU its identity, link, memory and load."""
from __future__ import absolute_import, division, print_function

import ctypes
import os

LIBRARY = 'ENVBUILD_SMOKE_LIBNVML'      # another libnvidia-ml, for tests


class _Memory(ctypes.Structure):
    _fields_ = [('total', ctypes.c_ulonglong), ('free', ctypes.c_ulonglong), ('used', ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [('gpu', ctypes.c_uint), ('memory', ctypes.c_uint)]


def _load():
    try:
        return ctypes.CDLL(os.environ.get(LIBRARY) or 'libnvidia-ml.so.1')
    except OSError:
        return None


def _words(function, *before):
    """A text that NVML writes into a buffer, None where it cannot tell."""
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode('ascii', 'replace') if function(*(before + (buffer, len(buffer)))) == 0 else None


def _number(function, *before):
    value = ctypes.c_uint()
    return value.value if function(*(before + (ctypes.byref(value),))) == 0 else None


def _device(lib, index):
    handle, memory, load = ctypes.c_void_p(), _Memory(), _Utilization()
    if lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return None
    has_memory = lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    has_load = lib.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0
    milliwatts = _number(lib.nvmlDeviceGetPowerManagementLimit, handle)
    return {
        'index': index, 'name': _words(lib.nvmlDeviceGetName, handle), 'uuid': _words(lib.nvmlDeviceGetUUID, handle),
        'mem_bytes': memory.total if has_memory else None, 'mem_free_bytes': memory.free if has_memory else None,
        'util_pct': load.gpu if has_load else None, 'power_limit_w': None if milliwatts is None else milliwatts / 1000.0,
        'pcie_gen': _number(lib.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        'pcie_width': _number(lib.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }


def facts():
    """{'driver', 'devices'}; driver None where NVML is absent or refuses."""
    lib = _load()
    if lib is None or lib.nvmlInit_v2() != 0:
        return {'driver': None, 'devices': []}
    count = _number(lib.nvmlDeviceGetCount_v2) or 0
    devices = [_device(lib, index) for index in range(count)]
    out = {'driver': _words(lib.nvmlSystemGetDriverVersion), 'devices': [each for each in devices if each]}
    lib.nvmlShutdown()
    return out
