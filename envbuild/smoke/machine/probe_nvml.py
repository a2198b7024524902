"""Asks NVML for facts that libcuda lacks: the driver's release, and each GPU's identity, links, memory, load and health."""
from __future__ import absolute_import, division, print_function

import ctypes
import os
import platform

from . import topology

LIBRARY = 'ENVBUILD_SMOKE_LIBNVML'      # the variable that names another libnvidia-ml, for tests
SM_CLOCK, TEMPERATURE = 1, 0
UNCORRECTED, SINCE_START = 1, 0
MODES = {0: 'default', 1: 'exclusive thread', 2: 'prohibited', 3: 'exclusive process'}
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html; 1 (idle) is left out, because it is no fault
HELD_DOWN = ((0x02, 'clocks set by a person'), (0x04, 'power limit'), (0x08, 'hardware slowdown'), (0x20, 'heat (limited by software)'),
             (0x40, 'heat (limited by hardware)'), (0x80, 'power brake'))
VIRTUAL = 2                 # NVML_GPU_VIRTUALIZATION_MODE_VGPU
AFFINITY_WORDS = 32         # words of 64 processors each


class _Memory(ctypes.Structure):
    _fields_ = [('total', ctypes.c_ulonglong), ('free', ctypes.c_ulonglong), ('used', ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [('gpu', ctypes.c_uint), ('memory', ctypes.c_uint)]


class _Pci(ctypes.Structure):
    _fields_ = [('old', ctypes.c_char * 16), ('domain', ctypes.c_uint), ('bus', ctypes.c_uint), ('device', ctypes.c_uint),
                ('kind', ctypes.c_uint), ('subsystem', ctypes.c_uint), ('text', ctypes.c_char * 32)]


def _load():
    try:
        return ctypes.CDLL(os.environ.get(LIBRARY) or 'libnvidia-ml.so.1')
    except OSError:
        return None


def _words(function, *before):
    """Call a function of NVML that writes a text into a buffer. Return the text; None if NVML reports an error."""
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode('ascii', 'replace') if function(*(before + (buffer, len(buffer)))) == 0 else None


def _number(function, *before):
    value = ctypes.c_uint()
    return value.value if function(*(before + (ctypes.byref(value),))) == 0 else None


class Nvml(object):
    """An initialised NVML. Its queries return None if the driver lacks the function or reports an error."""

    def __init__(self, lib):
        self.lib = lib

    def handle(self, index):
        """Return the handle of GPU number `index`; None if the GPU is lost or this process may not use it."""
        handle = ctypes.c_void_p()
        return handle if self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0 else None

    def number(self, name, *before):
        """Call the function `name` and return the whole number that it writes, or None."""
        function = getattr(self.lib, name, None)
        return None if function is None else _number(function, *before)

    def numbers(self, name, count, handle):
        """Call the function `name` and return the `count` whole numbers that it writes, or None."""
        function, values = getattr(self.lib, name, None), [ctypes.c_uint() for _ in range(count)]
        if function is None or function(handle, *[ctypes.byref(value) for value in values]) != 0:
            return None
        return [value.value for value in values]

    def large(self, name, handle, *between):
        """Call the function `name` and return the 64-bit number that it writes, or None."""
        function, value = getattr(self.lib, name, None), ctypes.c_ulonglong()
        arguments = (handle,) + between + (ctypes.byref(value),)
        return value.value if function is not None and function(*arguments) == 0 else None

    def pci(self, handle, name='nvmlDeviceGetPciInfo_v3', *between):
        """Return (domain, bus, device) of the GPU or, with another function `name`, of the other end of an NVLink."""
        function = getattr(self.lib, name, None) or getattr(self.lib, name.replace('_v3', '_v2'), None)
        place = _Pci()
        if function is None or function(*((handle,) + between + (ctypes.byref(place),))) != 0:
            return None
        return place.domain, place.bus, place.device

    def processes(self, handle):
        """How many processes compute on the GPU, including those of other containers."""
        for name in ('_v3', '_v2', ''):
            function = getattr(self.lib, 'nvmlDeviceGetComputeRunningProcesses' + name, None)
            if function is not None:
                count = ctypes.c_uint(0)
                # 7: the given list is too short. Only the number of processes is needed.
                return count.value if function(handle, ctypes.byref(count), None) in (0, 7) else None
        return None

    def is_virtual(self, handle):
        """Whether the GPU is a virtual GPU (vGPU), or is used through Windows (WSL 2). NVML knows less about such GPUs.

        https://docs.nvidia.com/cuda/wsl-user-guide/ says that WSL does not support the query of the load.
        """
        return self.number('nvmlDeviceGetVirtualizationMode', handle) == VIRTUAL or in_windows(platform.release())

    def cpus(self, handle):
        """The numbers of the processors near the GPU; None if NVML does not report them."""
        function, words = getattr(self.lib, 'nvmlDeviceGetCpuAffinity', None), (ctypes.c_ulong * AFFINITY_WORDS)()
        if function is None or function(handle, AFFINITY_WORDS, words) != 0:
            return None
        bits = 8 * ctypes.sizeof(ctypes.c_ulong)
        return [place * bits + bit for place, word in enumerate(words) for bit in range(bits) if word >> bit & 1] or None


def in_windows(release):
    """Whether this is a release of the kernel of WSL: '5.15.90.1-microsoft-standard-WSL2'."""
    return 'microsoft' in release.lower()


def opened():
    """Return an initialised NVML; None if it is absent or cannot be initialised. The caller must shut it down."""
    lib = _load()
    return Nvml(lib) if lib is not None and lib.nvmlInit_v2() == 0 else None


def address(text):
    """'0000:3B:00.0' -> (0, 59, 0); None if the text is no address."""
    try:
        domain, bus, rest = text.split(':')
        return int(domain, 16), int(bus, 16), int(rest.split('.')[0], 16)
    except (AttributeError, ValueError):
        return None


def use(nvml, handle):
    """Return the memory use, the load and the number of processes at this moment."""
    memory, load = _Memory(), _Utilization()
    has_memory = nvml.lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    has_load = nvml.lib.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0
    # If NVML cannot measure the load, some drivers answer 0 instead of "not supported".
    has_load = has_load and (load.gpu or not nvml.is_virtual(handle))
    return {'mem_free_bytes': memory.free if has_memory else None, 'mem_used_bytes': memory.used if has_memory else None,
            'util_pct': load.gpu if has_load else None, 'processes': nvml.processes(handle)}


def errors(nvml, handle):
    """The number of uncorrected memory errors since the driver was loaded; None if the GPU does not count them."""
    return nvml.large('nvmlDeviceGetTotalEccErrors', handle, UNCORRECTED, SINCE_START)


def _link(nvml, handle):
    lib = nvml.lib
    return {'pcie_gen': _number(lib.nvmlDeviceGetCurrPcieLinkGeneration, handle), 'pcie_width': _number(lib.nvmlDeviceGetCurrPcieLinkWidth, handle),
            'pcie_gen_max': nvml.number('nvmlDeviceGetMaxPcieLinkGeneration', handle),
            'pcie_width_max': nvml.number('nvmlDeviceGetMaxPcieLinkWidth', handle), 'near_cpus': nvml.cpus(handle)}


def _state(nvml, handle):
    """Return the modes and limits that an administrator can set, and the clocks and health that the GPU reports."""
    milliwatts = nvml.number('nvmlDeviceGetPowerManagementLimit', handle)
    mig, rows = nvml.numbers('nvmlDeviceGetMigMode', 2, handle), nvml.numbers('nvmlDeviceGetRemappedRows', 4, handle)
    held, mode = nvml.large('nvmlDeviceGetCurrentClocksThrottleReasons', handle), nvml.number('nvmlDeviceGetComputeMode', handle)
    keeps = nvml.number('nvmlDeviceGetPersistenceMode', handle)
    return {
        'power_limit_w': None if milliwatts is None else milliwatts / 1000.0, 'compute_mode': MODES.get(mode),
        'persistence': None if keeps is None else bool(keeps), 'mig': None if mig is None else bool(mig[0]),
        'held_down': [words for bit, words in HELD_DOWN if (held or 0) & bit],
        'temperature_c': nvml.number('nvmlDeviceGetTemperature', handle, TEMPERATURE),
        'sm_clock_max_mhz': nvml.number('nvmlDeviceGetMaxClockInfo', handle, SM_CLOCK),
        'ecc_errors': errors(nvml, handle),
        'memory_fault': bool(nvml.number('nvmlDeviceGetRetiredPagesPendingStatus', handle) or (rows and (rows[2] or rows[3]))),
    }


def _device(nvml, index):
    handle = nvml.handle(index)
    if handle is None:
        return None
    out = {'index': index, 'name': _words(nvml.lib.nvmlDeviceGetName, handle), 'uuid': _words(nvml.lib.nvmlDeviceGetUUID, handle),
           'place': nvml.pci(handle)}
    for part in (use, _link, _state):
        out.update(part(nvml, handle))
    return out


def facts():
    """Return {'driver', 'code', 'devices', 'links'}.

    `code` is the result of initialising NVML: 0, an error code, or None if there is no NVML. `driver` is None unless it is 0.
    """
    out = {'driver': None, 'code': None, 'devices': [], 'links': {}}
    lib = _load()
    if lib is None:
        return out
    out['code'] = lib.nvmlInit_v2()
    if out['code'] != 0:
        return out
    nvml = Nvml(lib)
    found = [_device(nvml, index) for index in range(_number(lib.nvmlDeviceGetCount_v2) or 0)]
    out['driver'], out['devices'] = _words(lib.nvmlSystemGetDriverVersion), [each for each in found if each]
    out['links'] = topology.between(nvml, out['devices'])
    lib.nvmlShutdown()
    return out
