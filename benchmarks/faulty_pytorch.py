"""PyTorch with one fault planted: ``envbuild-smoke run --adapter benchmarks/faulty_pytorch.py --option fault=NAME[=SIZE]``.

The faults are planted in PyTorch's optimizer, in its gradient exchange (DistributedDataParallel), and in the images and labels
that PyTorch gets.

lr, momentum, weight_decay (=SIZE), nesterov      the optimizer has another value of this setting
label           one label of each batch is wrong
noise=SIZE      each gradient gets relative noise of this size
autocast        layers compute in bfloat16; with `--option autocast=yes`, layers compute in bfloat16 and there is another fault
silent-NAME, frozen-NAME      rank 1 has a gradient of zero for the parameter NAME, or never updates it
fp16, bf16      gradients are exchanged in 16 bits; fp16-later, bf16-later: from step 41 of a model on
untrained=SIZE  kernels and scales with SIZE output channels have a gradient of zero on all ranks
by-fewer        the sum of gradients is divided by the number of ranks minus one
kept-fp16       weights are rounded to float16 after each step
state-lost      rank 1 loses its optimizer's state before each step
stale-rank      rank 1 uses its gradients of the previous step, and zero in the first step
lr-rank=SIZE    the learning rate of rank 1 is multiplied by SIZE
unsynced-later, summed-later  from step 41 on gradients are not exchanged, or summed instead of averaged
same-shard-later              from step 41 on every rank gets the images of rank 0
unsynced-same-later           from step 41 on every rank gets the images of rank 0, and gradients are not exchanged
unsynced-small-lr             gradients are not exchanged if the learning rate is as small as in the benchmark phase
lr-later=SIZE, label-later    from step 41 on the learning rate is multiplied by SIZE, or one label of each batch is wrong
uneven-later    from step 41 on the gradients of the second rank weigh 20 % more than those of the first
timed-idle, timed-half, timed-no-momentum     timed steps do nothing, leave out half of the batch, or have no momentum
every-SIZE-NAME               every SIZE-th call of SGD.step (for `label`: of cross_entropy) has the fault NAME: momentum (the
                optimizer's momentum is lost), skip (no update), lr (the learning rate is 1.1 times as high), label (one label
                is wrong), unsynced (gradients are not exchanged). If NAME ends in -one, only rank 1 has the fault. If NAME ends
                in -timed, only models of the benchmark phase have the fault
"""

from pathlib import Path

import numpy as np

from . import load

LATER = 40  # faults whose names end in "later" begin after this step
TIMED = 1e-3  # only the benchmark phase makes models with a learning rate below this one
HALVES = {"fp16": "fp16_compress_hook", "bf16": "bf16_compress_hook"}
RECIPE = Path(__file__).resolve().parent.parent / "images" / "recipes" / "pytorch" / "smoke.py"


