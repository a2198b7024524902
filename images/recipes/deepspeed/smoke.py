"""DeepSpeed for the smoke test: it trains like the PyTorch adapter. On the CPU, it also compiles DeepSpeed's Adam and runs it.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.8+.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from . import pytorch

RATE, BETAS, EPSILON = 0.1, (0.9, 0.999), 1e-8


class Adapter(pytorch.Adapter):
    name = 'deepspeed'

    def setup(self, ctx):
        super(Adapter, self).setup(ctx)
        import deepspeed
        self.semantics['upon'] = 'torch %s' % self.torch.__version__
        self.deepspeed = deepspeed
        self.semantics['operators'] = (
            'not checked: to compile them for GPUs, DeepSpeed needs nvcc, which the image does not have' if self.on_gpu else
            'cpu_adam, compiled by the check COMPILE; the others are not checked')

    def compile_and_run(self):
        """Compile PyTorch's small function, and on the CPU also DeepSpeed's Adam."""
        found = super(Adapter, self).compile_and_run()
        return found if self.on_gpu else found + [self._adam()]

    def _adam(self):
        os.environ['TORCH_EXTENSIONS_DIR'] = os.path.join(self.ctx.folder, 'extensions')
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        generator = np.random.RandomState(0)
        start = generator.standard_normal(1000).astype('float32')
        gradients = [generator.standard_normal(1000).astype('float32') for _ in range(3)]
        parameter = self.torch.nn.Parameter(self.torch.from_numpy(start.copy()))
        optimizer = DeepSpeedCPUAdam([parameter], lr=RATE, betas=BETAS, eps=EPSILON, adamw_mode=False)
        for gradient in gradients:
            parameter.grad = self.torch.from_numpy(gradient.copy())
            optimizer.step()
        apart = float(np.abs(parameter.detach().numpy() - adam(start, gradients)).max())
        return {'what': "DeepSpeed's Adam for the CPU", 'right': apart < 1e-4, 'detail': '%.1g from NumPy after 3 steps' % apart}

    def versions(self):
        return dict(super(Adapter, self).versions(), name='deepspeed', version=self.deepspeed.__version__)


def adam(parameter, gradients):
    """Return the parameter after one step of Adam with each gradient, in float64."""
    parameter, mean, square = parameter.astype('float64'), 0., 0.
    for step, gradient in enumerate(gradients, 1):
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient.astype('float64')
        square = BETAS[1] * square + (1 - BETAS[1]) * gradient.astype('float64') ** 2
        scaled = np.sqrt(square / (1 - BETAS[1] ** step)) + EPSILON
        parameter = parameter - RATE * mean / (1 - BETAS[0] ** step) / scaled
    return parameter
