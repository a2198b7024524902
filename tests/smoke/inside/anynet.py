"""A NumPy adapter for any network, so that the workload cifar runs without a framework. Runs inside the guest.

A small network with the same kinds of layers replaces resnet20, for which NumPy takes minutes. `--option fault=NAME` plants a
fault into saving.
"""
from __future__ import absolute_import, division, print_function

import os
import sys

import numpy as np

from ..networks import nets
from .numpy_ import Adapter as Healthy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def _small():
    net = nets.Net('resnet20', (3, 32, 32), 'cifar')
    net.conv('conv0', 8, 3, 2, 1, False)
    net.norm('norm0')
    last = net.relu('relu0')
    net.conv('conv1', 16, 3, 2, 1, False)
    long_way = net.norm('norm1')
    net.conv('short', 16, 1, 2, 0, False, (last,))
    net.add('add', long_way, net.norm('norm2'))
    net.relu('relu1')
    net.pool('pool')
    net.flatten('flat')
    net.dense('fc', nets.CLASSES)
    return net


nets._MAKERS['resnet20'] = _small


class Adapter(Healthy):
    name = 'anynet'
    without = {'vgg19_bn': 'NumPy would take hours'}

    def make(self, net, weights, lr, momentum, replicas, sync):
        from reference_nets import Reference
        return {'model': Reference(net, weights), 'names': net.names, 'sync': sync, 'momentum': momentum}

    def scale(self, images):
        return np.asarray(images)

    def step(self, handle, batch, lr):
        model = handle['model']
        loss, gradient = model.loss_and_gradient(*batch)
        if handle['sync'] == 'mean' and self.ctx.world > 1:
            flat = np.concatenate([gradient[name].reshape(-1) for name in handle['names']]).astype('float32')
            flat, at = self.average(flat), 0
            for name in handle['names']:
                gradient[name] = flat[at:at + gradient[name].size].reshape(gradient[name].shape)
                at += gradient[name].size
        for name in handle['names']:
            model.v[name] = handle['momentum'] * model.v[name] + gradient[name]
            model.p[name] = model.p[name] - lr * model.v[name]
        return loss

    def weights(self, handle, copy):
        return dict((name, array.astype('float32')) for name, array in handle['model'].p.items())

    def assign(self, handle, copy, weights):
        handle['model'].p = dict((name, np.array(array, 'float64')) for name, array in weights.items())

    def predict(self, handle, images):
        return handle['model'].logits(images)

    def save(self, handle, folder):
        fault, model = self.ctx.options.get('fault', ''), handle['model']
        kept = dict(model.p)
        if fault != 'save-loses-running-means':
            kept.update(('running-' + name, array) for name, array in model.running.items())
        if fault == 'save-loses-one':
            kept.pop('norm1_b')
        if fault == 'save-rounds':
            kept = dict((name, array.astype('float16')) for name, array in kept.items())
        np.savez(os.path.join(folder, 'model.npz'), **kept)

    def restore(self, handle, folder):
        if self.ctx.options.get('fault') == 'restore-nothing':
            return
        with np.load(os.path.join(folder, 'model.npz')) as stored:
            for name in stored.files:
                into, key = (handle['model'].running, name[8:]) if name.startswith('running-') else (handle['model'].p, name)
                into[key] = stored[name].astype('float64')
