"""Chainer 2 and later for the smoke test: all devices in one process, through Chainer's own ParallelUpdater.

ParallelUpdater adds up the gradients that each replica has averaged over its part of the batch. The sum is N times the mean, so
the adapter divides the learning rate by N. After each step ParallelUpdater copies the first replica to the others, with its
running means and variances (https://github.com/chainer/chainer/blob/v7.8.1/chainer/training/updaters/parallel_updater.py).
With `--option exchange=chainermn`: one process per device, and ChainerMN averages the gradients over MPI, or NCCL on GPUs.
MultiprocessParallelUpdater (NCCL) is not tested: it forks processes and gives no access to the replicas in them.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import collections
import os
import warnings

import numpy as np

from ..launching import mpi
from ..networks import nets

FILE = 'network.npz'


class Adapter(object):
    name = 'chainer'
    style = 'single'
    collective_types = ('float32', 'float64', 'int64')
    world = communicator = None

    @staticmethod
    def style_under(options):
        return 'process' if options.get('exchange') == 'chainermn' else 'single'

    def setup(self, ctx):
        many = ctx.options.get('exchange') == 'chainermn' and ctx.world > 1
        self.world = mpi.World(ctx) if many else None       # before MPI is loaded
        if many and not self.world.joined:
            raise NotImplementedError('ChainerMN\'s processes cannot meet over MPI: ' + self.world.reason)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')     # about its NumPy version and missing packages
            import chainer              # not backends and training.updaters, which exist only since Chainer 4
            import chainer.training
        self.ctx, self.chainer = ctx, chainer
        self.on_gpu = ctx.kind == 'cuda'
        chainer.global_config.dtype = np.dtype('float32')
        self.semantics = {
            'gradient': 'sum of the means of the replicas: the learning rate is divided by their number',
            'exchange': 'ParallelUpdater',
        }
        if many:
            self._meet(ctx)

    def _meet(self, ctx):
        """Connect the processes by ChainerMN's communicator; `naive` is the only kind for CPUs."""
        import chainermn
        kind = 'pure_nccl' if self.on_gpu else 'naive'
        if self.on_gpu:
            self.chainer.cuda.get_device_from_id(self.place(0)).use()
        self.communicator = chainermn.create_communicator(kind)
        if (self.communicator.rank, self.communicator.size) != (ctx.rank, ctx.world):
            raise RuntimeError('ChainerMN takes itself for process %d of %d; it is process %d of %d' % (
                self.communicator.rank, self.communicator.size, ctx.rank, ctx.world))
        self.semantics = {'gradient': 'mean', 'exchange': 'ChainerMN, create_multi_node_optimizer', 'backend': kind}

    def averaging(self, optimizer):
        """Return an optimizer that averages gradients over all processes before each update."""
        import chainermn
        return chainermn.create_multi_node_optimizer(optimizer, self.communicator)

    def exact(self, wanted):
        self.chainer.global_config.cudnn_deterministic = wanted

    def versions(self):
        cuda = self.chainer.cuda
        # CuPy, Chainer's GPU part, reports its CUDA version only on a machine with a GPU: elsewhere old releases cannot be
        # imported.
        has_cupy = os.path.isdir(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(self.chainer.__file__))), 'cupy'))
        found = {'name': 'chainer', 'version': self.chainer.__version__, 'cuda_build': 'unknown' if has_cupy else None, 'cudnn': None,
                 'nccl': None, 'arch_list': []}
        if self.on_gpu and cuda.available:
            number = cuda.cupy.cuda.runtime.runtimeGetVersion()
            found['cuda_build'] = '%d.%d' % (number // 1000, number % 1000 // 10)
            if cuda.cudnn_enabled:
                number = cuda.cupy.cuda.cudnn.getVersion()
                found['cudnn'] = '%d.%d.%d' % (number // 1000, number % 1000 // 100, number % 100)
        return found

    def make(self, net, weights, lr, momentum, replicas, sync):
        if self.communicator is not None and sync == 'mean':
            return [_OfMany(self, net, weights, lr, momentum, replicas)]
        groups = [replicas] if sync == 'mean' else [[replica] for replica in replicas]
        return [_Group(self, net, weights, lr, momentum, group) for group in groups]

    def place(self, replica):
        """Return Chainer's number of a device: -1 is the CPU."""
        return self.ctx.devices[replica] if self.on_gpu else -1

    def put(self, handle, images, labels):
        """Give each group of the handle its part of the batch, in one shard per replica."""
        parts, number, out = self.copies(handle), 0, []
        if handle[0].together:
            images, labels = (self.ctx.shard(array, self.ctx.rank, self.ctx.world) for array in (images, labels))
        for group in handle:
            shards = []
            for place in group.places:
                x, y = (self.ctx.shard(array, number, parts) for array in (images, labels))
                shards.append((self.send(_scaled(x), place), self.send(y.astype('int32'), place)))
                number += 1
            out.append(shards)
        return out

    def send(self, array, place):
        return array if place < 0 else self.chainer.cuda.to_gpu(array, device=place)

    def step(self, handle, batch, lr):
        return [loss for group, shards in zip(handle, batch) for loss in group.step(shards, lr)]

    def loss(self, token):
        return float(np.mean([float(loss.data) for loss in token]))

    def drain(self):
        if self.on_gpu:
            for replica in range(len(self.ctx.devices)):
                with self.chainer.cuda.get_device_from_id(self.place(replica)) as device:
                    device.synchronize()

    def copies(self, handle):
        return sum(len(group.models) for group in handle)

    @staticmethod
    def _model(handle, copy):
        return [model for group in handle for model in group.models][copy]

    def weights(self, handle, copy):
        to_cpu = self.chainer.cuda.to_cpu
        return dict((name, np.array(to_cpu(array))) for name, array in self._model(handle, copy).arrays())

    def assign(self, handle, copy, weights):
        for name, array in self._model(handle, copy).arrays():
            _fill(array, weights[name])

    def predict(self, handle, images):
        group = handle[0]
        with self.chainer.no_backprop_mode(), self.chainer.using_config('train', False):
            answer = group.models[0].logits(self.send(_scaled(images), group.places[0]))
        return self.chainer.cuda.to_cpu(answer.data)

    def save(self, handle, folder):
        self.chainer.serializers.save_npz(os.path.join(folder, FILE), handle[0].models[0])

    def restore(self, handle, folder):
        for copy in range(self.copies(handle)):
            self.chainer.serializers.load_npz(os.path.join(folder, FILE), self._model(handle, copy))

    def evidence(self, handle):
        places = set()
        for copy in range(self.copies(handle)):
            places.update('cpu' if isinstance(array, np.ndarray) else 'gpu %d' % array.device.id
                          for _, array in self._model(handle, copy).arrays())
        return {'parameters': sorted(places), 'compute': sorted(places), 'memory_bytes': None}

    def collective(self, op, array, root):
        """Use the collectives of ChainerMN's communicator."""
        place, to_cpu = self.place(0), self.chainer.cuda.to_cpu
        given = self.send(array, place)
        if op == 'allreduce':
            return to_cpu(self.communicator.allreduce(given))
        if op == 'broadcast':
            return to_cpu(self.communicator.bcast(given, root))
        return [to_cpu(part) for part in self.communicator.allgather(given)]

    def close(self):
        self.drain()
        if self.world is not None:
            import mpi4py.MPI
            mpi4py.MPI.Finalize()
            self.ctx.group.barrier()        # if a member ended early, mpirun would end the others
            self.world.leave()


class _Group(object):
    """Replicas that are trained together, with their updater."""

    together = False        # whether they also train together with replicas of other processes

    def __init__(self, adapter, net, weights, lr, momentum, replicas):
        chainer = adapter.chainer
        self.places = [adapter.place(replica) for replica in replicas]
        self.models = [_network(chainer, net, weights) for _ in replicas]
        for model, place in zip(self.models, self.places):
            if place >= 0:
                model.to_gpu(place)
        self.optimizer = chainer.optimizers.MomentumSGD(lr=lr, momentum=momentum)
        self.optimizer.setup(self.models[0])
        self.losses = []
        for model in self.models:
            model.seen = self.losses
        self.feed = _feed(chainer)
        self.updater = self._updater(chainer, adapter)

    def _updater(self, chainer, adapter):
        # Keep the order: the updater assigns shards to models in the order in which it finds them.
        names = ['main'] + ['replica%d' % number for number in range(1, len(self.models))]
        return chainer.training.ParallelUpdater(
            {'main': self.feed}, self.optimizer, converter=lambda shards, device: shards[0],
            models=collections.OrderedDict(zip(names, self.models)), devices=dict(zip(names, _devices(chainer, self.places))),
            loss_func=None)

    def step(self, shards, lr):
        self.optimizer.lr = lr / len(self.models)
        self.feed.shards = shards
        del self.losses[:]
        self.updater.update()
        return list(self.losses)


class _OfMany(_Group):
    """One replica in each process, averaged by ChainerMN."""

    together = True

    def _updater(self, chainer, adapter):
        self.optimizer = adapter.averaging(self.optimizer)
        # The first update only sends the parameters of the first process to all others:
        # https://github.com/chainer/chainer/blob/v7.8.1/chainermn/optimizers.py
        self.optimizer.update()
        return chainer.training.StandardUpdater(
            self.feed, self.optimizer, converter=lambda shards, device: shards[0], device=_devices(chainer, self.places)[0])


def _feed(chainer):
    """Return an iterator that gives out what its attribute `shards` contains: one shard for each model."""
    class Feed(chainer.dataset.Iterator):
        shards, epoch, is_new_epoch, epoch_detail = (), 0, False, 0.0

        def next(self):
            return self.shards

    return Feed()


def _devices(chainer, places):
    """Return the devices as objects, or as numbers for updaters before Chainer 6."""
    if not hasattr(chainer, 'get_device'):
        return places
    return [chainer.get_device('@numpy' if place < 0 else '@cupy:%d' % place) for place in places]


def _scaled(images):
    return images.astype('float32') / np.float32(255)


def _fill(array, values):
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        array.set(np.ascontiguousarray(values, 'float32'))      # CuPy does not accept NumPy arrays in assignments


def _network(chainer, net, weights):
    """Build a network with these weights.

    The class is made here because its base exists only once the framework is imported.
    """
    links, functions, shapes = chainer.links, chainer.functions, dict(net.parameters)
    parts = {
        'conv': lambda layer, shape: links.Convolution2D(
            shape[1], shape[0], layer.kernel, layer.stride, layer.pad, nobias=not layer.bias),
        'norm': lambda layer, shape: links.BatchNormalization(shape[0], nets.KEPT, nets.EPSILON),
        'dense': lambda layer, shape: links.Linear(shape[1], shape[0]),
    }
    plain = {
        'relu': functions.relu,
        'tanh': functions.tanh,
        'pool': lambda x: functions.max_pooling_2d(x, 2),
        'average': lambda x: functions.average_pooling_2d(x, 2),
        'mean': lambda x: functions.sum(x, axis=(2, 3)) / (x.shape[2] * x.shape[3]),     # Chainer 2: one axis at a time
        'flatten': lambda x: functions.reshape(x, (x.shape[0], -1)),
        'add': lambda x, y: x + y,
    }

    class Network(chainer.Chain):
        def __init__(self):
            super(Network, self).__init__()
            with self.init_scope():             # attributes that are set in this scope become parts of the network
                for layer in net.layers:
                    if layer.op in parts:
                        setattr(self, layer.name, parts[layer.op](layer, shapes[layer.name + '_w']))
            for name, array in self.arrays():
                array[...] = weights[name]
            for layer in net.layers:
                if layer.op == 'norm':      # Chainer 4 starts with a variance of 0, later releases with 1, like other frameworks:
                    # https://github.com/chainer/chainer/blob/v4.3.1/chainer/links/normalization/batch_normalization.py#L137
                    getattr(self, layer.name).avg_var[...] = 1

        def arrays(self):
            """Return [(name, array)] in the order of the network's names."""
            out = []
            for name in net.names:
                part, end = getattr(self, name[:-2]), name[-1]
                known_as = {'w': 'W', 'b': 'b'} if hasattr(part, 'W') else {'w': 'gamma', 'b': 'beta'}
                out.append((name, getattr(part, known_as[end]).data))
            return out

        def logits(self, x):
            values = {'images': x}
            for layer in net.layers:
                apply = getattr(self, layer.name) if layer.op in parts else plain[layer.op]
                values[layer.name] = apply(*[values[name] for name in layer.of])
            return values[net.layers[-1].name]

        def __call__(self, x, labels):
            loss = functions.softmax_cross_entropy(self.logits(x), labels)
            self.seen.append(loss)
            return loss

    return Network()
