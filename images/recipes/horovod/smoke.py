"""Horovod on PyTorch, TensorFlow 1 and 2 and MXNet for the smoke test: one process per device; Gloo, MPI or NCCL between them.

This module does the work of horovodrun. With Gloo, the first process runs a store through which the processes find each other,
and each process gets its rank from variables (https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py). With
MPI (if Horovod was built with MPI and without Gloo, or with `--option controller=mpi`), the processes become members of an MPI
world.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import copy
import os
import socket
import threading

from ..launching import mpi
from . import mxnet, pytorch, tensorflow

METHODS = ('make', 'put', 'step', 'loss', 'drain', 'copies', 'weights', 'assign', 'predict', 'save', 'restore', 'evidence',
           'collective', 'close', 'exact')
# Horovod exchanges up to 128 MB of gradients at once (64 MB in older releases). With the same limit as in PyTorch's
# DistributedDataParallel, the network of the check BUCKETS needs several exchanges.
FUSED_BYTES = 25 << 20


class Adapter(object):
    """Passes every call to the class for the framework that Horovod was built for."""

    name = 'horovod'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64', 'float16')

    def setup(self, ctx):
        upon = ctx.options.get('framework')
        side = next((side for side in self.sides if side.upon == upon and side.fits()), None)
        if side is None:
            raise NotImplementedError('the smoke test can use Horovod only with %s, but the Horovod in this image is built for %s'
                                      % (', '.join(sorted(set(side.upon for side in self.sides))), upon))
        self.side = side(ctx)
        self.semantics = dict(self.side.semantics, upon='%s %s' % (upon, self.side.versions()['version']))
        for method in METHODS:
            setattr(self, method, getattr(self.side, method))

    def versions(self):
        import horovod
        return dict(self.side.versions(), name='horovod', version=horovod.__version__)


class Meeting(object):
    """The connected processes, as if horovodrun had started them. `hvd` is Horovod's module for the framework."""

    def __init__(self, ctx, hvd, on_gpu):
        self.ctx, self.hvd, self.on_gpu = ctx, hvd, on_gpu
        self.server = self.world = None
        # Releases before 0.17 support MPI only and lack these functions.
        with_gloo = hasattr(hvd, 'gloo_built') and hvd.gloo_built()
        self.controller = ctx.options.get('controller') or ('gloo' if with_gloo else 'mpi')
        self.backend = 'nccl' if on_gpu and hasattr(hvd, 'nccl_built') and hvd.nccl_built() else self.controller

    def join(self):
        if self.ctx.world == 1:
            return
        names = {'CONTROLLER': self.controller, 'CPU_OPERATIONS': self.controller}
        names.update(self._by_mpi() if self.controller == 'mpi' else self._by_gloo())
        os.environ.setdefault('HOROVOD_FUSION_THRESHOLD', str(FUSED_BYTES))
        os.environ.update(('HOROVOD_' + name, str(value)) for name, value in names.items())
        self.hvd.init()
        if self.hvd.size() != self.ctx.world or self.hvd.rank() != self.ctx.rank:
            raise RuntimeError('Horovod takes itself for process %d of %d; it is process %d of %d' % (
                self.hvd.rank(), self.hvd.size(), self.ctx.rank, self.ctx.world))

    def _by_mpi(self):
        self.world = mpi.World(self.ctx)
        if not self.world.joined:
            raise NotImplementedError('Horovod\'s processes cannot meet over MPI: ' + self.world.reason)
        return {}

    def _by_gloo(self):
        _look_up_own_name()
        ctx, port = self.ctx, 0
        if ctx.rank == 0:
            self.server = _store(ctx.host)
            port = self.server.server_port
        across = [node for node, place in ctx.group.gather([ctx.node, ctx.local_rank]) if place == ctx.local_rank]
        return {
            'RANK': ctx.rank, 'SIZE': ctx.world, 'LOCAL_RANK': ctx.local_rank, 'LOCAL_SIZE': ctx.local_world,
            'CROSS_RANK': across.index(ctx.node), 'CROSS_SIZE': len(across),  # among the processes with the same local rank
            'HOSTNAME': 'host%d' % ctx.node, 'GLOO_IFACE': ctx.interface, 'GLOO_TIMEOUT_SECONDS': 60,
            'GLOO_RENDEZVOUS_ADDR': ctx.host, 'GLOO_RENDEZVOUS_PORT': ctx.group.broadcast(port),
        }

    def semantics(self, exchange):
        return {'gradient': 'mean', 'backend': self.backend, 'controller': self.controller, 'exchange': exchange,
                'fusion': 'at most %s bytes in one exchange' % os.environ.get('HOROVOD_FUSION_THRESHOLD', FUSED_BYTES)}

    def sum(self):
        """Return the argument that requests a sum instead of a mean. Before 0.19, it has another name."""
        return {'op': self.hvd.Sum} if hasattr(self.hvd, 'Sum') else {'average': False}

    def end(self):
        if self.ctx.world > 1:
            self.hvd.shutdown()
        if self.server is not None:
            self.server.shutdown()
        if self.world is not None:
            self.world.leave()


