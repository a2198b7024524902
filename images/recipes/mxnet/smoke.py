"""MXNet (Gluon, from 1.0 on) for the smoke test: all devices in one process, gradients exchanged through a key-value store.

Trainer.step divides by the global batch, which turns MXNet's sum of gradients into the mean. The engine is asynchronous:
a measurement must end with waitall(). The store is `device` on GPUs and `local` on the CPU, or as in `--option kvstore=nccl`.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import sys

import numpy as np

from ..networks import nets

FILE = 'network.params'


class Adapter(object):
    name = 'mxnet'
    style = 'single'
    chosen = None               # the value of the layer option that chooses cuDNN's algorithms

    def setup(self, ctx):
        self.on_gpu = ctx.kind == 'cuda'
        # MXNet's execution engine reads this variable when MXNet's library is loaded. With one worker per device, CPU
        # "devices" run in parallel.
        os.environ.setdefault('MXNET_CPU_WORKER_NTHREADS', str(len(ctx.devices)))
        if not self.on_gpu and _races_on_cpus():
            os.environ.setdefault('MXNET_ENGINE_TYPE', 'NaiveEngine')
        import mxnet
        self.ctx, self.mx = ctx, mxnet
        self.places = [(mxnet.gpu if self.on_gpu else mxnet.cpu)(number) for number in ctx.devices]
        self.store = ctx.options.get('kvstore') or ('device' if self.on_gpu else 'local')
        self.semantics = {'gradient': 'sum, divided by the global batch in Trainer.step', 'kvstore': self.store}
        self.entropy = mxnet.gluon.loss.SoftmaxCrossEntropyLoss()
        self.network = _network_class(mxnet)

    def versions(self):
        return {'name': 'mxnet', 'version': self.mx.__version__, 'cuda_build': self._cuda(), 'cudnn': None, 'nccl': None, 'arch_list': []}

    def _cuda(self):
        """Return the CUDA release in the package's name (mxnet-cu101). The library reports (from 1.5) only whether it has CUDA."""
        try:
            if not self.mx.runtime.Features().is_enabled('CUDA'):
                return None
        except AttributeError:
            pass
        site = os.path.dirname(os.path.dirname(self.mx.__file__))
        found = [re.match(r'mxnet_cu(\d+)(\d)', entry) for entry in sorted(os.listdir(site))]
        return next(('%s.%s' % match.groups() for match in found if match), None)

    def exact(self, wanted):
        """Switch cuDNN's autotuning off by an option of each layer.

        MXNET_CUDNN_AUTOTUNE_DEFAULT could not be switched back: MXNet caches its effect for all layers with the same shapes.
        """
        self.chosen = 'off' if wanted else None

    def make(self, net, weights, lr, momentum, replicas, sync):
        places = [self.places[replica] for replica in replicas]
        groups = [places] if sync == 'mean' else [[place] for place in places]
        return [_Model(self, net, weights, lr, momentum, group) for group in groups]

    def put(self, handle, images, labels):
        """Give each model of the handle its part of the batch, in one shard per device."""
        parts = self.copies(handle)
        out, number = [], 0
        for model in handle:
            shards = []
            for place in model.places:
                x, y = (self.ctx.shard(array, number, parts) for array in (images, labels))
                shards.append((self._images(x, place), self.mx.nd.array(y.astype('float32'), ctx=place)))
                number += 1
            out.append((shards, len(images) // parts * len(shards)))
        return out

    def _images(self, images, place):
        return self.mx.nd.array(images.astype('float32') / np.float32(255), ctx=place)

    def step(self, handle, batch, lr):
        return [loss for model, (shards, size) in zip(handle, batch) for loss in model.step(shards, size, lr)]

    def loss(self, token):
        return float(np.mean([loss.asnumpy().mean() for loss in token]))

    def drain(self):
        self.mx.nd.waitall()

    def copies(self, handle):
        return sum(len(model.places) for model in handle)

    @staticmethod
    def _copy(handle, copy):
        """Return the model and the MXNet device (`place`) that hold copy number `copy` of the parameters."""
        return [(model, place) for model in handle for place in model.places][copy]

    def weights(self, handle, copy):
        model, place = self._copy(handle, copy)
        return dict((name, model.net.parameter(name).data(place).asnumpy()) for name in model.net.plan.names)

    def assign(self, handle, copy, weights):
        model, place = self._copy(handle, copy)
        model.give(dict((name, weights[name]) for name in model.net.plan.names), [place])

    def predict(self, handle, images):
        model = handle[0]
        return model.net(self._images(images, model.places[0])).asnumpy()

    def save(self, handle, folder):
        """Save in MXNet's format, but not by save_parameters, which averages over all devices, even running means and variances:
        https://github.com/apache/mxnet/blob/1.9.1/python/mxnet/gluon/parameter.py#L346
        """
        model = handle[0]
        self.mx.nd.save(os.path.join(folder, FILE), dict((name, data.data(model.places[0])) for name, data in model.net.everything()))

    def restore(self, handle, folder):
        arrays = self.mx.nd.load(os.path.join(folder, FILE))
        for model in handle:
            model.give(dict((name, array.asnumpy()) for name, array in arrays.items()), model.places)

    def evidence(self, handle):
        arrays = [array for model in handle for _, parameter in model.net.everything() for array in parameter.list_data()]
        places = sorted(set(str(array.context) for array in arrays))
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        self.drain()


def _races_on_cpus():
    """Whether the engine of this release must run one operator after the other on CPUs.

    In 1.2.1, operators that run in parallel sometimes corrupt a gradient: 4 of 1,100 trainings of four steps on two devices had
    errors of 0.02 to 0.16. With NaiveEngine, 0 of 1,000 trainings had such an error; with 1.6.0 and 1.9.1, 0 of 400 each. The
    release is read from the package's source text, because importing MXNet would already start the engine.
    """
    for folder in sys.path:
        path = os.path.join(folder, 'mxnet', 'libinfo.py')
        if os.path.isfile(path):
            with io.open(path, encoding='utf-8') as stream:
                found = re.search(r'__version__ = "(\d+)\.(\d+)', stream.read())
            return bool(found) and tuple(map(int, found.groups())) < (1, 6)
    return False


class _Model(object):
    """A network with one copy on each device in `places`, and a trainer that averages the gradients of the copies."""

    def __init__(self, adapter, net, weights, lr, momentum, places):
        self.mx, self.entropy, self.store, self.places = adapter.mx, adapter.entropy, adapter.store, places
        self.net = adapter.network(net)
        self.net.choose(adapter.chosen)
        self.net.initialize(ctx=places)
        self.give(weights, places)
        self.net.hybridize()
        self.settings = {'learning_rate': lr, 'momentum': momentum}
        self.trainer, self.stepped, self.outdated = self._trainer(), False, False

    def _trainer(self):
        return self.mx.gluon.Trainer(self.net.collect_params(), 'sgd', dict(self.settings), kvstore=self.store)

    def give(self, arrays, places):
        """Set the parameters of the copies on these devices; the arrays have the smoke test's layout."""
        for name, array in arrays.items():
            for place in places:
                self.net.parameter(name).data(place)[:] = self.mx.nd.array(np.asarray(array, 'float32'), ctx=place)
        self.outdated = True

    def step(self, shards, size, lr):
        if self.outdated:
            self._renew()
        self.trainer.set_learning_rate(lr)
        with self.mx.autograd.record():
            losses = [self.entropy(self.net(x), y) for x, y in shards]
        for loss in losses:
            loss.backward()
        self.trainer.step(size)
        self.stepped = True
        return losses

    def _renew(self):
        """Put the weights of the first copy into the key-value store after the weights of the copies were replaced.

        The store keeps its own weights, which replace those of the copies after each step. A new store would forget what a fault
        may depend on, so the same store is used: for one push, its updater stores what it is given. The sum over all devices is
        what the first one pushes, because the others push zeros.
        """
        self.outdated = False
        store = self.trainer._kvstore if self.stepped else None
        if not store or not self.trainer._update_on_kvstore:
            return
        updater = store._updater
        store._set_updater(lambda _number, given, stored: given.copyto(stored))
        try:
            for number, parameter in enumerate(self.trainer._params):
                if parameter.grad_req != 'null':
                    own = parameter.list_data()
                    store.push(number, own[:1] + [self.mx.nd.zeros_like(each) for each in own[1:]])
                    store.pull(number, own)
        finally:
            store._set_updater(updater)


def _parts(nn):
    """Return, for each kind of layer with weights, a function from the layer and its first parameter's shape to a Gluon block."""
    return {
        'conv': lambda layer, shape: nn.Conv2D(shape[0], layer.kernel, layer.stride, layer.pad, use_bias=layer.bias, in_channels=shape[1]),
        'norm': lambda layer, shape: nn.BatchNorm(momentum=nets.KEPT, epsilon=nets.EPSILON, in_channels=shape[0]),
        'dense': lambda layer, shape: nn.Dense(shape[0], in_units=shape[1]),
    }


def _plain(F, layer, read):
    """Compute a layer without weights."""
    if layer.op in ('relu', 'tanh'):
        return F.Activation(read[0], act_type=layer.op)
    if layer.op in ('pool', 'average'):
        return F.Pooling(read[0], kernel=(2, 2), stride=(2, 2), pool_type='max' if layer.op == 'pool' else 'avg')
    if layer.op == 'mean':
        return F.mean(read[0], axis=(2, 3))
    return F.Flatten(read[0]) if layer.op == 'flatten' else read[0] + read[1]


def _network_class(mx):
    """Return the class Network. It is made here, because its base class exists only after the framework is imported."""
    nn = mx.gluon.nn

    class Network(mx.gluon.HybridBlock):
        """A Gluon block that computes `plan`, a nets.Net."""

        def __init__(self, plan):
            super(Network, self).__init__()
            self.plan, shapes = plan, dict(plan.parameters)
            parts = _parts(nn)
            with self.name_scope():
                for layer in plan.layers:
                    if layer.op in parts:       # setting an attribute registers the block
                        setattr(self, layer.name, parts[layer.op](layer, shapes[layer.name + '_w']))

        def choose(self, how):
            for layer in self.plan.layers:
                if how and layer.op == 'conv':
                    getattr(self, layer.name)._kwargs['cudnn_tune'] = how

        def hybrid_forward(self, F, images):
            values = {'images': images}
            for layer in self.plan.layers:
                apply = getattr(self, layer.name, None) or (lambda *read: _plain(F, layer, read))
                values[layer.name] = apply(*[values[name] for name in layer.of])
            return values[self.plan.layers[-1].name]

        def everything(self):
            """Return [(name, parameter)] of all parameters, and of NAME_mean and NAME_variance of each normalisation."""
            out = []
            for layer in self.plan.layers:
                part = getattr(self, layer.name, None)
                if layer.op == 'norm':
                    own = (('w', part.gamma), ('b', part.beta), ('mean', part.running_mean), ('variance', part.running_var))
                elif layer.op in ('conv', 'dense'):
                    own = (('w', part.weight), ('b', part.bias))
                else:
                    own = ()
                out += [('%s_%s' % (layer.name, end), parameter) for end, parameter in own if parameter is not None]
            return out

        def parameter(self, name):
            return dict(self.everything())[name]

    return Network
