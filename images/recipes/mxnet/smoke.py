"""MXNet (Gluon) for the smoke test: all devices in one process, gradients exchanged through a key-value store.

Trainer.step divides by the global batch, which turns MXNet's sum of gradients into the mean. The engine is asynchronous:
only waitall() ends a measurement.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import re

import numpy as np

NAMES = ('conv1_w', 'conv1_b', 'conv2_w', 'conv2_b', 'fc1_w', 'fc1_b', 'fc2_w', 'fc2_b')


class Adapter(object):
    name = 'mxnet'
    style = 'single'

    def setup(self, ctx):
        # Read by the engine when the library loads: one worker per device, so that CPU "devices" do run side by side.
        os.environ.setdefault('MXNET_CPU_WORKER_NTHREADS', str(len(ctx.devices)))
        import mxnet
        self.ctx, self.mx = ctx, mxnet
        self.on_gpu = ctx.kind == 'cuda'
        self.places = [(mxnet.gpu if self.on_gpu else mxnet.cpu)(number) for number in ctx.devices]
        self.store = 'device' if self.on_gpu else 'local'
        self.semantics = {'gradient': 'sum, divided by the global batch in Trainer.step', 'kvstore': self.store}
        self.entropy = mxnet.gluon.loss.SoftmaxCrossEntropyLoss()

    def versions(self):
        return {'name': 'mxnet', 'version': self.mx.__version__, 'cuda_build': self._cuda(), 'cudnn': None, 'nccl': None, 'arch_list': []}

    def _cuda(self):
        """The library does not tell its CUDA release, only (from 1.5 on) whether it has any; the package's name does: mxnet-cu101."""
        try:
            if not self.mx.runtime.Features().is_enabled('CUDA'):
                return None
        except AttributeError:
            pass
        site = os.path.dirname(os.path.dirname(self.mx.__file__))
        found = [re.match(r'mxnet_cu(\d+)(\d)', entry) for entry in sorted(os.listdir(site))]
        return next(('%s.%s' % match.groups() for match in found if match), None)

    def make(self, net, weights, lr, momentum, replicas, sync):
        places = [self.places[replica] for replica in replicas]
        groups = [places] if sync == 'mean' else [[place] for place in places]
        return [self._model(weights, lr, momentum, group) for group in groups]

    def _model(self, weights, lr, momentum, places):
        """A network with a copy on each place and a trainer that averages over them."""
        nn = self.mx.gluon.nn
        layers = [nn.Conv2D(16, 5, activation='relu', in_channels=1), nn.Conv2D(32, 5, activation='relu', in_channels=16),
                  nn.Dense(128, activation='relu', in_units=512), nn.Dense(10, in_units=128)]
        net = nn.HybridSequential()
        for layer in (layers[0], nn.MaxPool2D(2, 2), layers[1], nn.MaxPool2D(2, 2), nn.Flatten(), layers[2], layers[3]):
            net.add(layer)
        net.initialize(ctx=places)
        parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
        for name, parameter in zip(NAMES, parameters):
            parameter.set_data(self.mx.nd.array(np.asarray(weights[name], 'float32')))
        net.hybridize()
        trainer = self.mx.gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': lr, 'momentum': momentum}, kvstore=self.store)
        return {'net': net, 'parameters': parameters, 'trainer': trainer, 'places': places}

    def put(self, handle, images, labels):
        """For each model of the handle its part of the batch, in one shard per place."""
        parts = sum(len(model['places']) for model in handle)
        out, number = [], 0
        for model in handle:
            shards = []
            for place in model['places']:
                x, y = (self.ctx.shard(array, number, parts) for array in (images, labels))
                shards.append((self._images(x, place), self.mx.nd.array(y.astype('float32'), ctx=place)))
                number += 1
            out.append((shards, len(images) // parts * len(shards)))
        return out

    def _images(self, images, place):
        return self.mx.nd.array(images.astype('float32') / np.float32(255), ctx=place)

    def step(self, handle, batch, lr):
        tokens = []
        for model, (shards, size) in zip(handle, batch):
            model['trainer'].set_learning_rate(lr)
            with self.mx.autograd.record():
                losses = [self.entropy(model['net'](x), y) for x, y in shards]
            for loss in losses:
                loss.backward()
            model['trainer'].step(size)
            tokens += losses
        return tokens

    def loss(self, token):
        return float(np.mean([loss.asnumpy().mean() for loss in token]))

    def drain(self):
        self.mx.nd.waitall()

    def copies(self, handle):
        return sum(len(model['places']) for model in handle)

    def weights(self, handle, copy):
        model, place = [(model, place) for model in handle for place in model['places']][copy]
        return dict((name, parameter.data(place).asnumpy()) for name, parameter in zip(NAMES, model['parameters']))

    def predict(self, handle, images):
        return handle[0]['net'](self._images(images, handle[0]['places'][0])).asnumpy()

    def evidence(self, handle):
        places = sorted(set(str(data.context) for model in handle for p in model['parameters'] for data in p.list_data()))
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        self.drain()
