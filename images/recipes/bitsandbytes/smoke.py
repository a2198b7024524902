"""bitsandbytes for the smoke test: it quantizes on this PyTorch by its compiled library, then trains like the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.8+.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from . import pytorch

BLOCK = 256


class Adapter(pytorch.Adapter):
    name = 'bitsandbytes'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import bitsandbytes
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.bitsandbytes = bitsandbytes
        library = self._library()
        self._quantizes()
        self.semantics['operators'] = 'quantize_blockwise and dequantize_blockwise of %s' % library

    def _library(self):
        """Return the name of the compiled library that was loaded; bitsandbytes itself reports a failure only at the first call."""
        from bitsandbytes import cextension
        loaded = getattr(cextension.lib, '_lib', None)
        function = 'cquantize_blockwise_fp32' if self.on_gpu else 'cquantize_blockwise_cpu_fp32'
        if type(cextension.lib).__name__.startswith('ErrorHandler') or loaded is None or not hasattr(loaded, function):
            reason = getattr(cextension.lib, 'error_msg', '') or 'it has no function %s' % function
            raise ValueError('bitsandbytes could not load its compiled library: %s' % reason)
        return os.path.basename(loaded._name)

    def _quantizes(self):
        """Check that each number is rounded to the nearest value of the 8-bit code.

        The code is scaled by the largest absolute number of each block.
        """
        functional = self.bitsandbytes.functional
        numbers = np.random.RandomState(0).standard_normal(4 * BLOCK).astype('float32')
        code = functional.create_dynamic_map().to(self.device)
        small, state = functional.quantize_blockwise(
            self.torch.from_numpy(numbers).to(self.device), code=code, blocksize=BLOCK)
        got = functional.dequantize_blockwise(small, state).cpu().numpy().astype('float64')
        if str(small.dtype) != 'torch.uint8':
            raise ValueError('bitsandbytes quantizes to %s, not to 8 bits' % small.dtype)
        blocks = numbers.astype('float64').reshape(-1, BLOCK)
        values = code.cpu().numpy().astype('float64')[None, None] * np.abs(blocks).max(1)[:, None, None]
        nearest = np.abs(values - blocks[:, :, None]).min(2)
        apart = np.abs(got.reshape(blocks.shape) - blocks) - nearest
        if not np.abs(apart).max() < 1e-5:
            raise ValueError('a number that bitsandbytes quantized is %.3g further from the original than the nearest value of '
                             'its code' % np.abs(apart).max())

    def versions(self):
        return dict(super(Adapter, self).versions(), name='bitsandbytes', version=self.bitsandbytes.__version__)
