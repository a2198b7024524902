"""Real launchers start the smoke test on two machines, which are network namespaces of this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from machines import Machines, why_not
from slurm_here import PROGRAMS, slurm

ROOT = Path(__file__).resolve().parents[2]
GUEST = ("--adapter", "numpy", "--phases", "coll,oracle", "--counts", "4")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Machines(scratch, "ant", "bee") as made:
        yield made


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH, with the guest's command as an image has it."""
    folder = tmp_path_factory.mktemp("commands")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuild" / "test-guests"
    site = cache / f"launch-py{sys.version_info.major}.{sys.version_info.minor}"
    if not site.exists():
        fresh = folder / "site"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(fresh), "numpy"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"NumPy cannot be installed: {done.stderr.strip()[-300:]}")
        cache.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, site)
    _command(folder / "envbuild-smoke", f'PYTHONPATH={site} exec {sys.executable} {ROOT / "envbuild/smoke"} "$@"')
    return folder


def _command(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def launch(
    machines: Machines, commands: Path, folder: Path, via: str, *options: str, variables: Mapping[str, str] = {}
) -> tuple[int, dict[str, Any], str]:
    """`envbuild launch --run` on the first machine, two devices on each: status, report, output."""
    shell = machines.remote_shell(folder)
    reports = folder / "reports"
    reports.mkdir()
    environment = {
        **variables,
        "PATH": f"{commands}:{os.environ['PATH']}:/usr/sbin",
        "OMP_NUM_THREADS": "1",
        "OMPI_MCA_plm_rsh_agent": str(shell),
        "ENVBUILD_RSH": str(shell),
        "ENVBUILD_HOME": str(folder / "home"),
    }
    hosts = ",".join(f"{name if via == 'slurm' else machines.address(name)}:2" for name in machines.names)
    words = (
        "launch",
        "tf-2.21-cpu",
        "--hosts",
        hosts,
        "--via",
        via,
        "--kind",
        "inside",
        "--run",
        "--report",
        str(reports),
        "--image",
        "none",
    )
    argv = [*machines.enter("ant"), sys.executable, "-m", "envbuild", *words, *options]
    done = subprocess.run(
        argv, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=240
    )
    report = reports / "report.json"
    return done.returncode, json.loads(report.read_text()) if report.exists() else {}, done.stdout + done.stderr


def _spans(machines: Machines, report: dict[str, Any], launcher: str) -> None:
    assert (report["status"], report["launcher"]) == ("pass", launcher)
    assert [(host["name"], host["address"], host["devices"]) for host in report["hosts"]] == [
        (name, machines.address(name), 2) for name in machines.names
    ]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_open_mpi(machines: Machines, commands: Path, tmp_path: Path) -> None:
    code, report, said = launch(machines, commands, tmp_path, "mpirun", "--interface", "eth0", "--", *GUEST)
    assert code == 0, said
    _spans(machines, report, "Open MPI")
    assert "PASS" in said


@pytest.mark.prove
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_the_verdict_of_rank_0_comes_out_of_mpirun(machines: Machines, commands: Path, tmp_path: Path) -> None:
    planted = ("--adapter", str(ROOT / "tests/smoke/inside/faulty.py"), "--option", "fault=killed", "--phases", "oracle")
    code, report, said = launch(machines, commands, tmp_path, "mpirun", "--", *planted, "--counts", "4")
    assert (code, report["status"]) == (9, "fail"), said
    assert "rank 3 in phase" in report["reason"] and "SIGKILL" in report["reason"]


@pytest.mark.prove
def test_torchrun(machines: Machines, commands: Path, tmp_path: Path) -> None:
    torchrun = os.environ.get("ENVBUILD_TORCHRUN") or shutil.which("torchrun")
    if not torchrun:
        pytest.skip("torchrun is not here: ENVBUILD_TORCHRUN names one")
    _command(commands / "torchrun", f'exec {torchrun} "$@"')
    code, report, said = launch(machines, commands, tmp_path, "torchrun", "--", *GUEST)
    assert code == 0, said
    _spans(machines, report, "torchrun")


@pytest.mark.prove
def test_slurm(machines: Machines, commands: Path, tmp_path: Path) -> None:
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)}")
    with slurm(tmp_path / "slurm", machines) as variables:
        code, report, said = launch(machines, commands, tmp_path, "slurm", "--", *GUEST, variables=variables)
    assert code == 0, said
    _spans(machines, report, "Slurm")