def _store(host):
    """Start the HTTP key-value store that Gloo needs. horovodrun has one too, but in another module in each release.

    https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/http_store.cc
    """
    try:
        from http.server import BaseHTTPRequestHandler, HTTPServer  # novm: Python 3
    except ImportError:
        from BaseHTTPServer import BaseHTTPRequestHandler, HTTPServer  # novm: Python 2
    known = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(200 if self.path in known else 404, known.get(self.path, b''))

        def do_PUT(self):
            known[self.path] = self.rfile.read(int(self.headers['Content-Length']))
            self._answer(200)

        def do_DELETE(self):
            self._answer(200)

        def _answer(self, status, body=b''):
            self.send_response(status)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Do not log requests."""

    server = HTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.daemon = True
    thread.start()
    return server


def _look_up_own_name():
    """Fail early if this machine's name has no address.

    From 0.23 on, Horovod's process sets ignore HOROVOD_GLOO_IFACE and look up the machine's name. If the name has no address,
    Gloo ends the process.
    https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/gloo_context.cc (InitializeForProcessSet)
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except socket.error:
        raise RuntimeError('Horovod\'s Gloo looks up the name of this machine, %s, which has no address; '
                           'where a container has no network, start it with --hostname localhost' % name)


class OnPyTorch(pytorch.Adapter):
    upon = 'pytorch'

    @staticmethod
    def fits():
        return True

    def __init__(self, ctx):
        self.setup(ctx)

    def join(self):
        """Do not join PyTorch's process group: Horovod connects the processes."""

    def setup(self, ctx):
        super(OnPyTorch, self).setup(ctx)
        import horovod.torch
        self.meeting = Meeting(ctx, horovod.torch, self.on_gpu)
        self.meeting.join()
        self.semantics = self.meeting.semantics('DistributedOptimizer')

    def make(self, net, weights, lr, momentum, replicas, sync):
        together = sync == 'mean' and self.ctx.world > 1
        handle = super(OnPyTorch, self).make(net, self.ctx.start(weights) if together else weights, lr, momentum, replicas, 'none')
        if together:
            model, hvd = handle['model'], self.meeting.hvd
            handle['shard'] = True
            handle['sgd'] = hvd.DistributedOptimizer(handle['sgd'], named_parameters=model.named_parameters())
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return handle

    def collective(self, op, array, root):
        hvd, tensor = self.meeting.hvd, self.torch.from_numpy(array).to(self.device)
        if op == 'allreduce':
            return hvd.allreduce(tensor, **self.meeting.sum()).cpu().numpy()
        if op == 'broadcast':
            return hvd.broadcast(tensor, root).cpu().numpy()
        return list(hvd.allgather(tensor.unsqueeze(0)).cpu().numpy())

    def close(self):
        self.meeting.end()


class OnTensorFlow(tensorflow.Mirrored, tensorflow.Adapter):
    """Horovod with TensorFlow 2. Model and step come from Mirrored, the facts about TensorFlow from its adapter."""

    upon = 'tensorflow'
    together = False

    @staticmethod
    def fits():
        return _tensorflow_major() >= 2

    def __init__(self, ctx):
        import tensorflow as installed
        super(OnTensorFlow, self).__init__(installed, ctx)
        if self.on_gpu:
            physical = installed.config.experimental.list_physical_devices('GPU')
            installed.config.experimental.set_visible_devices([physical[ctx.devices[0]]], 'GPU')
        self.meeting, self.places = _meet_by_tensorflow(ctx)
        self.semantics = self.meeting.semantics('DistributedGradientTape')

    def make(self, net, weights, lr, momentum, replicas, sync):
        maker = copy.copy(self)         # a copy: a step is traced at its first call, and `together` may have changed by then
        maker.together = sync == 'mean' and self.ctx.world > 1
        start = self.ctx.start(weights) if maker.together else weights
        handle = dict(maker.build(self.places, net, start, lr, momentum, mirrored=False), shard=maker.together)
        if maker.together:
            self.meeting.hvd.broadcast_variables(handle['models'][0].variables, root_rank=0)
        return handle

    def exchanging(self, tape):
        return self.meeting.hvd.DistributedGradientTape(tape) if self.together else tape

    def put(self, handle, images, labels):
        return super(OnTensorFlow, self).put(handle, *_own(self.ctx, handle, images, labels))

    def collective(self, op, array, root):
        return _collective(self.meeting, self.tf, op, self.tf.constant(array), root).numpy()

    def close(self):
        self.meeting.end()


