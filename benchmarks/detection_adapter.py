"""An adapter with a planted fault, which the guest loads for detection.py.

DETECTION_OF names the adapter of the framework, and DETECTION_FAULT names the fault. The faults use only methods that every
adapter has, so every fault can be planted in every framework. BUCKET is the exception: it is planted in the framework's own
exchange of gradients.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from .. import clock  # noqa: TID252 - this file becomes a module of the guest, whose package has another name there
from . import load  # the loader of the guest, which imports this file as one of its modules

FAULT = os.environ.get("DETECTION_FAULT", "")
TIMED = 1e-3  # only the benchmark phase trains with a learning rate below this one
LATER = 20  # faults "after 20 steps" begin after this step
RATES = {"learning rate +1 %": 1.01, "learning rate +10 %": 1.1}
MOMENTA = {"momentum 0.95 for 0.9": 0.95, "no momentum": 0.0}
DECAYS = {"weight decay 1e-3": 1e-3, "weight decay 5e-3": 5e-3}
IDLE, HALVED = "timed steps do nothing", "timed steps leave out half of the batch"
WITHOUT_MOMENTUM = "timed steps have no momentum"
# Fault that occurs in every Nth step → (what happens, N, whether only models of the benchmark phase have the fault).
PERIODIC = {
    "every 10th step has no momentum": ("momentum", 10, False),
    "every 20th update is left out": ("skip", 20, False),
    "every 10th step on one rank has a learning rate of +10 %": ("rate", 10, False),
    "every 10th timed step has no momentum": ("momentum", 10, True),
    "every 20th timed update is left out": ("skip", 20, True),
    "every 10th timed step has a learning rate of +10 %": ("rate", 10, True),
}
# Fault → the loss that is reported, from the right one and that of the step before.
REPORTS = {
    "the loss is not a number": lambda _found, _earlier: float("nan"),
    "the reported loss is 1.7 times the loss": lambda found, _earlier: 1.7 * found,
    "the reported loss is that of the step before": lambda _found, earlier: earlier,
}
START = "one rank starts from another bias"
CLOCK = "the clock of the first rank runs at a third of its speed"
NOISY = "outputs without gradients have noise of 5 %"
BATCHES = "every 20th batch has one wrong label"
BUCKET = "the second bucket is not exchanged"
BUCKET_BYTES = 25 * 2**20  # of PyTorch's DistributedDataParallel, and more than the gradients of the other networks here


class Adapter(load(os.environ["DETECTION_OF"])):  # type: ignore[misc]
    """The adapter of the framework, with the fault planted."""

    def setup(self, ctx: Any) -> None:
        if FAULT == "the framework cannot be imported":
            raise ImportError("libexample.so.9: cannot open shared object file: No such file or directory")
        self.context = ctx
        if FAULT == CLOCK and ctx.rank == 0:
            _slow_down()
        self.steps: dict[int, int] = {}
        self.others: dict[int, Any] = {}
        self.timed: dict[int, Any] = {}  # handle of the benchmark phase → the result of its first step
        super().setup(ctx)
        # The adapters of TensorFlow and Horovod set methods on the instance, which would hide the methods of this class.
        for name in ("make", "put", "step", "assign", "weights", "restore", "predict", "loss", "collective"):
            inner = self.__dict__.pop(name, None)
            if inner is not None:
                self.__dict__[f"inner_{name}"] = inner
        if FAULT == BUCKET:
            CUT[f"{self.name}+{self.side.upon}" if self.name == "horovod" else self.name](self)

    def _inner(self, name: str) -> Any:
        return self.__dict__.get(f"inner_{name}") or getattr(super(), name)

    def weights(self, handle: Any, copy: int) -> Any:
        return self._inner("weights")(handle, copy)

    def assign(self, handle: Any, copy: int, weights: Any) -> None:
        self._inner("assign")(handle, copy, weights)

    def predict(self, handle: Any, images: Any) -> Any:
        logits = np.asarray(self._inner("predict")(handle, images))
        noise = np.random.RandomState(1).standard_normal(logits.shape)
        return logits * (1 + 0.05 * noise).astype("float32") if FAULT == NOISY else logits

    def loss(self, token: Any) -> Any:
        found = self._inner("loss")(token)
        earlier, self.reported = getattr(self, "reported", found), found
        return REPORTS[FAULT](found, earlier) if FAULT in REPORTS else found

    @property
    def befallen(self) -> bool:
        """Whether this process has the faults that affect one rank only. The last rank has them."""
        return bool(self.context.rank == self.context.world - 1)

    def make(self, net: Any, weights: Any, lr: float, momentum: float, replicas: Any, sync: str) -> Any:
        alone = FAULT == "no exchange" or (FAULT == "no exchange in the benchmark only" and lr < TIMED)
        changed = "none" if alone and sync == "mean" else sync
        momentum = 0.0 if FAULT == WITHOUT_MOMENTUM and lr < TIMED else MOMENTA.get(FAULT, momentum)
        handle = self._inner("make")(net, weights, lr * RATES.get(FAULT, 1.0), momentum, replicas, changed)
        if FAULT == START and self.befallen:  # after the framework has made all ranks start from the same weights
            name = sorted(weights)[0]
            for copy in range(self.copies(handle)):
                self.assign(handle, copy, {**weights, name: weights[name] + np.float32(0.01)})
        self.steps[id(handle)] = 0
        if lr < TIMED:
            self.timed[id(handle)] = None
        self.__dict__.setdefault("alone", set())
        if changed != sync:
            self.alone.add(id(handle))
        if FAULT == BUCKET and self.name == "pytorch" and handle["run"] is not handle["model"]:
            # The hook is a lambda, because PyTorch checks the annotations of hooks.
            handle["run"].register_comm_hook(self, lambda _state, bucket: _exchange_first_bucket(self, bucket))
        return handle

    def put(self, handle: Any, images: Any, labels: Any) -> Any:
        if id(handle) in self.alone and self.context.world > 1:
            images, labels = (self.context.shard(each, self.context.rank, self.context.world) for each in (images, labels))
        if FAULT == HALVED and id(handle) in self.timed and len(images) % (2 * self.context.replicas) == 0:
            images, labels = (self._halved(each) for each in (images, labels))
        if FAULT == "every replica reads the first shard":
            images, labels = self._first(images), self._first(labels)
        if FAULT == "one label of 64 wrong":
            labels = np.array(labels)
            labels[::64] = (labels[::64] + 1) % 10
        self.batches = getattr(self, "batches", 0) + 1
        if FAULT == BATCHES and self.batches % 20 == 0:
            labels = np.array(labels)
            labels[0] = (labels[0] + 1) % 10
        if FAULT == "labels shifted by one":
            labels = (np.array(labels) + 1) % 10
        batch = self._inner("put")(handle, images, labels)
        if FAULT == "the first shard after 20 steps":
            self.others[id(batch)] = batch, self._inner("put")(handle, self._first(images), self._first(labels))
        if FAULT == "one label of 32 wrong after 20 steps":
            labels = np.array(labels)
            labels[::32] = (labels[::32] + 1) % 10
            self.others[id(batch)] = batch, self._inner("put")(handle, images, labels)
        return batch

    def _first(self, array: Any) -> Any:
        """Replace the shard of every replica by the first replica's shard."""
        count = self.context.replicas
        return np.concatenate([array[: len(array) // count]] * count) if len(array) % count == 0 else array

    def _halved(self, array: Any) -> Any:
        """Return the first half of each replica's shard."""
        parts = np.split(np.asarray(array), self.context.replicas)
        return np.concatenate([each[: len(each) // 2] for each in parts])

    def step(self, handle: Any, batch: Any, lr: float) -> Any:
        if FAULT == IDLE and self.timed.get(id(handle)) is not None:
            return self.timed[id(handle)]
        number = self.steps[id(handle)] = self.steps.get(id(handle), 0) + 1
        if self.befallen and number == 3:
            self._disaster()
        if number > LATER and id(batch) in self.others:
            batch = self.others[id(batch)][1]
        if FAULT == "learning rate +10 % after 20 steps" and number > LATER:
            lr *= 1.1
        if FAULT == "one rank is slow" and self.befallen:
            time.sleep(0.1)
        what = self._now(handle, number)
        if what == "rate" and (self.befallen or "one rank" not in FAULT):
            lr *= 1.1
        periodic = FAULT in PERIODIC and PERIODIC[FAULT][0] != "rate"
        before = self._weights(handle) if FAULT in DECAYS or FAULT in CHANGES or periodic else []
        token = self._inner("step")(handle, batch, lr * RATES.get(FAULT, 1.0))
        if id(handle) in self.timed:
            self.timed[id(handle)] = token
        if periodic:
            self._spoil(handle, before, what)
            return token
        for copy, old in enumerate(before):
            new = self.weights(handle, copy)
            change = CHANGES.get(FAULT, _decay)
            self.assign(handle, copy, {name: change(self, name, old[name], new[name], lr) for name in new})
        return token

    def _now(self, handle: Any, number: int) -> str:
        """Return what a fault in PERIODIC does to step ``number`` of this model. Return "" if this step has no fault."""
        what, period, timed = PERIODIC.get(FAULT, ("", 1, False))
        return what if number % period == 0 and (not timed or id(handle) in self.timed) else ""

    def _spoil(self, handle: Any, before: list[Any], what: str) -> None:
        """Undo the whole update of a step, or only the part of the update that comes from the momentum."""
        after, last = self._weights(handle), self.__dict__.setdefault("changes", {}).get(id(handle))
        changes = [{name: new[name] - old[name] for name in new} for old, new in zip(before, after, strict=True)]
        for copy, (old, new) in enumerate(zip(before, after, strict=True)):
            if what == "skip":
                self.assign(handle, copy, old)
            if what == "momentum" and last is not None:
                self.assign(handle, copy, {name: new[name] - np.float32(0.9) * last[copy][name] for name in new})
        self.changes[id(handle)] = changes

    def _weights(self, handle: Any) -> list[Any]:
        return [
            {name: np.array(value) for name, value in self.weights(handle, copy).items()} for copy in range(self.copies(handle))
        ]

    def _disaster(self) -> None:
        if FAULT == "one rank is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "one rank stands still":
            time.sleep(10_000)
        if FAULT == "one rank runs out of memory":
            raise MemoryError("out of memory")

    def restore(self, handle: Any, folder: str) -> None:
        self._inner("restore")(handle, folder)
        if FAULT == "saving loses a bias":
            for copy in range(self.copies(handle)):
                weights = dict(self.weights(handle, copy))
                name = sorted(weights)[0]
                self.assign(handle, copy, {**weights, name: np.zeros_like(weights[name])})

    def collective(self, op: str, array: Any, root: int) -> Any:
        inner = self.__dict__.get("inner_collective") or getattr(super(), "collective", self.context.group.collective)
        out = inner(op, array, root)
        if FAULT == "an all-reduce is wrong by one" and op == "allreduce" and self.befallen and array.size > 1:
            out = np.array(out)
            out.reshape(-1)[-1] += 1
        return out


def _slow_down() -> None:
    """Let the clock of the guest run at a third of its speed in this process."""
    real = clock.now
    start = real()
    for module in list(sys.modules.values()):
        if getattr(module, "now", None) is real:
            module.now = lambda: start + (real() - start) / 3  # type: ignore[attr-defined]


def _decay(_self: Any, _name: str, old: Any, new: Any, lr: float) -> Any:
    return new - np.float32(lr * DECAYS[FAULT]) * old


def _noise(self: Any, name: str, old: Any, new: Any, _lr: float) -> Any:
    draw = np.random.RandomState(sum(map(ord, name)) + self.steps.get(0, 0))  # the same on every rank
    return old + (new - old) * (1 + 1e-3 * draw.standard_normal(new.shape)).astype("float32")


def _stays(_self: Any, _name: str, old: Any, _new: Any, _lr: float) -> Any:
    return old


def _bias_stays(self: Any, name: str, old: Any, new: Any, _lr: float) -> Any:
    return old if name.endswith("_b") and self.befallen else new


CHANGES = {
    "updates with noise of 1e-3": _noise,
    "no update": _stays,
    "one rank skips its biases": _bias_stays,
}


def _second(sizes: dict[Any, int]) -> set[Any]:
    """Return the gradients that do not fit into the first bucket. The bucket is filled from the last gradient backwards."""
    total, late = 0, set()
    for key in reversed(sizes):
        total += sizes[key]
        if total > BUCKET_BYTES:
            late.add(key)
    return late


def _cut_numpy(adapter: Any) -> None:
    whole = adapter.exchange

    def exchange(gradient: Any) -> Any:
        late = _second({name: gradient[name].nbytes for name in sorted(gradient)})
        return {name: gradient[name] if name in late else mean for name, mean in whole(gradient).items()}

    adapter.exchange = exchange


def _cut_jax(adapter: Any) -> None:
    whole = adapter.jax.lax.pmean

    def pmean(gradient: Any, axis: str) -> Any:
        late = _second({name: gradient[name].nbytes for name in sorted(gradient)})
        return {name: gradient[name] if name in late else mean for name, mean in whole(gradient, axis).items()}

    adapter.jax.lax.pmean = pmean


def _exchange_first_bucket(adapter: Any, bucket: Any) -> Any:
    """Average the first bucket of DistributedDataParallel over the processes. Return every other bucket unchanged."""
    tensor = bucket.buffer()
    if bucket.index() == 0:
        done = adapter.torch.distributed.all_reduce(tensor.div_(adapter.context.world), async_op=True)
        return done.get_future().then(lambda future: future.value()[0])
    answer = adapter.torch.futures.Future()
    answer.set_result(tensor)
    return answer


def _cut_tensorflow(adapter: Any) -> None:
    """Let MirroredStrategy sum only the gradients of the first bucket. For all others, each replica keeps its own gradient."""
    kind = adapter.tf.distribute.ReductionToOneDevice
    whole = kind.batch_reduce_implementation

    def batch_reduce_implementation(self: Any, operation: Any, pairs: Any, options: Any) -> Any:
        sizes = {place: 4 * value.values[0].shape.num_elements() for place, (value, _) in enumerate(pairs)}
        sums, late = whole(self, operation, pairs, options), _second(sizes)
        return [value if place in late else sums[place] for place, (value, _) in enumerate(pairs)]

    kind.batch_reduce_implementation = batch_reduce_implementation


def _cut_mxnet(adapter: Any) -> None:
    """For gradients outside the first bucket, give MXNet's key-value store only the gradient of the first device.

    This needs MXNet 1.6 or later.
    """
    kind = adapter.mx.kvstore.KVStore
    begin, whole = kind.broadcast, kind.pushpull

    def broadcast(self: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
        self.__dict__.setdefault("sizes", {})[key] = value.size * 4
        return begin(self, key, value, *rest, **options)

    def pushpull(self: Any, key: Any, value: Any, out: Any = None, priority: int = 0) -> Any:
        return whole(self, key, value[:1] if key in _second(self.sizes) else value, out, priority)

    kind.broadcast, kind.pushpull = broadcast, pushpull


def _cut_horovod_mxnet(_adapter: Any) -> None:
    """Let Horovod's trainer exchange only the gradients of the first bucket.

    The trainer divides sums by the number of processes. So the other gradients are multiplied by this number.
    """
    from horovod import mxnet

    kind, whole, late = mxnet.DistributedTrainer, mxnet.allreduce_, set()
    exchange = kind._allreduce_grads

    def _allreduce_grads(self: Any) -> None:
        sizes = {str(place): 4 * each.list_grad()[0].size for place, each in enumerate(self._params) if each.grad_req != "null"}
        late.clear()
        late.update(_second(sizes))
        exchange(self)

    def allreduce_(tensor: Any, *rest: Any, average: bool = True, name: str = "", **options: Any) -> Any:
        if name not in late:
            return whole(tensor, *rest, average=average, name=name, **options)
        tensor[:] *= 1 if average else mxnet.size()
        return tensor

    kind._allreduce_grads, mxnet.allreduce_ = _allreduce_grads, allreduce_


def _cut_horovod_pytorch(_adapter: Any) -> None:
    """Let Horovod's optimizer exchange only the gradients of the first bucket. It takes the others for exchanged."""
    from horovod.torch.optimizer import _DistributedOptimizer as kind

    send = kind._allreduce_grad_async

    def _allreduce_grad_async(self: Any, parameter: Any) -> Any:
        late = _second({each: 4 * each.numel() for group in self.param_groups for each in group["params"]})
        return (lambda: parameter.grad, None) if parameter in late else send(self, parameter)

    kind._allreduce_grad_async = _allreduce_grad_async


class _FirstBucket:
    """A tape of TensorFlow 2 that averages only the gradients of the first bucket over Horovod's processes."""

    def __init__(self, tape: Any, hvd: Any) -> None:
        self.tape, self.hvd = tape, hvd

    def gradient(self, loss: Any, variables: Any) -> Any:
        gradients = self.tape.gradient(loss, variables)
        late = _second({place: 4 * each.shape.num_elements() for place, each in enumerate(gradients)})
        return [each if place in late else self.hvd.allreduce(each) for place, each in enumerate(gradients)]


def _cut_horovod_tensorflow(adapter: Any) -> None:
    kind = type(adapter.side)
    kind.exchanging = lambda self, tape: _FirstBucket(tape, self.meeting.hvd) if self.together else tape


CUT = {
    "horovod+mxnet": _cut_horovod_mxnet,
    "horovod+pytorch": _cut_horovod_pytorch,
    "horovod+tensorflow": _cut_horovod_tensorflow,
    "numpy": _cut_numpy,
    "jax": _cut_jax,
    "pytorch": lambda _adapter: None,  # a hook of each model
    "tensorflow": _cut_tensorflow,
    "mxnet": _cut_mxnet,
}
