"""Lasagne for the smoke test, on Theano: one device.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from . import theano


class Adapter(theano.Adapter):
    name = 'lasagne'
    semantics = dict(theano.Adapter.semantics, corrected='kernels are turned by 180 degrees, as Lasagne wants them (flip_filters)')

    def setup(self, ctx):
        theano.Adapter.setup(self, ctx)
        import lasagne
        self.lasagne = lasagne

    def versions(self):
        return dict(theano.Adapter.versions(self), name='lasagne', version=self.lasagne.__version__)

    def network(self, x, start):
        layers = self.lasagne.layers
        top = layers.InputLayer((None, 1, 28, 28), x)
        for kernel, bias in (start[0:2], start[2:4]):
            top = layers.Conv2DLayer(top, len(bias), 5, W=kernel, b=bias)
            top = layers.MaxPool2DLayer(top, 2)
        top = layers.DenseLayer(top, len(start[5]), W=start[4].T, b=start[5])
        top = layers.DenseLayer(top, len(start[7]), W=start[6].T, b=start[7], nonlinearity=None)
        return layers.get_output(top), layers.get_all_params(top, trainable=True)

    def updates(self, loss, parameters, rate, momentum):
        return self.lasagne.updates.momentum(loss, parameters, rate, momentum)

    def to_shared(self, weights):
        return [_turned(array) for array in theano.Adapter.to_shared(self, weights)]

    def from_shared(self, values):
        return dict((name, _turned(array)) for name, array in theano.Adapter.from_shared(self, values).items())


def _turned(array):
    """To Lasagne's layout and back: kernels by 180 degrees, dense weights (in, out)."""
    return array[:, :, ::-1, ::-1] if array.ndim == 4 else array.T