class OnTowers(tensorflow.Towers, tensorflow.Adapter):
    """Horovod with TensorFlow 1. Each process runs one tower."""

    upon = 'tensorflow'
    together = False

    @staticmethod
    def fits():
        return _tensorflow_major() < 2

    def __init__(self, ctx):
        import tensorflow as installed
        super(OnTowers, self).__init__(installed, ctx)
        self.config.gpu_options.visible_device_list = str(ctx.devices[0]) if ctx.kind == 'cuda' else ''
        self.meeting, self.places = _meet_by_tensorflow(ctx)
        self.semantics = self.meeting.semantics('allreduce of each gradient')
        self.sessions = {}

    def make(self, net, weights, lr, momentum, replicas, sync):
        maker = copy.copy(self)
        maker.together = sync == 'mean' and self.ctx.world > 1
        handle = super(OnTowers, maker).make(net, weights, lr, momentum, [0], 'none')
        return dict(handle, shard=maker.together)

    def _tower(self, net, x, y):
        tower = super(OnTowers, self)._tower(net, x, y)
        if self.together:
            tower['gradients'] = [self.meeting.hvd.allreduce(gradient) for gradient in tower['gradients']]
        return tower

    def put(self, handle, images, labels):
        return super(OnTowers, self).put(handle, *_own(self.ctx, handle, images, labels))

    def collective(self, op, array, root):
        key = op, root, array.dtype.name, array.shape
        if key not in self.sessions:
            with self.tf.Graph().as_default() as graph:
                given = self.tf.placeholder(array.dtype.name, array.shape)
                answer = _collective(self.meeting, self.tf, op, given, root)
            self.sessions[key] = self.tf.Session(graph=graph, config=self.config), given, answer
        session, given, answer = self.sessions[key]
        return session.run(answer, {given: array})

    def close(self):
        self.meeting.end()


def _tensorflow_major():
    import tensorflow
    return int(tensorflow.__version__.split('.')[0])


def _meet_by_tensorflow(ctx):
    """Return (the meeting, the only device that this process sees)."""
    import horovod.tensorflow
    meeting = Meeting(ctx, horovod.tensorflow, ctx.kind == 'cuda')
    meeting.join()
    return meeting, ['/gpu:0' if ctx.kind == 'cuda' else '/cpu:0']


def _own(ctx, handle, images, labels):
    """Return this process's part of the batch if the processes train together, else the whole batch."""
    return [ctx.shard(array, ctx.rank, ctx.world) if handle['shard'] else array for array in (images, labels)]


def _collective(meeting, tf, op, tensor, root):
    if op == 'allreduce':
        return meeting.hvd.allreduce(tensor, **meeting.sum())
    return meeting.hvd.broadcast(tensor, root) if op == 'broadcast' else meeting.hvd.allgather(tf.expand_dims(tensor, 0))


class OnMXNet(mxnet.Adapter):
    upon = 'mxnet'

    @staticmethod
    def fits():
        return True

    def __init__(self, ctx):
        self.setup(ctx)

    def setup(self, ctx):
        super(OnMXNet, self).setup(ctx)
        import horovod.mxnet
        self.meeting = Meeting(ctx, horovod.mxnet, self.on_gpu)
        self.meeting.join()
        self.semantics = self.meeting.semantics('DistributedTrainer')

    def make(self, net, weights, lr, momentum, replicas, sync):
        together = sync == 'mean' and self.ctx.world > 1
        trainer = self.meeting.hvd.DistributedTrainer if together else None
        return [_WithTrainer(trainer, self, net, weights, lr, momentum, self.places[:1])]

    def put(self, handle, images, labels):
        return super(OnMXNet, self).put(handle, *_own(self.ctx, {'shard': handle[0].together}, images, labels))

    def collective(self, op, array, root):
        hvd, given = self.meeting.hvd, self.mx.nd.array(array, ctx=self.places[0], dtype=array.dtype)
        if op == 'allreduce':
            return hvd.allreduce(given, average=False).asnumpy()
        if op == 'broadcast':
            return hvd.broadcast(given, root).asnumpy()
        return list(hvd.allgather(given.expand_dims(0)).asnumpy())

    def close(self):
        super(OnMXNet, self).close()
        self.meeting.end()


class _WithTrainer(mxnet._Model):
    """MXNet's model with Horovod's trainer, which averages the gradients over the processes.

    Each process divides its gradients by the size of its own part of the batch.
    """

    def __init__(self, trainer, *model):
        self.together, self.kind_of_trainer = trainer is not None, trainer
        super(_WithTrainer, self).__init__(*model)

    def _trainer(self):
        if not self.together:
            return super(_WithTrainer, self)._trainer()
        return self.kind_of_trainer(self.net.collect_params(), 'sgd', dict(self.settings))


Adapter.sides = (OnPyTorch, OnTensorFlow, OnTowers, OnMXNet)
