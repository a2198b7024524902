"""NumPy as a framework: one process per replica; the guest's own TCP ring averages the gradients.

This adapter tests the smoke test itself, without any framework. Each part of a step is a method of its own, so that tests can
break one part at a time.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..networks import refnet


class Adapter(object):
    shares_gpus = True      # because it uses no GPU
    name = 'numpy'
    style = 'process'
    semantics = {'gradient': 'mean', 'exchange': 'all gradients in one buffer, averaged over a ring of TCP connections'}
    without = dict((name, 'the NumPy network has no batch normalisation') for name in ('resnet20', 'vgg19_bn'))

    def setup(self, ctx):
        self.ctx = ctx

    def versions(self):
        return {'name': 'numpy', 'version': np.__version__, 'cuda_build': None, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        return {
            'net': net, 'p': dict((name, weights[name].astype('float32')) for name in net.names),
            'v': dict((name, np.zeros_like(weights[name], dtype='float32')) for name in net.names),
            'momentum': momentum, 'sync': sync, 'steps': 0,
        }

    def put(self, handle, images, labels):
        if handle['sync'] == 'mean':
            place = self.place()
            images = self.ctx.shard(images, place, self.ctx.world)
            labels = self.ctx.shard(labels, place, self.ctx.world)
        return self.scale(images), labels

    def place(self):
        return self.ctx.rank

    def scale(self, images):
        return refnet.scaled(images, 'float32')

    def step(self, handle, batch, lr):
        loss, gradient = refnet.loss_and_gradient(handle['net'], handle['p'], batch[0], batch[1])
        if handle['sync'] == 'mean' and self.ctx.world > 1:
            gradient = self.exchange(gradient)
        self.update(handle, gradient, lr)
        handle['steps'] += 1
        return loss

    def exchange(self, gradient):
        names = sorted(gradient)
        flat = np.concatenate([gradient[name].reshape(-1) for name in names])
        flat = self.average(flat.astype('float32'))
        out, at = {}, 0
        for name in names:
            size = gradient[name].size
            out[name] = flat[at:at + size].reshape(gradient[name].shape)
            at += size
        return out

    def average(self, flat):
        return self.ctx.group.allreduce(flat) / np.float32(self.ctx.world)

    def update(self, handle, gradient, lr):
        refnet.update(handle['p'], handle['v'], gradient, np.float32(lr), np.float32(handle['momentum']))

    def loss(self, token):
        return float(token)

    def drain(self):
        pass

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return handle['p']

    def assign(self, handle, copy, weights):
        for name, value in weights.items():
            handle['p'][name] = np.array(value, 'float32')

    def save(self, handle, folder):
        np.savez(os.path.join(folder, 'model.npz'), **handle['p'])

    def restore(self, handle, folder):
        with np.load(os.path.join(folder, 'model.npz')) as stored:
            for name in stored.files:
                handle['p'][name] = stored[name]

    def predict(self, handle, images):
        return refnet.logits(handle['net'], handle['p'], self.scale(images))

    def evidence(self, handle):
        return {'parameters': ['cpu'], 'compute': ['cpu'], 'memory_bytes': None}

    def close(self):
        pass
