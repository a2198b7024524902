"""xformers for the smoke test: it runs its compiled operators on this PyTorch, then trains like the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.8+.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import pytorch

SIZE = 32


class Adapter(pytorch.Adapter):
    name = 'xformers'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import xformers
        import xformers.ops
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.xformers = xformers
        self._loads()
        self._packs()
        if self.on_gpu:
            self._attends()
        self.semantics['operators'] = 'sparse24_pack_mask on cpu; memory_efficient_attention %s' % (
            'on %s' % self.device if self.on_gpu else 'not checked: xformers has no operator for CPUs')

    def _loads(self):
        """Fail if the compiled library was not loaded; xformers itself only writes a warning."""
        from xformers import _cpp_lib
        failure = _cpp_lib._cpp_library_load_exception
        if failure is not None:
            raise ValueError('xformers could not load its compiled library: %s (%s)' % (failure, failure.__cause__))

    def _packs(self):
        """Check the CPU operator that packs a mask. In the mask, two of each four values are set; 16 values become 16 bits."""
        generator = np.random.RandomState(0)
        chosen = np.array([sorted(generator.permutation(4)[:2]) for _ in range(SIZE * SIZE // 4)])
        mask = np.zeros((len(chosen), 4), bool)
        mask[np.arange(len(chosen))[:, None], chosen] = True
        got = self.torch.ops.xformers._sparse24_pack_mask(self.torch.from_numpy(mask.reshape(SIZE, SIZE))).numpy()
        fours = (chosen[:, 0] + 4 * chosen[:, 1]).reshape(SIZE, SIZE // 16, 4)
        wanted = (fours << np.array([0, 4, 8, 12])).sum(2).astype('uint16')
        if not np.array_equal(got.view('uint16'), wanted):
            raise ValueError('xformers packs a mask into other bits than it must')

    def _attends(self):
        """Compare attention with NumPy. Half precision has 11 bits, so the results differ by some thousandths."""
        generator = np.random.RandomState(1)
        query, key, value = (generator.standard_normal((1, SIZE, 2, SIZE)).astype('float16') for _ in range(3))
        got = self.xformers.ops.memory_efficient_attention(
            *[self.torch.from_numpy(each).to(self.device) for each in (query, key, value)]).cpu().numpy()
        scores = np.einsum('bqhd,bkhd->bhqk', query.astype('float64'), key.astype('float64')) / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = np.einsum('bhqk,bkhd->bqhd', weights / weights.sum(-1, keepdims=True), value.astype('float64'))
        apart = np.abs(got.astype('float64') - wanted).max()
        if not apart < 1e-2:
            raise ValueError('memory_efficient_attention is %.3g away from NumPy' % apart)

    def versions(self):
        return dict(super(Adapter, self).versions(), name='xformers', version=self.xformers.__version__)
