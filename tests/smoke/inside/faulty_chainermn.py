"""Chainer's adapter with a fault planted in ChainerMN's communicator: `--option exchange=chainermn --option fault=NAME`.

Runs inside a guest that has Chainer's adapter.
"""
from __future__ import absolute_import, division, print_function

from .chainer import Adapter as Healthy


class Adapter(Healthy):
    name = 'faulty_chainermn'

    def averaging(self, optimizer):
        fault, communicator = self.ctx.options.get('fault', ''), self.communicator
        if fault:
            communicator.multi_node_mean_grad = getattr(self, '_' + fault.replace('-', '_'))
        return Healthy.averaging(self, optimizer)

    def _not_exchanged(self, model, zero_fill=False):
        """Each process keeps its own gradients."""

    def _summed(self, model, zero_fill=False):
        for _, parameter in sorted(model.namedparams()):
            parameter.grad[...] = self.communicator.allreduce(parameter.grad)
