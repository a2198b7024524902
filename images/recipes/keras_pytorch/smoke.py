"""Keras 3 on PyTorch for the smoke test: Keras' own training on one device.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.9+, like Keras 3.
"""
from __future__ import absolute_import, division, print_function

import os

from . import keras_jax


class Adapter(keras_jax.OneDevice):
    name = 'keras_pytorch'

    def setup(self, ctx):
        os.environ['KERAS_BACKEND'] = 'torch'
        if ctx.kind == 'cpu':
            os.environ['KERAS_TORCH_DEVICE'] = 'cpu'
        import torch
        if ctx.kind == 'cuda':
            torch.cuda.set_device(ctx.devices[0])
            if not ctx.plain:
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        else:
            torch.set_num_threads(ctx.threads)
        import keras as framework
        self.keras, self.torch, self.ctx = framework, torch, ctx

    def cuda_of_the_backend(self):
        return self.torch.version.cuda

    def places(self, handle):
        places = sorted(set(str(variable.value.device) for variable in self._parameters(handle, 0)))
        return {'parameters': places, 'compute': places}
