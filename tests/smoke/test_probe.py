"""`probe` measures what the machine can do. For GPUs there are stand-ins for the driver."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import FEW, Answer, Guest
from .test_driver import driver  # noqa: F401 - a fixture

ONE = "Tesla A|8|0|40"


def _measured(answer: Answer) -> dict[str, Any]:
    assert answer.code == 0, answer.err
    assert answer.report is not None
    return dict(answer.report["measured"])


@pytest.mark.parametrize("version", FEW)
def test_disk_and_network_are_measured(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    answer = guest_of(version).run("probe", "--measure=disk,network", "--disk", tmp_path, folder=tmp_path)
    disk, network = (_measured(answer)[part] for part in ("disk", "network"))
    assert disk["folder"] == str(tmp_path)
    assert min(disk[key] for key in ("read_MBps", "write_MBps", "read_4k_per_s", "write_4k_per_s")) > 0
    assert min(network[key] for key in ("there_GBps", "back_GBps", "there_4_GBps", "back_4_GBps", "latency_us")) > 0
    assert "MB/s sequentially" in answer.out
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]  # no other file is left


def test_processor_and_gpu_are_measured_with_what_they_should_reach(
    guest: Guest,
    driver: Callable[..., dict[str, str]],  # noqa: F811
    tmp_path: Path,
) -> None:
    stubs = driver(devices=ONE, driver="550.54", count="1")
    answer = guest.run("probe", "--measure=cpu,gpu", folder=tmp_path, env=guest.env(**stubs))
    found = _measured(answer)
    assert min(found["cpu"][key] for key in ("fp32_gflops", "fp64_gflops", "memory_GBps")) > 0
    gpu = found["gpu"]["devices"][0]
    assert gpu["not_measured"] == {}
    # The stand-in takes at least 2 ms for each multiplication of any size.
    assert 0 < gpu["fp32_gflops"] < 2.0 * 4096**3 / 0.002 / 1e9
    assert min(gpu[key] for key in ("fp64_gflops", "tf32_gflops", "fp16_gflops")) > 0
    assert min(gpu[key] for key in ("memory_GBps", "from_host_GBps", "to_host_GBps")) > 0
    assert "of 1555 nominal" in answer.out  # nominal: 1215 MHz, 5120 bits


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("--measure=disk", "--disk", "/nowhere"), {}, "not measured: cannot write to /nowhere: No such file or directory"),
        (("--measure=gpu",), {"STUB_DEVICES": ""}, "GPUs         not measured: there is no GPU"),
        (
            ("--measure=gpu",),
            {"ENVBUILD_SMOKE_LIBCUBLAS": "/nowhere"},
            "arithmetic not measured: this image has no libcublas",
        ),
        (
            ("--measure=gpu",),
            {"STUB_FULL": "1048576"},
            "memory not measured: cuMemAlloc_v2 on GPU 0 returns 2 (the GPU has no free memory)",
        ),
    ],
    ids=["disk", "no-gpu", "no-cublas", "full"],
)
def test_what_cannot_be_measured_says_why(
    guest: Guest,
    driver: Callable[..., dict[str, str]],  # noqa: F811
    tmp_path: Path,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    words: str,
) -> None:
    env = guest.env(**(driver(devices=ONE, driver="550.54", count="1") | variables))
    answer = guest.run("probe", *arguments, folder=tmp_path, env=env)
    assert answer.code == 0, answer.err
    assert words in answer.out


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("version", FEW[:1])
def test_two_machines_measure_the_network_between_them(
    guest: Guest, guest_of: Callable[[str], Guest], tmp_path: Path, version: str
) -> None:
    port = _free_port()
    waiting = guest.start("probe", "--listen", str(port))
    try:
        assert waiting.stderr is not None
        assert "--connect" in waiting.stderr.readline()
        answer = guest_of(version).run("probe", "--connect", f"127.0.0.1:{port}", folder=tmp_path)
        assert answer.code == 0, answer.err
        assert waiting.wait(timeout=600) == 0
    finally:
        waiting.kill()
        waiting.communicate()
    assert answer.report is not None
    assert answer.report["network"]["there_4_GBps"] > 0
    assert "latency" in answer.out


def test_nobody_listens(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("probe", "--connect", f"127.0.0.1:{_free_port()}", folder=tmp_path)
    assert answer.code == 1
    assert "Connection refused" in answer.out
    assert guest.run("probe", "--connect", "nonsense", folder=tmp_path).code == 2
