"""Skeleton for the smoke test: one process per device, gradients averaged by the smoke test itself.

As it stands, this adapter trains with Autograd, a small framework that differentiates NumPy code. For another framework
replace the parts marked REPLACE. The contract is described in docs/reference/adapter.md.
"""
from __future__ import absolute_import, division, print_function

import importlib
import os

import numpy as np

from ..networks import refnet


class Adapter(object):
    name = 'skeleton'
    style = 'process'
    semantics = {'gradient': 'mean', 'exchange': 'the ring of the smoke test'}
    without = dict((net, 'this adapter builds no batch normalisation') for net in ('resnet20', 'vgg19_bn'))

    def setup(self, ctx):
        import autograd                                     # REPLACE: import your framework here, never at the top
        import autograd.numpy
        self.ctx, self.framework, self.numpy = ctx, autograd, autograd.numpy

    def versions(self):
        metadata = importlib.import_module('importlib.metadata')    # REPLACE, most often by yourframework.__version__
        return {'name': self.name, 'version': metadata.version('autograd'), 'cuda_build': None, 'cudnn': None, 'nccl': None,
                'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        """REPLACE: build the network and the optimizer of your framework, with these weights."""
        handle = {'net': net, 'momentum': momentum, 'sync': sync,
                  'weights': dict((name, weights[name].astype('float32')) for name in net.names),
                  'speed': dict((name, np.zeros_like(weights[name], 'float32')) for name in net.names)}
        handle['loss and gradient'] = self.framework.value_and_grad(lambda p, x, y: self._loss(net, p, x, y))
        return handle

    def put(self, handle, images, labels):
        """Keep this rank's part of the global batch."""
        if handle['sync'] == 'mean':
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return refnet.scaled(images, 'float32'), labels

    def step(self, handle, batch, lr):
        """REPLACE: forward, backward, average the gradients over all ranks, update."""
        loss, gradient = handle['loss and gradient'](handle['weights'], batch[0], batch[1])
        gradients = [gradient[name].astype('float32') for name in handle['net'].names]
        if handle['sync'] == 'mean':
            gradients = self.ctx.group.means(gradients)
        for name, mean in zip(handle['net'].names, gradients):
            handle['speed'][name] = np.float32(handle['momentum']) * handle['speed'][name] + mean
            handle['weights'][name] = handle['weights'][name] - np.float32(lr) * handle['speed'][name]
        return loss

    def _loss(self, net, p, x, y):
        """Return the mean cross-entropy of the logits."""
        logits = self._logits(net, p, x)
        shifted = logits - self.numpy.max(logits, axis=1, keepdims=True)
        log_p = shifted - self.numpy.log(self.numpy.sum(self.numpy.exp(shifted), axis=1, keepdims=True))
        return -self.numpy.mean(log_p[np.arange(len(y)), y])

    def _logits(self, net, p, x):
        """REPLACE: one layer of your framework for each layer of the network; each reads the one before it."""
        for layer in net.layers:
            if layer.op == 'conv':
                x = self._convolve(x, p[layer.name + '_w']) + p[layer.name + '_b'].reshape((1, -1, 1, 1))
            elif layer.op == 'dense':
                x = self.numpy.dot(x, p[layer.name + '_w'].T) + p[layer.name + '_b']
            elif layer.op == 'flatten':
                x = x.reshape((len(x), -1))
            elif layer.op in ('pool', 'average'):
                squares = x.reshape((x.shape[0], x.shape[1], x.shape[2] // 2, 2, x.shape[3] // 2, 2))
                x = (self.numpy.max if layer.op == 'pool' else self.numpy.mean)(squares, axis=(3, 5))
            else:
                x = {'relu': lambda values: self.numpy.maximum(values, 0), 'tanh': self.numpy.tanh}[layer.op](x)
        return x

    def _convolve(self, x, kernels):
        """Convolve without stride or padding; images are NCHW, kernels OIHW."""
        size = kernels.shape[2]
        rows, columns = x.shape[2] - size + 1, x.shape[3] - size + 1
        patches = self.numpy.concatenate([x[:, :, i:i + rows, j:j + columns] for i in range(size) for j in range(size)], axis=1)
        flat = self.numpy.transpose(kernels, (2, 3, 1, 0)).reshape((-1, kernels.shape[0]))
        answer = self.numpy.dot(self.numpy.transpose(patches, (0, 2, 3, 1)).reshape((-1, flat.shape[0])), flat)
        return self.numpy.transpose(answer.reshape((len(x), rows, columns, -1)), (0, 3, 1, 2))

    def loss(self, token):
        return float(token)

    def drain(self):
        """REPLACE if steps return before they have finished: wait for the device."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return handle['weights']

    def assign(self, handle, copy, weights):
        for name, value in weights.items():
            handle['weights'][name] = np.array(value, 'float32')

    def predict(self, handle, images):
        return np.asarray(self._logits(handle['net'], handle['weights'], refnet.scaled(images, 'float32')))

    def save(self, handle, folder):
        """REPLACE: use the format of your framework."""
        np.savez(os.path.join(folder, 'model.npz'), **handle['weights'])

    def restore(self, handle, folder):
        with np.load(os.path.join(folder, 'model.npz')) as stored:
            self.assign(handle, 0, dict((name, stored[name]) for name in stored.files))

    def evidence(self, handle):
        """REPLACE: ask the framework where the parameters are and where it computes."""
        return {'parameters': ['cpu'], 'compute': ['cpu'], 'memory_bytes': None}

    # REPLACE: if your framework has collectives of its own, add collective(op, array, root), so that they are checked.

    def close(self):
        pass
