"""PyTorch with one fault planted: ``envbuild-smoke run --adapter benchmarks/faulty_pytorch.py --option fault=NAME[=SIZE]``.

The faults are in PyTorch's own parts: its optimizer, its exchange (DistributedDataParallel), the images and labels it is given.

lr, momentum, weight_decay (=SIZE), nesterov      of the optimizer
label           one label of each batch is wrong
noise=SIZE      in each gradient; autocast: bfloat16
silent-NAME, frozen-NAME      rank 1 gives no gradient of a parameter, or never updates it
fp16, bf16      gradients are exchanged in 16 bits
by-fewer        the sum of gradients is divided by one rank less
kept-fp16       weights are rounded to float16 after each step
state-lost      rank 1 loses its optimizer's state before each step
stale-rank      rank 1 gives the gradients of the step before, in the first step none
lr-rank=SIZE    the learning rate of rank 1 is so many times as high
unsynced-later, summed-later  from step 41 on gradients are not exchanged, or summed in place of averaged
same-shard-later              from step 41 on every rank gets the images of rank 0; unsynced-same-later: and exchanges nothing
unsynced-small-lr             nothing is exchanged where the learning rate is as small as in the benchmark
lr-later=SIZE, label-later    from step 41 on: the learning rate is so many times as high, one label of each batch is wrong
uneven-later    from step 41 on the second rank counts 20 % more than the first
timed-idle, timed-half, timed-no-momentum     steps of what is timed do nothing, leave out half of the batch, have no momentum
"""

from pathlib import Path

import numpy as np

from . import load

LATER = 40  # steps
TIMED = 1e-3  # the benchmark makes its models for a smaller learning rate than this, all else for a larger one
HALVES = {"fp16": "fp16_compress_hook", "bf16": "bf16_compress_hook"}
RECIPE = Path(__file__).resolve().parent.parent / "images" / "recipes" / "pytorch" / "smoke.py"


class Adapter(load(str(RECIPE))):
    name = "faulty-pytorch"

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.fault, _, size = self.ctx.options.get("fault", "").partition("=")
        self.size = float(size or 0)
        handle = super().make(net, weights, lr, momentum, replicas, sync)
        handle["timed"] = self.fault.partition("timed-")[2] if lr < TIMED else ""
        for group in handle["sgd"].param_groups:
            if handle["timed"] == "no-momentum":
                group["momentum"] = 0.0
            if self.fault in ("momentum", "weight_decay"):
                group[self.fault] = self.size
            if self.fault == "nesterov":
                group["nesterov"] = True
        self.steps, self.rate = 0, 1.0
        self.puts, self.every = getattr(self, "puts", 0), getattr(self, "every", 0)
        if handle["run"] is not handle["model"]:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            # Without annotations, for PyTorch wants its own types there.
            handle["run"].register_comm_hook(None, lambda _state, bucket: self.exchange(default_hooks, bucket))
        for name, tensor in handle["tensors"].items():
            if self.fault == "noise":
                tensor.register_hook(self.noisy)
            if self.fault == "silent-" + name and self.ctx.rank == 1:
                tensor.register_hook(self.torch.zeros_like)
            if self.fault == "stale-rank" and self.ctx.rank == 1:
                tensor.register_hook(self.late(tensor))
        return handle

    def exchange(self, hooks, bucket):
        later = self.steps > LATER
        if (later and self.fault in ("unsynced-later", "unsynced-same-later")) or (
            self.fault == "unsynced-small-lr" and self.rate < 1e-3
        ):
            future = self.torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        if self.fault in HALVES:
            return getattr(hooks, HALVES[self.fault])(None, bucket)
        if self.fault == "uneven-later" and later:
            bucket.buffer().mul_(1.1 if self.ctx.rank else 0.9)
        done = hooks.allreduce_hook(None, bucket)
        factor = {"by-fewer": self.ctx.world / (self.ctx.world - 1), "summed-later": self.ctx.world if later else 1}
        return done.then(lambda got: self.tensor_of(got) * factor.get(self.fault, 1))

    def tensor_of(self, done):
        """The answer of a hook: a tensor in newer releases, a list of one before."""
        found = done.value()
        return found if isinstance(found, self.torch.Tensor) else found[0]

    def noisy(self, gradient):
        return gradient * (1 + self.size * self.torch.randn_like(gradient))

    def late(self, tensor):
        """A hook that gives the gradient which it was given the time before."""
        waiting = [self.torch.zeros_like(tensor)]

        def give(gradient):
            waiting.append(gradient.clone())
            return waiting.pop(0)

        return give

    def put(self, handle, images, labels):
        if self.fault == "label":
            labels = np.concatenate([(labels[:1] + 3) % 10, labels[1:]])
        if self.fault == "label-later" and self.puts > LATER:
            labels = np.concatenate([(labels[:1] + 3) % 10, labels[1:]])
        self.puts += 1
        if handle["timed"] == "half":
            images, labels = images[::2], labels[::2]
        return super().put(handle, images, labels)

    def step(self, handle, batch, lr):
        self.steps, self.rate = self.steps + bool(handle["shard"]), lr
        if handle["timed"] == "idle":
            return batch[0].mean()
        if handle["shard"] and self.steps > LATER and "same" in self.fault:
            for tensor in batch:
                self.torch.distributed.broadcast(tensor, 0)
        if self.fault == "state-lost" and self.ctx.rank == 1:
            handle["sgd"].state.clear()
        self.every += 1
        other_rate = {"lr": True, "lr-later": self.every > LATER, "lr-rank": self.ctx.rank == 1}
        if other_rate.get(self.fault):
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
        if self.fault == "kept-fp16":
            with self.torch.no_grad():
                for tensor in handle["tensors"].values():
                    tensor.copy_(tensor.half().float())
        return token
