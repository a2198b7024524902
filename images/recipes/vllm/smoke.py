"""vLLM for the smoke test: on a GPU, it runs a compiled operator on this PyTorch. Then it trains like the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.9+.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import pytorch

SIZE = 64


class Adapter(pytorch.Adapter):
    name = 'vllm'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import vllm
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.vllm = vllm
        if self.on_gpu:
            self._activates()
        self.semantics['operators'] = 'silu_and_mul on %s' % self.device if self.on_gpu else (
            'not checked: the compiled libraries need the NVIDIA driver')

    def _activates(self):
        """Check the operator silu_and_mul, which multiplies SiLU of the first half of each row by the second half."""
        from vllm import _custom_ops  # noqa: F401  it loads the compiled libraries
        numbers = np.random.RandomState(0).standard_normal((4, 2 * SIZE)).astype('float32')
        result = self.torch.empty(4, SIZE, device=self.device)
        self.torch.ops._C.silu_and_mul(result, self.torch.from_numpy(numbers).to(self.device))
        first, second = numbers[:, :SIZE].astype('float64'), numbers[:, SIZE:].astype('float64')
        apart = np.abs(result.cpu().numpy() - first / (1 + np.exp(-first)) * second).max()
        if not apart < 1e-4:
            raise ValueError('silu_and_mul of vLLM is %.3g away from NumPy' % apart)

    def versions(self):
        return dict(super(Adapter, self).versions(), name='vllm', version=self.vllm.__version__)
