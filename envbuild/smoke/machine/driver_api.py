"""The calls of the CUDA driver API that the measurements need, through ctypes.

These calls make contexts on the GPUs, so only a separate process may use them.
"""
from __future__ import absolute_import, division, print_function

import ctypes

from . import probe_cuda

ALREADY = 704               # the error code if peer access is on already


class Failed(Exception):
    """A call of the driver or of cuBLAS failed; the message names the function and its error code."""


class Device(object):
    """One GPU with its primary context, the one that CUDA libraries use."""

    def __init__(self, lib, index):
        self.lib, self.index = lib, index
        self.handle, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call('cuDeviceGet', ctypes.byref(self.handle), index)
        self.call('cuDevicePrimaryCtxRetain', ctypes.byref(self.context), self.handle)
        self.enter()

    def call(self, name, *arguments):
        """Call a function of the driver. Raises Failed if the call does not succeed."""
        function = getattr(self.lib, name, None)
        code = -1 if function is None else function(*arguments)
        if code:
            meaning = probe_cuda.MEANING.get(code)
            raise Failed('%s on GPU %d returns %s%s' % (name, self.index, code if code > 0 else ('nothing: this driver does not have '
                                                                                                 'this function'),
                                                        ' (%s)' % meaning[0] if meaning else ''))

    def enter(self):
        """Make this GPU's context current."""
        self.call('cuCtxSetCurrent', self.context)

    def alloc(self, size):
        """Allocate memory on this GPU; return its address."""
        self.enter()
        address = ctypes.c_ulonglong()
        self.call('cuMemAlloc_v2', ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def free(self, *addresses):
        """Free memory of this GPU."""
        self.enter()
        for address in addresses:
            self.call('cuMemFree_v2', address)

    def put(self, address, array):
        """Copy a NumPy array into this GPU's memory."""
        self.enter()
        self.call('cuMemcpyHtoD_v2', address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))

    def get(self, address, array):
        """Copy this GPU's memory into a NumPy array."""
        self.enter()
        self.call('cuMemcpyDtoH_v2', ctypes.c_void_p(array.ctypes.data), address, ctypes.c_size_t(array.nbytes))

    def wait(self):
        """Wait until this GPU has finished all work."""
        self.enter()
        self.call('cuCtxSynchronize')

    def reach(self, other):
        """Enable direct access from this GPU to the memory of the GPU `other`."""
        self.enter()
        if self.lib.cuCtxEnablePeerAccess(other.context, 0) not in (0, ALREADY):
            raise Failed('GPU %d cannot access the memory of GPU %d' % (self.index, other.index))


def copy_to_peer(source, start, target, end, size):
    """Copy `size` bytes from address `start` of the GPU `source` to address `end` of the GPU `target`, and wait for it."""
    source.enter()
    source.call('cuMemcpyPeer', end, target.context, start, source.context, ctypes.c_size_t(size))
    source.wait()
    target.wait()
