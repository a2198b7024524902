"""FlashAttention for the smoke test: it loads the compiled module, and on a GPU compares attention with NumPy. Then it trains like
the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.7+.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import pytorch

SIZE = 64


class Adapter(pytorch.Adapter):
    name = 'flash-attn'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import flash_attn
        self.flash_attn = flash_attn
        self.is_first = not hasattr(flash_attn, 'flash_attn_func')
        if self.is_first:  # the package of FlashAttention 2 imports its compiled module itself
            import flash_attn_cuda
            self.compiled = flash_attn_cuda
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        if self.on_gpu:
            self._attends()
        self.semantics['operators'] = 'attention %s' % (
            'on %s' % self.device if self.on_gpu else 'not checked: FlashAttention has no code for CPUs')

    def _attends(self):
        """Compare attention with NumPy. Half precision has 11 bits, so the results differ by some thousandths."""
        generator = np.random.RandomState(1)
        arrays = [generator.standard_normal((1, SIZE, 2, SIZE)).astype('float16') for _ in range(3)]
        query, key, value = (each.astype('float64') for each in arrays)
        tensors = [self.torch.from_numpy(each).to(self.device) for each in arrays]
        got = (self._first(tensors) if self.is_first else self.flash_attn.flash_attn_func(*tensors)).cpu().numpy()
        scores = np.einsum('bqhd,bkhd->bhqk', query, key) / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = np.einsum('bhqk,bkhd->bqhd', weights / weights.sum(-1, keepdims=True), value)
        apart = np.abs(got.astype('float64') - wanted).max()
        if not apart < 1e-2:
            raise ValueError('attention of FlashAttention is %.3g away from NumPy' % apart)

    def _first(self, tensors):
        """Return the attention, computed by FlashAttention 1. Its function takes one array of all sequences in the batch, and the
        positions where each sequence begins and ends. Here, the batch has one sequence."""
        from flash_attn.flash_attn_interface import flash_attn_unpadded_func
        bounds = self.torch.tensor([0, SIZE], dtype=self.torch.int32, device=self.device)
        return flash_attn_unpadded_func(*([each[0] for each in tensors] + [bounds, bounds, SIZE, SIZE, 0.0]))[None]

    def versions(self):
        return dict(super(Adapter, self).versions(), name='flash-attn', version=self.flash_attn.__version__)
