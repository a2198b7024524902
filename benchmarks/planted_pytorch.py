"""The PyTorch adapter with faults planted in PyTorch itself, for a smoke test that must find them.

    envbuild-smoke run --adapter benchmarks/planted_pytorch.py --option fault=NAME --counts 2

unsynced-later          DistributedDataParallel stops to exchange after 40 steps
unsynced-same-later     and from then on every rank gets the images of rank 0, so that all copies hold the same bits
same-shard-later        every rank gets the images of rank 0 after 40 steps
unsynced-small-lr       nothing is exchanged where the learning rate is as small as in the benchmark
summed-later            gradients are summed in place of averaged after 40 steps
half-precision          gradients are exchanged in 16 bits: no fault of the exchange, and none may be told
"""

from __future__ import annotations

import os
from typing import Any

from . import load  # the guest's, where this file is loaded

LATER = 40


class Adapter(load(os.environ["PLANTED_IN"])):  # type: ignore[misc]
    """PLANTED_IN is the file of the PyTorch adapter."""

    def setup(self, ctx: Any) -> None:
        super().setup(ctx)
        self._steps, self._fault, self._rate = 0, ctx.options.get("fault", ""), 1.0

    def make(self, net: Any, weights: Any, lr: float, momentum: float, replicas: Any, sync: str) -> Any:
        handle = super().make(net, weights, lr, momentum, replicas, sync)
        if handle["run"] is not handle["model"]:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            # Without annotations, for PyTorch wants its own types there.
            handle["run"].register_comm_hook(None, lambda _state, bucket: self._hook(default_hooks, bucket))
        return handle

    def _hook(self, hooks: Any, bucket: Any) -> Any:
        later = self._steps > LATER
        if (later and self._fault.startswith("unsynced") and "lr" not in self._fault) or (
            self._fault == "unsynced-small-lr" and self._rate < 1e-3
        ):
            future = self.torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        if self._fault == "half-precision":
            return hooks.fp16_compress_hook(None, bucket)
        done = hooks.allreduce_hook(None, bucket)
        if later and self._fault == "summed-later":
            return done.then(lambda got: got.value()[0] * self.ctx.world)
        return done

    def step(self, handle: Any, batch: Any, lr: float) -> Any:
        self._steps += handle["shard"]
        self._rate = lr
        if handle["shard"] and self._steps > LATER and "same" in self._fault:
            for tensor in batch:
                self.torch.distributed.broadcast(tensor, 0)
        return super().step(handle, batch, lr)
