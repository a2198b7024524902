"""torchvision for the smoke test: it runs a compiled operator on this PyTorch, then trains like the PyTorch adapter.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from . import pytorch


class Adapter(pytorch.Adapter):
    name = 'torchvision'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import torchvision
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.torchvision = torchvision
        self.semantics['operators'] = 'torchvision.ops.nms on %s' % self.device if self._suppresses() else 'none in this release'

    def _suppresses(self):
        """Check that of two overlapping boxes the better one stays; return False if the release has no operators (before 0.3)."""
        if not hasattr(self.torchvision, 'ops'):
            return False
        boxes = self.torch.tensor([[0., 0., 10., 10.], [1., 1., 10., 10.], [20., 20., 30., 30.]], device=self.device)
        scores = self.torch.tensor([0.5, 0.9, 0.1], device=self.device)
        kept = [int(place) for place in self.torchvision.ops.nms(boxes, scores, 0.5)]
        if kept != [1, 2]:
            raise ValueError('torchvision.ops.nms keeps the boxes %s where it must keep 1 and 2' % kept)
        return True

    def versions(self):
        return dict(super(Adapter, self).versions(), name='torchvision', version=self.torchvision.__version__)
