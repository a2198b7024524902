"""Lasagne for the smoke test. It runs on Theano, whose adapter does everything except building the network.

The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..networks import nets
from . import theano

FILE = 'network.npz'


class Adapter(theano.Adapter):
    name = 'lasagne'
    semantics = dict(theano.Adapter.semantics, corrected='kernels are turned by 180 degrees, as Lasagne wants them (flip_filters)')

    def setup(self, ctx):
        theano.Adapter.setup(self, ctx)
        import lasagne
        self.lasagne = lasagne

    def versions(self):
        return dict(theano.Adapter.versions(self), name='lasagne', version=self.lasagne.__version__)

    def program(self, net):
        return theano.Program(self.theano, net, Layers(self.lasagne, net))

    def save(self, handle, folder):
        """Save as Lasagne's documentation recommends: https://lasagne.readthedocs.io/en/latest/modules/layers/helper.html"""
        np.savez(os.path.join(folder, FILE), *self.lasagne.layers.get_all_param_values(handle.loaded().layers.top))

    def restore(self, handle, folder):
        with np.load(os.path.join(folder, FILE)) as stored:
            values = [stored['arr_%d' % number] for number in range(len(stored.files))]
        self.lasagne.layers.set_all_param_values(handle.loaded().layers.top, values)


class Layers(object):
    """Like theano.Layers, built from Lasagne's layers. Their normalisation averages 1 / sqrt(variance), not the variance."""

    def __init__(self, lasagne, net):
        self.lasagne, self.start, built = lasagne, net.initial(0), {}
        built['images'] = lasagne.layers.InputLayer((None,) + tuple(net.shape))
        for layer in net.layers:
            built[layer.name] = getattr(self, '_' + layer.op)(layer, *[built[name] for name in layer.of])
        self.top = built[net.layers[-1].name]
        self.trained, self.running = {}, []
        for layer in net.layers:
            own = built[layer.name]
            if layer.op == 'norm':
                self.trained[layer.name + '_w'], self.trained[layer.name + '_b'] = own.gamma, own.beta
                self.running += [own.mean, own.inv_std]
            elif layer.op in ('conv', 'dense'):
                self.trained[layer.name + '_w'], self.trained[layer.name + '_b'] = own.W, own.b

    @staticmethod
    def own(name, array):
        """Return an array in Lasagne's layout: kernels rotated by 180 degrees, dense weights (in, out)."""
        return np.ascontiguousarray(array[:, :, ::-1, ::-1] if array.ndim == 4 else array.T)

    canonical = own

    def outputs(self, images, training):
        """Return (logits, []): Lasagne attaches the updates of running means and variances to these variables."""
        return self.lasagne.layers.get_output(self.top, images, deterministic=not training), []

    def updates(self, parameters, gradients, rate, momentum):
        return list(self.lasagne.updates.momentum(gradients, parameters, rate, momentum).items())

    def _conv(self, layer, below):
        # Pass b=None for a layer without a bias. Otherwise Lasagne would add a bias and train it.
        return self.lasagne.layers.Conv2DLayer(
            below, layer.shape[0], layer.kernel, layer.stride, layer.pad, W=self.start[layer.name + '_w'],
            b=self.start.get(layer.name + '_b'), nonlinearity=None)

    def _norm(self, layer, below):
        return self.lasagne.layers.BatchNormLayer(below, epsilon=nets.EPSILON, alpha=1 - nets.KEPT)

    def _relu(self, layer, below):
        return self.lasagne.layers.NonlinearityLayer(below, self.lasagne.nonlinearities.rectify)

    def _tanh(self, layer, below):
        return self.lasagne.layers.NonlinearityLayer(below, self.lasagne.nonlinearities.tanh)

    def _pool(self, layer, below):
        return self.lasagne.layers.MaxPool2DLayer(below, 2)

    def _average(self, layer, below):
        return self.lasagne.layers.Pool2DLayer(below, 2, mode='average_exc_pad')

    def _mean(self, layer, below):
        return self.lasagne.layers.GlobalPoolLayer(below)

    def _flatten(self, layer, below):
        return self.lasagne.layers.FlattenLayer(below)

    def _dense(self, layer, below):
        weights, bias = (self.start[layer.name + end] for end in ('_w', '_b'))
        return self.lasagne.layers.DenseLayer(below, layer.shape[0], W=weights.T, b=bias, nonlinearity=None)

    def _add(self, layer, first, second):
        return self.lasagne.layers.ElemwiseSumLayer([first, second])
