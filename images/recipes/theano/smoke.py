"""Theano for the smoke test: one device, one compiled function per step.

Theano has no exchange of gradients between devices, so nothing about data parallelism is tested or claimed.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import collections
import os

import numpy as np

from .. import refnet


class Adapter(object):
    name = 'theano'
    style = 'single'
    semantics = {'gradient': 'mean over the batch', 'exchange': 'none: one device',
                 'corrected': 'filter_flip=False: Theano turns kernels by default, as in mathematics'}

    @staticmethod
    def limits(options):
        return {'devices': 'Theano trains on one device and exchanges no gradients'}

    def setup(self, ctx):
        self.ctx = ctx
        self.where = 'cuda%d' % ctx.devices[0] if ctx.kind == 'cuda' else 'cpu'
        os.environ['THEANO_FLAGS'] = ','.join(filter(None, ['floatX=float32', 'device=' + self.where, os.environ.get('THEANO_FLAGS')]))
        import theano
        import theano.tensor
        self.theano, self.T = theano, theano.tensor
        self.loaded = None

    def prepare(self, beat):
        """Compile, which takes C++ compilers most of a minute, once for all handles: they differ in the values only."""
        tell_of_compilers(self.theano, beat)
        T, function = self.T, self.theano.function
        x, y = T.tensor4('x', dtype='float32'), T.lvector('y')
        rate, momentum = T.scalar('lr', dtype='float32'), T.scalar('momentum', dtype='float32')
        logits, parameters = self.network(x, [refnet.initial(0)[name] for name in refnet.NAMES])
        loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
        updates = list(self.updates(loss, parameters, rate, momentum).items())
        self.compiled = {'step': function([x, y, rate, momentum], loss, updates=updates), 'predict': function([x], logits)}
        self.shared = parameters + [variable for variable, _ in updates if variable not in parameters]

    def versions(self):
        return {'name': 'theano', 'version': self.theano.__version__, 'cuda_build': self._cuda(), 'cudnn': self._cudnn(), 'nccl': None,
                'arch_list': []}

    def _cuda(self):
        """libgpuarray loads whichever CUDA it finds when it starts; a driver is needed to ask."""
        try:
            import pygpu                # of libgpuarray, without which Theano has no GPU side
        except ImportError:
            return None
        return 'unknown' if pygpu else None

    def _cudnn(self):
        try:
            from theano.gpuarray import dnn
            return '%d.%d.%d' % tuple(dnn.version() // part % 10 for part in (1000, 100, 1)) if self.where != 'cpu' else None
        except (ImportError, RuntimeError):
            return None

    def make(self, net, weights, lr, momentum, replicas, sync):
        values = [np.zeros_like(variable.get_value()) for variable in self.shared]
        values[:len(refnet.NAMES)] = self.to_shared(weights)
        return {'values': values, 'momentum': np.float32(momentum)}

    def to_shared(self, weights):
        """The arrays of the parameters, in the order and layout of the network's shared variables."""
        return [np.asarray(weights[name], 'float32') for name in refnet.NAMES]

    def from_shared(self, values):
        """The reverse."""
        return dict(zip(refnet.NAMES, values))

    def load(self, handle):
        """Give the shared variables the handle's values, and those that they had back to the handle they belong to."""
        if self.loaded is handle:
            return
        if self.loaded is not None:
            self.loaded['values'] = [variable.get_value() for variable in self.shared]
        for variable, value in zip(self.shared, handle['values']):
            variable.set_value(value)
        self.loaded = handle

    def network(self, x, start):
        """(logits of the symbolic images, shared variables that hold these arrays)."""
        nnet, shared = self.T.nnet, [self.theano.shared(array) for array in start]
        for kernel, bias in (shared[0:2], shared[2:4]):
            x = nnet.relu(nnet.conv2d(x, kernel, filter_flip=False) + bias.dimshuffle('x', 0, 'x', 'x'))
            x = self._pool()(x, (2, 2), ignore_border=True)
        x = nnet.relu(self.T.dot(x.flatten(2), shared[4].T) + shared[5])
        return self.T.dot(x, shared[6].T) + shared[7], shared

    @staticmethod
    def _pool():
        try:
            from theano.tensor.signal.pool import pool_2d
        except ImportError:             # before 0.8
            from theano.tensor.signal.downsample import max_pool_2d as pool_2d
        return pool_2d

    def updates(self, loss, parameters, rate, momentum):
        """SGD with momentum: {shared variable: its next value}."""
        pairs = []
        for parameter, gradient in zip(parameters, self.T.grad(loss, parameters)):
            velocity = self.theano.shared(np.zeros_like(parameter.get_value()))
            moved = momentum * velocity + gradient
            pairs += [(velocity, moved), (parameter, parameter - rate * moved)]
        return collections.OrderedDict(pairs)

    def put(self, handle, images, labels):
        return refnet.scaled(images, 'float32'), np.asarray(labels, 'int64')

    def step(self, handle, batch, lr):
        self.load(handle)
        return self.compiled['step'](batch[0], batch[1], np.float32(lr), handle['momentum'])

    def loss(self, token):
        return float(np.asarray(token))

    def drain(self):
        if self.where != 'cpu':
            self.theano.shared(np.zeros(1, 'float32')).get_value()         # copies wait for the stream

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        self.load(handle)
        return self.from_shared([np.asarray(variable.get_value()) for variable in self.shared])

    def predict(self, handle, images):
        self.load(handle)
        return self.compiled['predict'](refnet.scaled(images, 'float32'))

    def evidence(self, handle):
        kinds = set(type(value).__name__ for value in self.shared)
        places = [self.where if self.where == 'cpu' or any('Gpu' in kind for kind in kinds) else 'cpu']
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        pass


def tell_of_compilers(theano, beat):
    """From now on every C++ file that Theano has compiled is news."""
    compiler = theano.gof.cmodule.GCC_compiler
    real = compiler.compile_str

    def compile_str(*arguments, **options):
        beat()
        return real(*arguments, **options)

    compiler.compile_str = staticmethod(compile_str)
