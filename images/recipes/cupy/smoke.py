"""CuPy for the smoke test: CuPy trains nothing, so results on each GPU are compared with NumPy's.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import re

import numpy as np

SIZE = 256


class Adapter(object):
    name = 'cupy'
    style = 'single'

    @staticmethod
    def limits(options):
        return {'training': 'CuPy has arrays and no networks: there is nothing to train'}

    def setup(self, ctx):
        import cupy
        self.ctx, self.cupy = ctx, cupy
        self.semantics = {'devices': 'each GPU by itself' if ctx.kind == 'cuda' else 'none: CuPy computes on GPUs only'}

    def versions(self):
        return {'name': 'cupy', 'version': self.cupy.__version__, 'cudnn': None, 'nccl': None, 'arch_list': [], 'cuda_build': self._cuda()}

    def _cuda(self):
        """Return the CUDA release. For cupy-cuda12x it is '12': the package may contain the runtime of any CUDA 12.x."""
        site = os.path.dirname(os.path.dirname(os.path.abspath(self.cupy.__file__)))
        matches = [re.match(r'cupy_cuda(\d+)x-', entry) for entry in sorted(os.listdir(site))]
        majors = [match.group(1) for match in matches if match]
        if majors:
            return majors[0]
        number = self.cupy.cuda.runtime.runtimeGetVersion()     # without a driver, releases from CuPy 13 on raise here
        return '%d.%d' % (number // 1000, number % 1000 // 10)

    def exercise(self):
        if self.ctx.kind != 'cuda':
            raise NotImplementedError('CuPy computes on GPUs only, so without a GPU only its import was tested')
        return [dict(task(device), what='%s on GPU %d' % (what, device)) for device in self.ctx.devices
                for what, task in (('a product of matrices', self._product), ('a kernel compiled on the spot', self._kernel))]

    def _product(self, device):
        numbers = np.random.RandomState(self.ctx.seed)
        left, right = numbers.rand(SIZE, SIZE), numbers.rand(SIZE, SIZE)
        with self.cupy.cuda.Device(device):
            return _apart(self.cupy.asnumpy(self.cupy.asarray(left).dot(self.cupy.asarray(right))), left.dot(right), 1e-9)

    def _kernel(self, device):
        numbers = np.arange(SIZE, dtype='float32')
        with self.cupy.cuda.Device(device):
            triple = self.cupy.ElementwiseKernel('float32 x', 'float32 y', 'y = 3 * x + 1', 'smoke_triple')
            return _apart(self.cupy.asnumpy(triple(self.cupy.asarray(numbers))), 3 * numbers + 1, 0)

    compile_needs = ('cuda headers',)

    def compile_and_run(self):
        """Compile and run a kernel that includes one of CUDA's headers, as CuPy's own kernels do."""
        source = '#include <cuda_fp16.h>\nextern "C" __global__ void smoke(float* y) { y[0] = __half2float(__float2half(2.5f)) * 3; }'
        os.environ['CUPY_CACHE_DIR'] = os.path.join(self.ctx.folder, 'cupy')
        if self.ctx.kind != 'cuda':
            raise NotImplementedError('CuPy compiles for GPUs only')
        found = []
        for device in self.ctx.devices:
            with self.cupy.cuda.Device(device):
                answer = self.cupy.zeros(1, 'float32')
                self.cupy.RawKernel(source, 'smoke')((1,), (1,), (answer,))
                found.append(dict(_apart(self.cupy.asnumpy(answer), np.array([7.5]), 0), what='a kernel for GPU %d' % device))
        return found

    def close(self):
        pass


def _apart(got, wanted, limit):
    distance = float(np.abs(np.asarray(got, 'float64') - wanted).max())
    return {'right': distance <= limit, 'detail': 'at most %.2g from NumPy, %.2g allowed' % (distance, limit)}
