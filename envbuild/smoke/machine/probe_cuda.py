"""Asks the NVIDIA driver about itself and its devices, through libcuda and ctypes; needs no framework and no CUDA toolkit.

No context is made on a GPU, so that no memory is taken there and later processes are not affected.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import glob
import os
import re

from . import mapped

LIBRARY = 'ENVBUILD_SMOKE_LIBCUDA'      # the variable that names another libcuda, for tests
NO_DEVICE = 100
COMPAT = '/usr/local/cuda*/compat/libcuda.so.1'
ATTRIBUTES = (('multiprocessors', 16), ('major', 75), ('minor', 76), ('clock_khz', 13), ('mem_clock_khz', 36), ('mem_bus_bits', 37))

# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
MEANING = {
    2: ('the GPU has no free memory', 'End the processes that nvidia-smi lists, or choose another GPU.'),
    3: ('the driver is not initialised', 'Restart the container. If the error remains, reload the NVIDIA kernel modules.'),
    34: ('the program loaded the stub library of the CUDA toolkit instead of the driver',
         'Remove the stubs folder from LD_LIBRARY_PATH.'),
    36: ('libcuda requires a newer kernel module', "Remove libcuda from the image, or update the host's driver."),
    46: ('all devices are busy or in exclusive mode', 'End the other process, or set compute mode Default with nvidia-smi -c 0.'),
    100: ('the driver sees no GPU', 'Start the container with --gpus all. Check CUDA_VISIBLE_DEVICES and '
                                    'NVIDIA_VISIBLE_DEVICES.'),
    101: ('CUDA_VISIBLE_DEVICES names a device that does not exist', 'Compare the variable with the output of nvidia-smi -L '
                                                                   'inside the container.'),
    304: ('a system call failed', 'Check that the container has /dev/nvidia-uvm and may open it.'),
    802: ('the system is not ready', 'On a machine with NVSwitch, start nvidia-fabricmanager of the same version as the driver.'),
    803: ("the image's libcuda does not match the driver in the kernel",
          "Remove libcuda from the image; the container runtime provides the host's libcuda."),
    804: ('the image\'s forward-compatibility libcuda does not work on this GPU',
          "Update the host's driver, or remove the cuda-compat folder from LD_LIBRARY_PATH."),
    805: ('cannot connect to the MPS server', 'Start nvidia-cuda-mps-control -d on the host and mount its pipe folder, or unset '
          'CUDA_MPS_PIPE_DIRECTORY.'),
    806: ('the MPS server ended unexpectedly', 'Restart nvidia-cuda-mps-control on the host.'),
    807: ('the MPS server is not ready', 'Wait until the other clients have ended, or restart nvidia-cuda-mps-control.'),
    808: ('the MPS server accepts no more clients', 'End other clients, or run without MPS.'),
    999: ('the driver reports an unknown error', 'Reload nvidia_uvm. This error often occurs after the machine was suspended.'),
}


def load():
    """Return (libcuda, ''), or (None, the reason why it cannot be loaded)."""
    names = [os.environ[LIBRARY]] if os.environ.get(LIBRARY) else ['libcuda.so.1', 'libcuda.so']
    problem = ''
    for name in names:
        try:
            return ctypes.CDLL(name), ''
        except OSError as error:
            problem = problem or str(error)
    return None, problem


def _text(lib, name, handle):
    """Call the function `name`, which writes a text into a buffer. Return the text; None if the call fails."""
    function, buffer = getattr(lib, name, None), ctypes.create_string_buffer(128)
    return buffer.value.decode('ascii', 'replace') if function and function(buffer, len(buffer), handle) == 0 else None


def uuid(lib, handle):
    """The UUID as nvidia-smi writes it. For a MIG slice, the older function returns the UUID of the whole GPU."""
    function = getattr(lib, 'cuDeviceGetUuid_v2', None) or getattr(lib, 'cuDeviceGetUuid', None)
    buffer = (ctypes.c_ubyte * 16)()
    if not function or function(buffer, handle) != 0:
        return None
    digits = ''.join('%02x' % byte for byte in buffer)
    return 'GPU-' + '-'.join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _device(lib, index, count):
    handle, value = ctypes.c_int(), ctypes.c_int()
    lib.cuDeviceGet(ctypes.byref(handle), index)
    out = {'index': index, 'name': _text(lib, 'cuDeviceGetName', handle) or 'GPU', 'pci': _text(lib, 'cuDeviceGetPCIBusId', handle),
           'uuid': uuid(lib, handle)}
    for key, number in ATTRIBUTES:
        out[key] = value.value if lib.cuDeviceGetAttribute(ctypes.byref(value), number, handle) == 0 else 0
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
    """{'library': loaded?, 'problem', 'code' of cuInit, 'driver_cuda', 'devices', 'path', 'release', 'compat', 'compat_folder'}.

    `path` is the libcuda file that is really mapped, and `release` the driver release in its name. `compat` says whether this
    file belongs to a forward-compatibility package; `compat_folder` is the folder of such a package in the image, or None.
    """
    there = sorted(glob.glob(COMPAT))
    out = {'library': False, 'problem': '', 'code': None, 'driver_cuda': None, 'devices': [], 'path': None, 'release': None, 'compat': False,
           'compat_folder': os.path.dirname(there[-1]) if there else None}
    lib, out['problem'] = load()
    if lib is None:
        return out
    out['library'], out['code'] = True, lib.cuInit(0)
    out['path'] = next(iter(mapped.paths('libcuda')), None)
    if out['path']:
        out['release'] = release_of(out['path'])
        out['compat'] = 'compat' in os.path.dirname(os.path.realpath(out['path'])).split(os.sep)
    version = ctypes.c_int()
    if lib.cuDriverGetVersion(ctypes.byref(version)) == 0:
        out['driver_cuda'] = '%d.%d' % (version.value // 1000, version.value % 1000 // 10)
    if out['code'] == 0:
        count = ctypes.c_int()
        lib.cuDeviceGetCount(ctypes.byref(count))
        out['devices'] = [_device(lib, index, count.value) for index in range(count.value)]
    return out


def release_of(path):
    """'/usr/lib/libcuda.so.550.54.14' -> '550.54.14'; None if the name has no release."""
    found = re.search(r'\.so\.(\d+\.\d[\d.]*)$', os.path.realpath(path))
    return found.group(1) if found else None
