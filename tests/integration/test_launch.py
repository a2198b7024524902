"""Real launchers start the smoke test on two machines, which are network namespaces of this machine."""

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
IMAGE = "registry.example/lab/x:1"
GUEST = ("--adapter", "numpy", "--phases", "coll,oracle", "--counts", "4")


# Stands in for `docker run`: the command gets only the variables passed to it, and the mounted folder as /report.
DOCKER = """#!PYTHON
import json, os, socket, sys
words = sys.argv[1:]
assert words[:2] == ["run", "--rm"], words
at = words.index("registry.example/lab/x:1")
pairs = list(zip(words[:at], words[1:at]))
report = next(value.partition(":")[0] for option, value in pairs if option == "-v")
with open(os.path.join(report, "docker.log"), "a") as log:
    log.write(json.dumps([socket.gethostname(), words[:at], os.environ.get("SLURM_CPUS_PER_TASK", "")]) + "\\n")
given = {value: os.environ[value] for option, value in pairs if option == "-e" and value in os.environ}
given["PATH"] = os.environ["PATH"]
given["OMP_NUM_THREADS"] = "1"
command = [word.replace("/report/", report + "/") for word in words[at + 1:]]
os.execvpe(command[0], command, given)
"""


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
    """A folder for PATH with the guest's command, as in an image."""
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
    (folder / "docker").write_text(DOCKER.replace("PYTHON", sys.executable))
    (folder / "docker").chmod(0o755)
    _command(folder / "envbuild-smoke", f'PYTHONPATH={site} exec {sys.executable} {ROOT / "envbuild/smoke"} "$@"')
    return folder


def _command(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def launch(
    machines: Machines,
    commands: Path,
    folder: Path,
    via: str,
    *options: str,
    name: str = "tf-2.21-cpu",
    kind: str = "inside",
    variables: Mapping[str, str] = {},
) -> tuple[int, dict[str, Any], str]:
    """Run `envbuild launch --run` on the first machine, with two devices on each; return exit code, report and output."""
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
        "ENVBUILD_ROOT": str(ROOT),
    }
    hosts = ",".join(f"{name if via == 'slurm' else machines.address(name)}:2" for name in machines.names)
    words = (
        "launch",
        name,
        "--hosts",
        hosts,
        "--via",
        via,
        "--kind",
        kind,
        "--run",
        "--report",
        str(reports),
        "--image",
        IMAGE,
        *(option for program in ("mpirun", "ssh", "sshd", "torchrun") for option in ("--has", program)),
    )
    argv = [*machines.enter("ant"), sys.executable, "-m", "envbuild", *words, *options]
    done = subprocess.run(
        argv, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=240
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


def _containers(folder: Path) -> list[tuple[str, list[str], str]]:
    """The host, the arguments and the cores of each `docker run`, sorted by host."""
    lines = (folder / "reports" / "docker.log").read_text().splitlines()
    return sorted((host, words, cores) for host, words, cores in map(json.loads, lines))


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_open_mpi_starts_a_container_with_a_hosts_gpus(machines: Machines, commands: Path, tmp_path: Path) -> None:
    name = "tf-2.21.0-cuda12.5-py311-debian12"
    options = ("--skip-preflight", "--", *GUEST)  # the stand-in for Docker only knows `run`
    code, report, said = launch(machines, commands, tmp_path, "mpirun", *options, name=name, kind="docker")
    assert code == 0, said
    _spans(machines, report, "Open MPI")
    started = _containers(tmp_path)
    assert [host for host, _, _ in started] == ["ant", "ant", "bee", "bee"]
    assert all(words[words.index("--gpus") + 1] == "2" for _, words, _ in started)


@pytest.fixture
def cluster(machines: Machines, tmp_path: Path) -> Iterator[dict[str, str]]:
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)}")
    with slurm(tmp_path / "slurm", machines) as variables:
        yield variables


ASKED = (
    "--partition",
    "all",
    "--account",
    "lab",
    "--time",
    "10m",
    "--memory",
    "700M",
    "--cpus",
    "1",
    "--sbatch=--comment=smoke",
)


def test_slurm_accepts_every_kind_of_script(machines: Machines, cluster: dict[str, str], tmp_path: Path) -> None:
    scripts = {}
    for kind, asked in (
        ("docker", ()),
        ("docker", (*ASKED, "--shared")),
        ("pyxis", ASKED),
        ("apptainer", ASKED),
        ("inside", ()),
    ):
        words = ("launch", "tf-2.21.0-cuda12.5-py311-debian12", "--hosts", "2x2", "--via", "slurm", "--kind", kind)
        argv = [sys.executable, "-m", "envbuild", *words, "--image", IMAGE, *asked]
        scripts[kind, asked] = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for text in scripts.values():
        code, told = _rehearse(machines, cluster, text, tmp_path)
        assert code == 0, told + text
    whole = scripts["docker", ()]
    for ours, wrong in (("--nodes=2", "--nodes=3"), ("--gpus-per-node=2", "--gpus-per-node=4"), ("--mem=0", "--mem=9000M")):
        assert ours in whole
        code, told = _rehearse(machines, cluster, whole.replace(ours, wrong), tmp_path)
        assert code != 0, told
    for partition, code in (("all", 0), ("nowhere", 6)):
        words = ("launch", "tf-2.21-cpu", "--hosts", "2x2", "--via", "slurm", "--image", IMAGE, "--partition", partition)
        argv = [*machines.enter("ant"), sys.executable, "-m", "envbuild", *words, "--preflight"]
        env = os.environ | cluster
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("MISSING" in done.stderr) == bool(code) and "partition" in done.stderr, done.stderr


def _rehearse(machines: Machines, cluster: dict[str, str], text: str, folder: Path) -> tuple[int, str]:
    submit = [*machines.enter("ant"), "sbatch", "--test-only"]
    env = os.environ | cluster
    done = subprocess.run(submit, input=text, env=env, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_slurm_starts_a_container_with_the_jobs_gpus_and_all_cores(
    machines: Machines, cluster: dict[str, str], commands: Path, tmp_path: Path
) -> None:
    name = "tf-2.21.0-cuda12.5-py311-debian12"
    code, report, said = launch(
        machines, commands, tmp_path, "slurm", "--", *GUEST, name=name, kind="docker", variables=cluster
    )
    assert code == 0, said
    _spans(machines, report, "Slurm")
    started = _containers(tmp_path)
    assert [host for host, _, _ in started] == ["ant", "bee"]
    assert all(words[words.index("--gpus") + 1] == '"device=0,1"' for _, words, _ in started)
    assert [cores for _, _, cores in started] == ["2", "2"]
