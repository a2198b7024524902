"""torchaudio for the smoke test: it transforms a sound with this PyTorch, then trains like the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import pytorch

RATE, PITCH, WINDOW = 8000, 1000, 256


class Adapter(pytorch.Adapter):
    name = 'torchaudio'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import torchaudio
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.torchaudio = torchaudio
        self._hears()
        self.semantics['operators'] = 'torchaudio.transforms.Spectrogram on %s' % self.device

    def _hears(self):
        """Check that the spectrogram of a pure tone is loudest at the tone's frequency."""
        tone = np.sin(2 * np.pi * PITCH * np.arange(RATE) / RATE).astype('float32')
        transform = self.torchaudio.transforms.Spectrogram(n_fft=WINDOW)
        transform = transform.to(self.device) if hasattr(transform, 'to') else transform
        loudest = int(transform(self.torch.from_numpy(tone[None]).to(self.device)).sum(-1).argmax())
        if loudest != PITCH * WINDOW // RATE:
            raise ValueError('torchaudio hears a tone of %d Hz at %d Hz' % (PITCH, loudest * RATE // WINDOW))

    def versions(self):
        return dict(super(Adapter, self).versions(), name='torchaudio', version=self.torchaudio.__version__)
