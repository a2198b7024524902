"""What the NVIDIA driver says of itself and its devices, through libcuda and ctypes; no framework, no CUDA toolkit."""
from __future__ import absolute_import, division, print_function

import ctypes
import os

LIBRARY = 'ENVBUILD_SMOKE_LIBCUDA'      # another libcuda, for tests
NO_DEVICE = 100
ATTRIBUTES = (('multiprocessors', 16), ('major', 75), ('minor', 76))

# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
MEANING = {
    3: ('the driver is not initialised', 'Restart the container; if it stays, reload the NVIDIA kernel modules.'),
    34: ('the stub library of the CUDA toolkit is loaded instead of the driver',
         'Remove the stubs folder from LD_LIBRARY_PATH.'),
    46: ('all devices are busy or in exclusive mode', 'End the other process, or set compute mode Default with nvidia-smi -c 0.'),
    100: ('the driver sees no GPU', 'Start the container with --gpus all; look at CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES.'),
    304: ('a call of the operating system failed', 'Check that /dev/nvidia-uvm exists in the container and may be opened.'),
    802: ('the system is not ready', 'On a machine with NVSwitch start nvidia-fabricmanager of the driver\'s version.'),
    803: ('the libcuda of the image differs from the kernel\'s driver',
          'Remove the libcuda that was baked into the image; the container runtime brings the host\'s own.'),
    804: ('the image\'s forward-compatibility libcuda does not work on this GPU',
          'Update the host\'s driver, or take the cuda-compat folder off the loader\'s path.'),
    999: ('an unknown error of the driver', 'Reload nvidia_uvm; it often happens after the machine slept.'),
}


def _load():
    names = [os.environ[LIBRARY]] if os.environ.get(LIBRARY) else ['libcuda.so.1', 'libcuda.so']
    problem = ''
    for name in names:
        try:
            return ctypes.CDLL(name), ''
        except OSError as error:
            problem = problem or str(error)
    return None, problem


def _device(lib, index, count):
    handle, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(128)
    lib.cuDeviceGet(ctypes.byref(handle), index)
    lib.cuDeviceGetName(name, len(name), handle)
    out = {'index': index, 'name': name.value.decode('ascii', 'replace')}
    for key, number in ATTRIBUTES:
        lib.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        out[key] = value.value
    size = ctypes.c_size_t()
    lib.cuDeviceTotalMem_v2(ctypes.byref(size), handle)
    peers = []
    for other in range(count):
        if other != index:
            peer = ctypes.c_int()
            lib.cuDeviceGet(ctypes.byref(peer), other)
            lib.cuDeviceCanAccessPeer(ctypes.byref(value), handle, peer)
            peers += [other] if value.value else []
    out['cc'] = '%d.%d' % (out.pop('major'), out.pop('minor'))
    return dict(out, mem_bytes=size.value, peers=peers)


def facts():
    """{'library': loaded?, 'problem', 'code' of cuInit, 'driver_cuda', 'devices'}."""
    out = {'library': False, 'problem': '', 'code': None, 'driver_cuda': None, 'devices': []}
    lib, out['problem'] = _load()
    if lib is None:
        return out
    out['library'] = True
    out['code'] = lib.cuInit(0)
    version = ctypes.c_int()
    if lib.cuDriverGetVersion(ctypes.byref(version)) == 0:
        out['driver_cuda'] = '%d.%d' % (version.value // 1000, version.value % 1000 // 10)
    if out['code'] == 0:
        count = ctypes.c_int()
        lib.cuDeviceGetCount(ctypes.byref(count))
        out['devices'] = [_device(lib, index, count.value) for index in range(count.value)]
    return out
