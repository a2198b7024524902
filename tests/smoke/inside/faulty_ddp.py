"""PyTorch's adapter with a fault planted in DistributedDataParallel, by a hook that spoils every bucket but the first.

`--adapter .../faulty_ddp.py --option fault=NAME`. Runs inside a guest that has PyTorch's adapter.
"""
from __future__ import absolute_import, division, print_function

from .pytorch import Adapter as Healthy


class Adapter(Healthy):
    name = 'faulty_ddp'

    def make(self, net, weights, lr, momentum, replicas, sync):
        handle = Healthy.make(self, net, weights, lr, momentum, replicas, sync)
        fault = self.ctx.options.get('fault', '')
        if fault and handle['run'] is not handle['model']:
            handle['run'].register_comm_hook({'late': {}, 'seen': 0}, getattr(self, '_' + fault.replace('-', '_')))
        return handle

    def _mean(self, bucket):
        tensor = bucket.buffer().div_(self.ctx.world)
        work = self.torch.distributed.all_reduce(tensor, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _done(self, tensor):
        answer = self.torch.futures.Future()
        answer.set_result(tensor)
        return answer

    def _not_exchanged(self, state, bucket):
        return self._mean(bucket) if bucket.index() == 0 else self._done(bucket.buffer())

    def _lost(self, state, bucket):
        return self._mean(bucket) if bucket.index() == 0 else self._done(bucket.buffer().zero_())

    def _late(self, state, bucket):
        """Use the gradients of the previous step."""
        if bucket.index() == 0:
            return self._mean(bucket)
        mean = bucket.buffer().div_(self.ctx.world)
        self.torch.distributed.all_reduce(mean)
        before = state['late'].get(bucket.index(), self.torch.zeros_like(mean))
        state['late'][bucket.index()] = mean.clone()
        return self._done(before)

    def _half_precision(self, state, bucket):
        if bucket.index() == 0:
            return self._mean(bucket)
        half = bucket.buffer().div_(self.ctx.world).half()
        self.torch.distributed.all_reduce(half)
        return self._done(half.float())

    def _views_swapped(self, state, bucket):
        """Exchange the two halves of a bucket."""
        if bucket.index() == 0:
            return self._mean(bucket)
        mean = bucket.buffer().div_(self.ctx.world)
        self.torch.distributed.all_reduce(mean)
        return self._done(mean.roll(mean.numel() // 2))
