"""Horovod on PyTorch for the smoke test: one process per device, DistributedOptimizer, Gloo between the processes.

What horovodrun does on one machine is done here without it: the first process holds the rendezvous server, all are told their
places by variables (https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py).
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os

from . import pytorch

HOST = '127.0.0.1'


class Adapter(pytorch.Adapter):
    name = 'horovod'

    def setup(self, ctx):
        upon = ctx.options.get('framework', 'pytorch')
        if upon != 'pytorch':
            raise NotImplementedError('the smoke test drives Horovod with PyTorch; this one is built for %s' % upon)
        self.server = None
        super(Adapter, self).setup(ctx)
        import horovod
        self.horovod = horovod
        self.semantics.update({
            'backend': 'nccl' if self.on_gpu and self._hvd().nccl_built() else 'gloo', 'exchange': 'DistributedOptimizer',
            'upon': 'torch %s' % self.torch.__version__})

    def _hvd(self):
        import horovod.torch
        return horovod.torch

    def join(self):
        place = {'RANK': self.ctx.rank, 'SIZE': self.ctx.world, 'LOCAL_RANK': self.ctx.rank, 'LOCAL_SIZE': self.ctx.world,
                 'CROSS_RANK': 0, 'CROSS_SIZE': 1, 'HOSTNAME': HOST, 'CONTROLLER': 'gloo', 'CPU_OPERATIONS': 'gloo',
                 'GLOO_IFACE': 'lo', 'GLOO_RENDEZVOUS_ADDR': HOST, 'GLOO_RENDEZVOUS_PORT': self._rendezvous(),
                 'GLOO_TIMEOUT_SECONDS': 60}
        os.environ.update(('HOROVOD_' + name, str(value)) for name, value in place.items())
        self._hvd().init()

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

    def versions(self):
        return dict(super(Adapter, self).versions(), name='horovod', version=self.horovod.__version__)

    def make(self, net, weights, lr, momentum, replicas, sync):
        handle = super(Adapter, self).make(net, weights, lr, momentum, replicas, 'none')
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
        if self.ctx.world > 1:
            self._hvd().shutdown()
        if self.server is not None:
            self.server.stop()
