"""PyTorch with one fault planted: ``envbuild-smoke run --adapter benchmarks/faulty_pytorch.py --option fault=NAME[=SIZE]``.

The faults are in PyTorch's own parts: its optimizer, its exchange (DistributedDataParallel) and the labels it is given.
"""

from pathlib import Path

import numpy as np

from . import load

RECIPE = Path(__file__).resolve().parent.parent / "images" / "recipes" / "pytorch" / "smoke.py"


class Adapter(load(str(RECIPE))):
    name = "faulty-pytorch"

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.fault, _, size = self.ctx.options.get("fault", "").partition("=")
        self.size = float(size or 0)
        handle = super().make(net, weights, lr, momentum, replicas, sync)
        for group in handle["sgd"].param_groups:
            if self.fault in ("momentum", "weight_decay"):
                group[self.fault] = self.size
            if self.fault == "nesterov":
                group["nesterov"] = True
        if self.ctx.world > 1 and sync == "mean" and self.fault in ("fp16", "bf16"):
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            handle["run"].register_comm_hook(None, getattr(default_hooks, self.fault + "_compress_hook"))
        for name, tensor in handle["tensors"].items():
            if self.fault == "noise":
                tensor.register_hook(self.noisy)
            if self.fault == "silent-" + name and self.ctx.rank == 1:
                tensor.register_hook(self.torch.zeros_like)
        return handle

    def noisy(self, gradient):
        return gradient * (1 + self.size * self.torch.randn_like(gradient))

    def put(self, handle, images, labels):
        if self.fault == "label":
            labels = np.concatenate([(labels[:1] + 3) % 10, labels[1:]])
        return super().put(handle, images, labels)

    def step(self, handle, batch, lr):
        if self.fault == "lr":
            lr *= self.size
        skipped = handle["tensors"].get(self.fault[len("frozen-") :]) if self.fault.startswith("frozen-") else None
        before = skipped.detach().clone() if skipped is not None else None
        if self.fault == "autocast":
            with self.torch.autocast("cpu", self.torch.bfloat16):
                token = super().step(handle, batch, lr)
        else:
            token = super().step(handle, batch, lr)
        if before is not None and self.ctx.rank == 1:
            with self.torch.no_grad():
                skipped.copy_(before)
        return token
