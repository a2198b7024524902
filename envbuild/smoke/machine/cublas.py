"""Runs matrix multiplications with the image's cuBLAS, which is in a wheel, in a framework's folder or in the system."""
from __future__ import absolute_import, division, print_function

import ctypes
import glob
import os
import sys

from .driver_api import Failed

LIBRARY = 'ENVBUILD_SMOKE_LIBCUBLAS'    # the variable that names another libcublas, for tests
WHERE = ('nvidia/cublas/lib/libcublas.so.*', 'nvidia/cu*/lib/libcublas.so.*', '*/lib/libcublas.so.*', '*/lib/libcublas-*.so.*')
INSTALLED = ('/usr/local/cuda*/lib64/libcublas.so.*', '/usr/lib/x86_64-linux-gnu/libcublas.so.*', '/opt/*/lib/libcublas.so.*')
NEW = 11000                             # from this version on, types of computation have new numbers (cublasComputeType_t)
# Numbers of three types: of the data, of the computation before CUDA 11, and of the computation from CUDA 11 on. See
# cublas_api.h and library_types.h.
KINDS = {'fp64_gflops': (1, 1, 70), 'fp32_gflops': (0, 0, 68), 'tf32_gflops': (0, None, 77), 'fp16_gflops': (2, 0, 68)}
BYTES = {1: 8, 0: 4, 2: 2}
USUAL, TENSOR = -1, 99                  # cublasGemmAlgo_t: the default algorithm, without and with tensor cores
TENSOR_MATH = 1


def load():
    """Load libcublas from the first place that has it. Raises Failed if no place has it."""
    named = os.environ.get(LIBRARY)
    names = [named] if named else ['libcublas.so.%s' % version for version in ('13', '12', '11', '10.0', '9.2', '9.1', '9.0', '8.0')]
    if not named:
        for folder in [entry for entry in sys.path if entry.endswith('-packages')]:
            names += sorted(path for pattern in WHERE for path in glob.glob(os.path.join(folder, pattern)))
        names += sorted(path for pattern in INSTALLED for path in glob.glob(pattern))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    raise Failed('this image has no libcublas')


class Blas(object):
    """cuBLAS in the current CUDA context."""

    def __init__(self):
        self.lib, self.handle, version = load(), ctypes.c_void_p(), ctypes.c_int()
        self._call('cublasCreate_v2', ctypes.byref(self.handle))
        self._call('cublasGetVersion_v2', self.handle, ctypes.byref(version))
        self.new = version.value >= NEW

    def _call(self, name, *arguments):
        function = getattr(self.lib, name, None)
        code = -1 if function is None else function(*arguments)
        if code:
            raise Failed('%s answers %d' % (name, code))

    def multiplication(self, kind, size, left, right, out):
        """Return a function that starts the computation out = left * right.

        `left`, `right` and `out` are addresses of square matrices on the GPU, with `size` rows each.
        """
        numbers, old, new = KINDS[kind]
        compute = new if self.new else old
        if compute is None:
            raise Failed('cuBLAS before CUDA 11 does not support this arithmetic')
        if not self.new and kind == 'fp16_gflops':
            self._call('cublasSetMathMode', self.handle, TENSOR_MATH)
        real = ctypes.c_double if kind == 'fp64_gflops' else ctypes.c_float
        one, zero = real(1), real(0)
        algorithm = TENSOR if kind == 'fp16_gflops' and not self.new else USUAL

        def start():
            self._call('cublasGemmEx', self.handle, 0, 0, size, size, size, ctypes.byref(one), left, numbers, size, right, numbers, size,
                       ctypes.byref(zero), out, numbers, size, compute, algorithm)
        return start

    def close(self):
        self._call('cublasDestroy_v2', self.handle)
