"""A training loop as a user writes it, with a stopwatch: images per second on one device.

The loop uses no code of the smoke test.

    PYTHON_WITH_TORCH benchmarks/plain_loop.py [DATA.npz] [--network lenet] [--batch 64] [--threads N] [--laps 9]
        [--lap-seconds 0.25] [--steps N] [--warm-seconds 0.5] [--freed BYTES] [--json FILE]

DATA.npz holds `images` (uint8), `labels`, and LeNet's starting weights (`conv1_w`, `conv1_b` …). Without DATA.npz the loop
trains on one random batch. A lap is a timed sequence of steps. The program prints the median speed of the laps. With --json, it
writes the speeds of all laps to a JSON file instead.

With --freed, the program first allocates and frees one block of that many bytes. From then on glibc keeps freed blocks up to
that size. By default glibc may return such memory to the system in every step:
https://man7.org/linux/man-pages/man3/mallopt.3.html (M_MMAP_THRESHOLD).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class LeNet(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.fc1, self.fc2 = nn.Linear(512, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    """Two convolutions with a shortcut connection."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        short = [nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)]
        self.short = nn.Sequential(*(short if stride > 1 else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.main(x) + self.short(x))


def resnet20() -> nn.Module:
    """The network for CIFAR-10 of https://arxiv.org/abs/1512.03385, section 4.2."""
    widths = [(16, 16, 1)] * 3 + [(16, 32, 2), (32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 64, 1)]
    head = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*head, *(Block(*each) for each in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


NETWORKS = {"lenet": (LeNet, (1, 28, 28)), "resnet20": (resnet20, (3, 32, 32))}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data", nargs="?")
parser.add_argument("--network", choices=NETWORKS, default="lenet")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--laps", type=int, default=9)
parser.add_argument("--lap-seconds", type=float, default=0.25)
parser.add_argument("--steps", type=int, default=0, help="steps of a lap (default: as many as --lap-seconds allows)")
parser.add_argument("--warm-seconds", type=float, default=0.5)
parser.add_argument("--freed", type=int, default=0, metavar="BYTES")
parser.add_argument("--json", type=Path, metavar="FILE")
options = parser.parse_args()
np.ones(options.freed, "uint8")

if options.threads:
    torch.set_num_threads(options.threads)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.backends.cudnn.benchmark = True  # has an effect on GPUs only; the usual advice if all images have the same size
torch.backends.cudnn.allow_tf32 = False  # as in the smoke test, which measures without TF32
make, shape = NETWORKS[options.network]
model = make().to(device)
if options.data:
    content = np.load(options.data)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(torch.from_numpy(content[name.replace(".weight", "_w").replace(".bias", "_b")]))
    images = torch.from_numpy(content["images"].astype("float32") / 255).to(device).split(options.batch)
    labels = torch.from_numpy(content["labels"].astype("int64")).to(device).split(options.batch)
else:
    images = [torch.rand(options.batch, *shape, device=device)]
    labels = [torch.randint(0, 10, (options.batch,), device=device)]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def train(steps: int) -> float:
    """Train for ``steps`` steps and return the seconds."""
    start = time.perf_counter()
    for i in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[i % len(images)]), labels[i % len(labels)])
        loss.backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


train(5)
warm = time.perf_counter() + options.warm_seconds
one = train(5) / 5
while time.perf_counter() < warm:
    one = train(5) / 5
count = options.steps or max(1, round(options.lap_seconds / one))
rates = [options.batch * count / train(count) for _ in range(options.laps)]
if options.json:
    told = {"device": torch.cuda.get_device_name(0) if device.type == "cuda" else "cpu", "pytorch": torch.__version__}
    told |= {"network": options.network, "batch": options.batch, "steps_per_round": count}
    options.json.write_text(json.dumps({**told, "images_per_s": rates, "median": statistics.median(rates)}, indent=1) + "\n")
else:
    print(statistics.median(rates))
