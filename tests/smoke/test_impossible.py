"""What cannot work is refused before any rank starts, in one sentence with a remedy."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FEW, Guest

NUMPY = ("run", "--adapter", "numpy", "--device", "cpu")
CORES = len(os.sched_getaffinity(0))
NO_LOOPBACK = ("unshare", "--net")  # in a new network namespace, the interface lo is down


@pytest.mark.parametrize("version", FEW)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--counts", "99999"), ("99999 workers are too many for", f"at most {max(16, 8 * CORES)}")),
        (("--counts", "2", "--batch", "3", "--scaling", "strong"), ("3 images", "2 devices", "--batch 4")),
        (("--counts", "1,2,3", "--batch", "8", "--scaling", "strong"), ("8 images", "3 devices", "--batch 12")),
        (("--counts", "1", "--train-images", "1"), ("--train-images 1 ", "at least 64")),
        (("--counts", "1,3", "--train-images", "65"), ("--train-images 65 ", "at least 66")),
    ],
)
def test_it_is_refused_in_a_sentence(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    answer = guest_of(version).run(*NUMPY, *arguments, folder=tmp_path)
    assert (answer.code, answer.out, answer.report, answer.err.count("\n")) == (2, "", None, 1)
    assert answer.err.startswith("envbuild-smoke: ")
    assert all(each in answer.err for each in words), answer.err


def test_a_scaling_that_some_devices_can_do_is_not_refused(guest: Guest, tmp_path: Path) -> None:
    bench = ("--phases", "bench", "--rounds", "3", "--round-seconds", "0.05", "--batch", "3", "--warmup-max", "10")
    answer = guest.run(*NUMPY, *bench, "--counts", "2", "--scaling", "weak,strong", folder=tmp_path)
    assert answer.code == 0, answer.err
    assert answer.report is not None
    assert "Strong scaling with 2 devices was not measured: 3 images cannot be divided equally." in answer.report["notes"]


def test_without_a_loopback_interface_several_ranks_fail_at_once(guest: Guest, tmp_path: Path) -> None:
    if subprocess.run([*NO_LOOPBACK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a network namespace")
    began = time.monotonic()
    answer = guest.run(*NUMPY, "--phases", "coll", "--counts", "2", folder=tmp_path, prefix=NO_LOOPBACK)
    assert (answer.code, answer.failed()) == (1, {"LOOPBACK"}), answer.err
    assert time.monotonic() - began < 60  # without the check, the ranks wait for two minutes
    assert "ip link set lo up" in answer.check("LOOPBACK")["next_step"]
    alone = guest.run(*NUMPY, "--phases", "coll", "--counts", "1", folder=tmp_path, prefix=NO_LOOPBACK)
    assert alone.code == 0, alone.err
