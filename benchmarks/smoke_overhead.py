"""How much time does the smoke test's code add to a training step? A loop as a person would write it is the comparison.

    PYTHON_WITH_TORCH benchmarks/smoke_overhead.py [--workers 1,2] [--rounds 61] [--steps 5] [--batch 64] [--limit 1.02]

Both loops train the same network in the same processes and take turns. Each loop is the first one in every other round, so that
other load on the machine affects both alike. The result is the median of the ratios of all rounds, with its interval. It is
computed for wall-clock time and for the processor time of rank 0, which other load on the machine lengthens less. The network
is the smallest one (LeNet), because added time has the largest share of a step there. Exits with 1 if the lower end of the
interval is above the limit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import guest

LR = 1e-4
BATCHES = 8


def bare(torch: Any, weights: dict[str, Any], data: list[tuple[Any, Any]], world: int) -> Callable[[int], None]:
    """Return a loop as in a tutorial, a function of the number of steps. The loop uses no code of the smoke test.

    The loop begins with the smoke test's weights. With PyTorch's own initial weights a step took up to 7 % less time, because
    other units are active.
    """
    nn, functional = torch.nn, torch.nn.functional

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
            self.fc1, self.fc2 = nn.Linear(512, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
            x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
            return self.fc2(functional.relu(self.fc1(x.flatten(1))))

    device = data[0][0].device
    model = LeNet().to(device)
    kinds = {"weight": "_w", "bias": "_b"}
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            layer, kind = name.split(".")
            tensor.copy_(torch.from_numpy(weights[layer + kinds[kind]]))
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)

    def steps(count: int) -> None:
        if world > 1:
            torch.distributed.barrier()
        for i in range(count):
            x, y = data[i % len(data)]
            sgd.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            sgd.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if world > 1:
            torch.distributed.barrier()

    return steps


def timed(loop: Callable[[int], Any], steps: int) -> tuple[float, float]:
    """Return the wall-clock seconds and this process's processor seconds for ``steps`` steps."""
    start, busy = time.perf_counter(), time.process_time()
    loop(steps)
    return time.perf_counter() - start, time.process_time() - busy


def work(rank: int, world: int, folder: str, options: argparse.Namespace) -> None:
    """Run one process: time both loops in turn; rank 0 writes the ratios to a file."""
    guest.load()
    import torch
    from envbuild_smoke import adapters
    from envbuild_smoke.datasets import synth
    from envbuild_smoke.networks import nets
    from envbuild_smoke.rank import bench
    from envbuild_smoke.rank.context import Context
    from envbuild_smoke.rank.group import Group

    group = Group(rank, world, f"file:{folder}/rendezvous")
    adapter = adapters.load(guest.adapter_of(options.adapter))()
    adapter.setup(Context(rank, world, options.device, [rank], world, options.threads, {}, 7, group))
    weights = nets.LENET.initial(7)
    handle = adapter.make(nets.LENET, weights, LR, 0.9, [0], "mean")
    images, labels = synth.digits(BATCHES * options.batch * world, 3)
    cut = options.batch * world
    data = [adapter.put(handle, images[i * cut : (i + 1) * cut], labels[i * cut : (i + 1) * cut]) for i in range(BATCHES)]
    mode = bench.Mode("dp", handle, lambda i: data[i % BATCHES])
    loops = {"bare": bare(torch, weights, data, world), "harness": lambda steps: bench.lap(group, adapter, mode, steps)}
    for loop in loops.values():
        loop(10)
    ratios: dict[str, list[float]] = {"time": [], "processor time": []}
    for number in range(options.rounds):
        seconds = {
            name: timed(loops[name], options.steps) for name in (sorted(loops) if number % 2 else sorted(loops, reverse=True))
        }
        for place, values in enumerate(ratios.values()):
            values.append(seconds["harness"][place] / seconds["bare"][place])
    if rank == 0:
        Path(folder, "ratios.json").write_text(json.dumps([ratios, seconds["bare"][0] / options.steps]))
    adapter.close()
    group.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default="pytorch", help="the recipe of PyTorch, or the file of an adapter for PyTorch")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=1.02)
    options = parser.parse_args()
    guest.load()
    from envbuild_smoke import stats

    code = 0
    for world in map(int, options.workers.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            spawn = multiprocessing.get_context("spawn")
            ranks = [spawn.Process(target=work, args=(rank, world, folder, options)) for rank in range(world)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
            ratios, step_s = json.loads(Path(folder, "ratios.json").read_text())
        print(f"{world} workers, {options.rounds} rounds of {options.steps} steps, {1e3 * step_s:.1f} ms each: harness / bare")
        for what, values in ratios.items():
            gain = stats.summary(values)
            print(f"  {what:<15} {gain['median']:.4f} [{gain['lo']:.4f}, {gain['hi']:.4f}], limit {options.limit}")
            code |= gain["lo"] > options.limit
    return code


if __name__ == "__main__":
    sys.exit(main())