class Adapter(load(str(RECIPE))):
    name = "faulty-pytorch"
    period = unsynced = 0

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.fault, _, size = self.ctx.options.get("fault", "").partition("=")
        self.size = float(size or 0)
        handle = super().make(net, weights, lr, momentum, replicas, sync)
        handle["timed"] = self.fault.partition("timed-")[2] if lr < TIMED else ""
        handle["is_timed"] = lr < TIMED
        for group in handle["sgd"].param_groups:
            if handle["timed"] == "no-momentum":
                group["momentum"] = 0.0
            if self.fault in ("momentum", "weight_decay"):
                group[self.fault] = self.size
            if self.fault == "nesterov":
                group["nesterov"] = True
        self.steps, self.rate = 0, 1.0
        self.plant(handle)
        self.puts, self.every = getattr(self, "puts", 0), getattr(self, "every", 0)
        if handle["run"] is not handle["model"]:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            # The hook is a lambda, because PyTorch checks the annotations of hooks.
            handle["run"].register_comm_hook(None, lambda _state, bucket: self.exchange(default_hooks, bucket))
        for name, tensor in handle["tensors"].items():
            self.plant_gradients(name, tensor)
        return handle

    def plant_gradients(self, name, tensor):
        """Plant the faults that change the gradient of one parameter."""
        is_untrained = self.fault == "untrained" and tensor.ndim in (1, 4) and tensor.shape[0] == int(self.size)
        if self.fault == "noise":
            tensor.register_hook(self.noisy)
        if is_untrained or (self.fault == "silent-" + name and self.ctx.rank == 1):
            tensor.register_hook(self.torch.zeros_like)
        if self.fault == "stale-rank" and self.ctx.rank == 1:
            tensor.register_hook(self.late(tensor))

    def plant(self, handle):
        """Plant a fault `every-SIZE-NAME`: every SIZE-th call of SGD.step or cross_entropy has the fault NAME."""
        if not self.fault.startswith("every-"):
            return
        period, name, *where = self.fault[len("every-") :].split("-")
        if ("one" in where and self.ctx.rank != 1) or ("timed" in where and not handle["is_timed"]):
            return
        if name == "label":
            handle["period"] = int(period)
            self.plant_labels()
        if name == "unsynced":
            handle["unsynced"] = int(period)
        if name in ("momentum", "lr", "skip"):
            self.plant_steps(handle["sgd"], int(period), name)

    def plant_steps(self, sgd, period, name):
        """Plant the fault ``name`` in every call of SGD.step whose number is a multiple of ``period``."""
        plain, calls = sgd.step, [0]

        def step():
            calls[0] += 1
            if calls[0] % period:
                return plain()
            if name == "momentum":
                for state in sgd.state.values():
                    state.pop("momentum_buffer", None)
            if name == "lr":
                sgd.param_groups[0]["lr"] *= 1.1
            return None if name == "skip" else plain()

        sgd.step = step

    def plant_labels(self):
        """Make one label wrong in every call of cross_entropy whose number is a multiple of the model's period."""
        functional = self.torch.nn.functional
        if hasattr(functional, "unspoiled"):
            return
        functional.unspoiled, calls = functional.cross_entropy, [0]

        def spoiled(answers, labels):
            calls[0] += bool(self.period)
            if self.period and calls[0] % self.period == 0:
                labels = labels.clone()
                labels[0] = (labels[0] + 3) % 10
            return functional.unspoiled(answers, labels)

        functional.cross_entropy = spoiled

    def exchange(self, hooks, bucket):
        later = self.steps > LATER
        if self.unsynced and self.steps % self.unsynced == 0:
            future = self.torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        if (later and self.fault in ("unsynced-later", "unsynced-same-later")) or (
            self.fault == "unsynced-small-lr" and self.rate < 1e-3
        ):
            future = self.torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
        half, _, when = self.fault.partition("-")
        if half in HALVES and (later or not when):
            return getattr(hooks, HALVES[half])(None, bucket)
        if self.fault == "uneven-later" and later:
            bucket.buffer().mul_(1.1 if self.ctx.rank else 0.9)
        done = hooks.allreduce_hook(None, bucket)
        factor = {"by-fewer": self.ctx.world / (self.ctx.world - 1), "summed-later": self.ctx.world if later else 1}
        return done.then(lambda got: self.tensor_of(got) * factor.get(self.fault, 1))

    def tensor_of(self, done):
        """Return the tensor of a finished hook: newer PyTorch releases give the tensor, older ones a list with one tensor."""
        found = done.value()
        return found if isinstance(found, self.torch.Tensor) else found[0]

    def noisy(self, gradient):
        return gradient * (1 + self.size * self.torch.randn_like(gradient))

    def late(self, tensor):
        """Return a hook that replaces each gradient by the gradient of the previous call, and the first gradient by zeros."""
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
        self.period, self.unsynced = handle.get("period", 0), handle.get("unsynced", 0)
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
        if self.fault == "autocast" or self.ctx.options.get("autocast"):
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
