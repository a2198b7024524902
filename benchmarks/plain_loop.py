"""A training loop as a user writes it, with a stopwatch: images a second of LeNet on one device.

It knows nothing of the smoke test.

    PYTHON_WITH_TORCH benchmarks/plain_loop.py DATA.npz [--batch 64] [--threads 1] [--laps 9] [--lap-seconds 0.25]
        [--freed BYTES]

DATA.npz holds `images` (uint8), `labels`, and the starting weights (`conv1_w`, `conv1_b` …). Prints one number.

--freed allocates and frees one block first. glibc then keeps freed memory of that size, where by default it may give it
back in every step: https://man7.org/linux/man-pages/man3/mallopt.3.html (M_MMAP_THRESHOLD).
"""

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class LeNet(nn.Module):
    """Two convolutions, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.fc1, self.fc2 = nn.Linear(512, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--laps", type=int, default=9)
parser.add_argument("--lap-seconds", type=float, default=0.25)
parser.add_argument("--freed", type=int, default=0, metavar="BYTES")
options = parser.parse_args()
np.ones(options.freed, "uint8")

torch.set_num_threads(options.threads)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
content = np.load(options.data)
model = LeNet().to(device)
with torch.no_grad():
    for name, tensor in model.named_parameters():
        tensor.copy_(torch.from_numpy(content[name.replace(".weight", "_w").replace(".bias", "_b")]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
images = torch.from_numpy(content["images"].astype("float32") / 255).to(device).split(options.batch)
labels = torch.from_numpy(content["labels"].astype("int64")).to(device).split(options.batch)


def train(steps: int) -> float:
    """Seconds."""
    start = time.perf_counter()
    for i in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[i % len(images)]), labels[i % len(labels)])
        loss.backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


train(20)
count = max(1, round(options.lap_seconds / (train(10) / 10)))
print(options.batch * count / statistics.median(train(count) for _ in range(options.laps)))
