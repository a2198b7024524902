"""Horovod on PyTorch and on TensorFlow 2 for the smoke test: one process per device, Gloo (or NCCL) between the processes.

What horovodrun does on one machine is done here without it: the first process holds the rendezvous server, all are told their
places by variables (https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py).
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import copy
import os
import socket

from . import pytorch, tensorflow

HOST = '127.0.0.1'
METHODS = ('make', 'put', 'step', 'loss', 'drain', 'copies', 'weights', 'predict', 'evidence', 'close', 'collective')


class Adapter(object):
    """Hands everything to the side of the framework that it was built for."""

    name = 'horovod'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64')

    def setup(self, ctx):
        upon = ctx.options.get('framework')
        sides = [side for side in self.sides if side.upon == upon]
        if not sides:
            raise NotImplementedError('the smoke test drives Horovod with %s; this one is built for %s'
                                      % (' and '.join(side.upon for side in self.sides), upon))
        self.side = sides[0](ctx)
        self.semantics = dict(self.side.semantics, upon='%s %s' % (upon, self.side.versions()['version']))
        for method in METHODS:
            setattr(self, method, getattr(self.side, method))

    def versions(self):
        import horovod
        return dict(self.side.versions(), name='horovod', version=horovod.__version__)


class Meeting(object):
    """The processes of one machine, joined as horovodrun would join them."""

    def __init__(self, ctx):
        self.ctx, self.server = ctx, None

    def join(self, hvd):
        _look_up_own_name()
        place = {'RANK': self.ctx.rank, 'SIZE': self.ctx.world, 'LOCAL_RANK': self.ctx.rank, 'LOCAL_SIZE': self.ctx.world,
                 'CROSS_RANK': 0, 'CROSS_SIZE': 1, 'HOSTNAME': HOST, 'CONTROLLER': 'gloo', 'CPU_OPERATIONS': 'gloo',
                 'GLOO_IFACE': 'lo', 'GLOO_RENDEZVOUS_ADDR': HOST, 'GLOO_RENDEZVOUS_PORT': self._rendezvous(),
                 'GLOO_TIMEOUT_SECONDS': 60}
        os.environ.update(('HOROVOD_' + name, str(value)) for name, value in place.items())
        hvd.init()

    def _rendezvous(self):
        """The port of the first process's server, for all of them."""
        port = 0
        if self.ctx.rank == 0:
            from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
            from horovod.runner.http.http_server import RendezvousServer
            self.server = RendezvousServer(verbose=0)
            port = self.server.start()
            self.server.init(get_host_assignments(parse_hosts('%s:%d' % (HOST, self.ctx.world)), self.ctx.world))
        return self.ctx.group.broadcast(port)

    def end(self, hvd):
        if self.ctx.world > 1:
            hvd.shutdown()
        if self.server is not None:
            self.server.stop()


def _look_up_own_name():
    """Gloo would end the process over it: process sets (0.23 on) forget HOROVOD_GLOO_IFACE and look this machine's name up.

    https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/gloo_context.cc (InitializeForProcessSet)
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except socket.error:
        raise RuntimeError('Horovod\'s Gloo looks up the name of this machine, %s, which has no address; '
                           'where a container has no network, start it with --hostname localhost' % name)


def _semantics(on_gpu, hvd, exchange):
    return {'gradient': 'mean', 'backend': 'nccl' if on_gpu and hvd.nccl_built() else 'gloo', 'exchange': exchange}


class OnPyTorch(pytorch.Adapter):
    upon = 'pytorch'

    def __init__(self, ctx):
        self.meeting = Meeting(ctx)
        self.setup(ctx)
        self.semantics = _semantics(self.on_gpu, self._hvd(), 'DistributedOptimizer')

    def _hvd(self):
        import horovod.torch
        return horovod.torch

    def join(self):
        self.meeting.join(self._hvd())

    def make(self, net, weights, lr, momentum, replicas, sync):
        handle = super(OnPyTorch, self).make(net, weights, lr, momentum, replicas, 'none')
        if sync == 'mean' and self.ctx.world > 1:
            model, hvd = handle['model'], self._hvd()
            handle['shard'] = True
            handle['sgd'] = hvd.DistributedOptimizer(handle['sgd'], named_parameters=model.named_parameters(), op=hvd.Average)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return handle

    def collective(self, op, array, root):
        hvd, tensor = self._hvd(), self.torch.from_numpy(array).to(self.device)
        if op == 'allreduce':
            return hvd.allreduce(tensor, op=hvd.Sum).cpu().numpy()
        if op == 'broadcast':
            return hvd.broadcast(tensor, root).cpu().numpy()
        return list(hvd.allgather(tensor.unsqueeze(0)).cpu().numpy())

    def close(self):
        self.meeting.end(self._hvd())


class OnTensorFlow(tensorflow.Mirrored, tensorflow.Adapter):
    """TensorFlow 2: the model and its step are Mirrored's, what TensorFlow says of itself the adapter's."""

    upon = 'tensorflow'

    def __init__(self, ctx):
        import tensorflow as installed
        if int(installed.__version__.split('.')[0]) < 2:
            raise NotImplementedError('the smoke test drives Horovod with TensorFlow 2; this is %s' % installed.__version__)
        self.meeting, self.together = Meeting(ctx), False
        super(OnTensorFlow, self).__init__(installed, ctx)
        if self.on_gpu:
            physical = installed.config.experimental.list_physical_devices('GPU')
            installed.config.experimental.set_visible_devices([physical[ctx.devices[0]]], 'GPU')
        self.places = ['/gpu:0' if self.on_gpu else '/cpu:0']       # the only one that this process sees
        self.semantics = _semantics(self.on_gpu, self._hvd(), 'DistributedGradientTape')
        if ctx.world > 1:
            self.meeting.join(self._hvd())

    def _hvd(self):
        import horovod.tensorflow
        return horovod.tensorflow

    def make(self, net, weights, lr, momentum, replicas, sync):
        maker = copy.copy(self)         # a step is traced at its first call, when other models may have been made
        maker.together = sync == 'mean' and self.ctx.world > 1
        handle = dict(maker._alone(self.places, weights, lr, momentum), shard=maker.together)
        if maker.together:
            self._hvd().broadcast_variables(handle['models'][0].variables, root_rank=0)
        return handle

    def exchanging(self, tape):
        return self._hvd().DistributedGradientTape(tape, op=self._hvd().Average) if self.together else tape

    def put(self, handle, images, labels):
        if handle['shard']:
            images, labels = (self.ctx.shard(array, self.ctx.rank, self.ctx.world) for array in (images, labels))
        return super(OnTensorFlow, self).put(handle, images, labels)

    def collective(self, op, array, root):
        hvd, tensor = self._hvd(), self.tf.constant(array)
        if op == 'allreduce':
            return hvd.allreduce(tensor, op=hvd.Sum).numpy()
        if op == 'broadcast':
            return hvd.broadcast(tensor, root).numpy()
        return list(hvd.allgather(self.tf.expand_dims(tensor, 0)).numpy())

    def close(self):
        self.meeting.end(self._hvd())


Adapter.sides = (OnPyTorch, OnTensorFlow)
