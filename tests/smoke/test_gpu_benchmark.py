"""benchmarks/gpu on a machine without a GPU: libraries stand in for the driver, the NumPy adapter for the frameworks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import FAULTY, REPOSITORY, Guest
from .test_driver import driver

__all__ = ["driver"]
HERE = REPOSITORY / "benchmarks" / "gpu"
DATE, DEVICE = "2026-11-22", "Tesla A"
PATIENT = ("--slower", "20", "--minutes", "30")  # longer limits, because the normal ones are for a GPU


def _run(guest: Guest, env: dict[str, str], folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    adapters = folder / "adapters"
    for name in ("pytorch", "jax"):
        (adapters / name).mkdir(parents=True, exist_ok=True)
        # benchmarks/gpu/run passes no options to adapters, so the copy has its fault built in.
        text = FAULTY.read_text().replace("ctx.options.get('fault', '')", "'elsewhere'")
        (adapters / name / "smoke.py").write_text(text)
    argv = [
        sys.executable,
        HERE / "run",
        "--out",
        folder / "out",
        "--adapters",
        adapters,
        "--python",
        guest.executable,
        *arguments,
    ]
    done = subprocess.run(list(map(str, argv)), env=env, capture_output=True, text=True, check=False, timeout=1800)
    summary = folder / "out" / "summary.json"
    return done.returncode, done.stdout + done.stderr, json.loads(summary.read_text()) if summary.exists() else {}


def _take_in(folder: Path, *arguments: str) -> tuple[int, str]:
    argv = [sys.executable, str(HERE / "take_in"), str(folder), "--to", str(folder.parent / "kept"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_part_has_its_file_and_its_end(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    env = guest.env(**driver(devices=f"{DEVICE}|8|0|40", driver="550.54", count="1"))
    code, said, summary = _run(guest, env, tmp_path, "--only", "probe,two-ranks,plain", *PATIENT)
    ended = {part["name"]: part for part in summary["parts"]}
    assert list(ended) == ["probe", "two-ranks", "plain"]
    assert [ended[name]["status"] for name in ("probe", "two-ranks")] == [0, 0], said
    report = json.loads((tmp_path / "out" / "two-ranks.json").read_text())
    passed = {check["id"] for check in report["checks"] if (check["n"], check["status"]) == (2, "pass")}
    assert {"COLL", "ORACLE", "REPLICA", "BUCKETS", "EXCHANGE"} <= passed
    # PyTorch is not installed: the part says so, and the results of earlier parts are kept.
    assert (code, ended["plain"]["file"]) == (1, None)
    assert "No module named 'torch'" in ended["plain"]["output_end"]
    code, said = _take_in(tmp_path / "out", "--dry-run")
    assert (code, "plain left no answer: ModuleNotFoundError: No module named 'torch'" in said) == (1, True)


def test_a_part_that_hangs_is_stopped_with_all_it_started(guest: Guest, tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    slow.chmod(0o755)
    code, said, summary = _run(guest, guest.env(), tmp_path, "--only", "probe,plain", "--python", str(slow), "--minutes", "0.3")
    assert (code, summary["parts"][0]["timed_out"], summary["parts"][1]["status"]) == (1, True, None), said
    assert "plain: no time was left" in said


def _folder(tmp_path: Path, **changes: Any) -> Path:
    """The files of a run without problems, except for the changes."""
    folder = tmp_path / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    smoke = {"status": "pass", "reason": "", "duration_s": 30, "framework": None, "checks": []}
    parameters = {"conv1_w": 1e-4, "conv1_b": 1e-6, "fc1_w": 2e-6}
    healthy = {"status": "pass", "error": 1e-4, "parameters": parameters, "named": "", "message": "", "seed": 7}
    content = {
        "probe": {"devices": [{"name": DEVICE, "cc": "8.0", "mem_bytes": 1}], "host": {"driver": "550.54"}, "measured": None},
        "pytorch": {**smoke, "runs": [{"net": "resnet20", "n": 1, "images_per_s": {"solo": 1040.0}}]},
        "two-ranks": smoke,
        "jax": smoke,
        "reference": {
            "runs": [
                {**healthy, "setting": "float32", "steps": [{"fc1_w": 3e-6}]},
                {**healthy, "setting": "tf32", "status": "warn"},
            ]
        },
        "faults": {
            "runs": [
                {**healthy, "fault": "none", "expected": ""},
                {**healthy, "fault": "momentum 0.95", "expected": "momentum", "status": "fail", "named": "momentum"},
            ]
        },
        "kernels": {"rows": [{"convolution": "conv1", "batch": 32, "choice": "default", "error": 4e-7, "kernels": []}]},
        "plain": {"network": "resnet20", "batch": 256, "median": 1000.0},
    }
    content.update(changes)
    parts = []
    for name, value in content.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
        file = f"{name}.json" if value is not None else None
        parts.append({"name": name, "status": 0, "timed_out": value is None, "seconds": 1.0, "file": file, "output_end": ""})
    (folder / "summary.json").write_text(json.dumps({"date": DATE, "commit": "c", "parts": parts}))
    return folder


def test_figures_are_kept_with_device_and_date(tmp_path: Path) -> None:
    code, said = _take_in(_folder(tmp_path))
    assert code == 0, said
    kept = json.loads((tmp_path / "kept" / f"{DATE}-tesla-a.json").read_text())
    assert (kept["problems"], kept["reference"]["float32"]["runs"], kept["throughput"]["smoke"]) == ([], 1, 1040.0)
    assert kept["reference"]["float32"]["largest"] == {"kernels": 1e-4, "others": 2e-6}
    assert (kept["reference"]["float32"]["step_runs"], kept["reference"]["float32"]["steps"]) == (1, {"others": 3e-6})


RUN = {
    **{"status": "pass", "error": 1e-6, "parameters": {"fc1_w": 1e-6}, "named": "", "message": "as it should be"},
    **{"seed": 7, "setting": "float32"},
}
WRONG = {
    "a false alarm": ({"reference": {"runs": [{**RUN, "status": "fail"}]}}, "1 of 1 healthy runs (float32) ended with fail"),
    "a fault that passes": (
        {"faults": {"runs": [{**RUN, "fault": "noise", "expected": ""}]}},
        "noise (seed 7) ended with pass",
    ),
    "a fault under another name": (
        {"faults": {"runs": [{**RUN, "status": "fail", "fault": "decay", "expected": "weight-decay", "named": "nesterov"}]}},
        "decay (seed 7) was called nesterov, not weight-decay",
    ),
    "figures that a user does not get": (
        {"plain": {"network": "resnet20", "batch": 256, "median": 800.0}},
        "a plain loop trains 800 images/s, the smoke test says 1040",
    ),
    "a part out of time": ({"jax": None}, "jax left no answer: out of time"),
    "a failed smoke test": (
        {"jax": {"status": "fail", "reason": "1 check failed", "duration_s": 1, "framework": None, "checks": []}},
        "jax: fail: 1 check failed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(tmp_path: Path, name: str) -> None:
    changes, words = WRONG[name]
    code, said = _take_in(_folder(tmp_path, **changes), "--dry-run")
    assert (code, words in said, (tmp_path / "kept").exists()) == (1, True, False), said


def test_a_run_without_a_gpu_proves_nothing(tmp_path: Path) -> None:
    code, said = _take_in(_folder(tmp_path, probe={"devices": [], "host": {}}))
    assert (code, (tmp_path / "kept").exists()) == (2, False)
    assert "is a run without a GPU" in said
