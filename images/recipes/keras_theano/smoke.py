"""Keras on Theano for the smoke test: one device.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..networks import nets
from . import keras
from .theano import built_with, tell_of_compilers


class Adapter(keras.Compiled):
    name = 'keras_theano'
    style = 'single'
    turns_kernels = True
    semantics = {'gradient': 'mean over the batch', 'exchange': 'none: one device',
                 'corrected': 'kernels are turned by 180 degrees, as Theano\'s convolution wants them'}

    @staticmethod
    def limits(options):
        return {'devices': 'Keras trains on several devices with TensorFlow only, and Theano on one'}

    def setup(self, ctx):
        os.environ['KERAS_BACKEND'] = 'theano'
        where = 'cuda%d' % ctx.devices[0] if ctx.kind == 'cuda' else 'cpu'
        flags = ['floatX=float32', 'device=' + where, os.environ.get('THEANO_FLAGS')]
        os.environ['THEANO_FLAGS'] = ','.join(filter(None, flags))
        import keras as framework
        import theano
        self.keras, self.theano, self.ctx = framework, theano, ctx

    def prepare(self, beat):
        """Compile the C++ code of the networks. Theano keeps the result on disk, where later handles find it."""
        tell_of_compilers(self.theano, beat)
        for net in (nets.REFERENCE, nets.LENET):
            handle = self.make(net, net.initial(0), 0.0, 0.9, [0], 'mean')
            images = np.zeros((64,) + net.shape, 'uint8')
            self.step(handle, self.put(handle, images, np.zeros(64, 'int64')), 0.0)
            self.predict(handle, images)

    def versions(self):
        return {'name': 'keras', 'version': self.keras.__version__, 'cuda_build': built_with(), 'cudnn': None, 'nccl': None,
                'arch_list': []}

    def model(self, network, replicas, compiled):
        made = network()
        return {'network': made, 'run': compiled(made)}

    def places(self, handle):
        return {'parameters': [self.theano.config.device], 'compute': [self.theano.config.device]}
