"""How exact is the gradient of a convolution's kernel on a GPU, for each setting of how cuDNN chooses an algorithm?

    python benchmarks/gpu/kernels.py --json FILE

Computes the gradients of both convolutions of LeNet for random numbers, with PyTorch in single precision, and compares them
with the gradients in float64 on the CPU. The error is relative to the gradient. The profiler gives the names of the programs
(called kernels, too) that the GPU ran.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

SCHEMA = "envbuild-gpu-kernels/1"
CONVOLUTIONS = {"conv1": (1, 16, 28), "conv2": (16, 32, 12)}  # name → (input channels, output channels, width)
SIZE = 5
BATCHES = (32, 64, 128)
CHOICES = {"default": (False, False), "deterministic": (True, False), "benchmark": (False, True)}


def gradient(images: np.ndarray, above: np.ndarray, dtype: torch.dtype, device: str) -> np.ndarray:
    """Return the gradient of the kernel for ``images``. ``above`` is the gradient with respect to the output."""
    x, dy = (torch.from_numpy(array).to(device, dtype) for array in (images, above))
    kernel = torch.zeros(dy.shape[1], x.shape[1], SIZE, SIZE, device=device, dtype=dtype, requires_grad=True)
    functional.conv2d(x, kernel).backward(dy)
    assert kernel.grad is not None
    found: np.ndarray = kernel.grad.cpu().double().numpy()
    return found


def measured(device: str) -> list[dict[str, object]]:
    """Return the error for each convolution, each batch size and each setting in CHOICES."""
    draw, rows = np.random.RandomState(0), []
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    for name, (channels, out, width) in CONVOLUTIONS.items():
        for batch in BATCHES:
            images = draw.rand(batch, channels, width, width)
            above = draw.randn(batch, out, width - SIZE + 1, width - SIZE + 1)
            want = gradient(images, above, torch.float64, "cpu")
            for choice, (deterministic, benchmark) in CHOICES.items():
                torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, benchmark
                gradient(images, above, torch.float32, device)
                with profile(activities=[activity]) as seen:
                    got = gradient(images, above, torch.float32, device)
                names = {re.split(r"[<(]", event.key)[0].removeprefix("void ") for event in seen.key_averages()}
                rows.append(
                    {
                        "convolution": name,
                        "batch": batch,
                        "choice": choice,
                        "error": float(np.linalg.norm(got - want) / np.linalg.norm(want)),
                        "kernels": sorted(each for each in names if re.search("wgrad|winograd|dgrad", each, re.IGNORECASE)),
                    }
                )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    facts = {"schema": SCHEMA, "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu"}
    options.json.write_text(json.dumps({**facts, "rows": measured(device)}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
