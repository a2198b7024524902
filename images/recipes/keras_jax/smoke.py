"""Keras 3 on JAX for the smoke test: Keras' own training on one device.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.9+, like Keras 3.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..networks.layouts import from_hwio, to_hwio
from . import jax as on_jax, keras


class OneDevice(keras.Compiled):
    """Keras 3 on a backend other than TensorFlow, trained by `train_on_batch` on one device."""

    style = 'single'
    semantics = {'gradient': 'mean over the batch', 'exchange': 'none: one device'}

    @staticmethod
    def limits(options):
        return {'devices': 'the smoke test drives Keras on this backend on one device'}

    def versions(self):
        return {'name': 'keras', 'version': self.keras.__version__, 'cuda_build': self.cuda_of_the_backend(), 'cudnn': None, 'nccl': None,
                'arch_list': []}

    def _compile(self, lr, momentum):
        def compiled(model):
            model.compile(self.keras.optimizers.SGD(learning_rate=lr, momentum=momentum),
                          self.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            return model
        return compiled

    def model(self, network, replicas, compiled):
        made = network()
        return {'network': made, 'run': compiled(made)}

    def step(self, handle, batch, lr):
        (model,), (images, labels) = handle['models'], batch[0]
        if model.get('lr') != lr:
            model['run'].optimizer.learning_rate = lr
            model['lr'] = lr
        model['run'].reset_metrics()    # otherwise train_on_batch returns the mean over all batches so far
        return model['run'].train_on_batch(images, labels)

    def weights(self, handle, copy):
        values = [self.keras.ops.convert_to_numpy(variable) for variable in self._parameters(handle, copy)]
        return from_hwio([np.array(value) for value in values], handle['net'])

    def assign(self, handle, copy, weights):
        for variable, value in zip(self._parameters(handle, copy), to_hwio(weights, handle['net'])):
            variable.assign(value)


class Adapter(OneDevice):
    name = 'keras_jax'

    def setup(self, ctx):
        os.environ['KERAS_BACKEND'] = 'jax'
        os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
        if ctx.kind == 'cpu':
            os.environ['JAX_PLATFORMS'] = 'cpu'
        import jax
        import keras as framework
        if not ctx.plain:
            jax.config.update('jax_default_matmul_precision', 'highest')
        self.keras, self.jax, self.ctx = framework, jax, ctx
        jax.config.update('jax_default_device', jax.local_devices()[ctx.devices[0] if ctx.kind == 'cuda' else 0])

    def cuda_of_the_backend(self):
        """Return the CUDA version with which the backend was built, even on a machine without a GPU; None for a CPU build."""
        return on_jax.built_with()[0]

    def places(self, handle):
        places = sorted(set(str(place) for variable in self._parameters(handle, 0) for place in variable.value.devices()))
        return {'parameters': places, 'compute': places}
