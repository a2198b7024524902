"""An MPIJob as the MPI operator starts it: two pods in which sshd and mpirun run as the image's user, as the manifest says.

The pods are network namespaces with the names that the operator gives. This test acts as the operator: it makes the keys,
mounts them (owned by root, readable by all), and gives the launcher the host file and its variables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from machines import Machines, why_not

ROOT = Path(__file__).resolve().parents[2]
WORKERS = tuple(f"envbuild-smoke-worker-{number}.envbuild-smoke.ml.svc" for number in range(2))
# Sets up the image's user, its home and the mounted Secret, and runs a command as that user.
POD = """
mount --bind {folder}/passwd /etc/passwd && mount -t tmpfs none /home && mkdir -p /home/envbuild/.ssh &&
cp {folder}/keys/* /home/envbuild/.ssh && chmod 644 /home/envbuild/.ssh/* && chown 1000:1000 /home/envbuild &&
exec setpriv --reuid 1000 --regid 1000 --clear-groups --reset-env env PATH="{folder}/bin:$PATH" {variables} "$@"
"""
MISSING = [
    name
    for name in ("mpirun", "sshd", "ssh", "ssh-keygen", "setpriv")
    if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the image's user can read; pytest's own temporary folder is readable by root only."""
    made = Path(tempfile.mkdtemp(prefix="mpijob-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def pods(folder: Path) -> Iterator[Machines]:
    if why_not() or MISSING:
        pytest.skip(why_not() or f"not installed: {', '.join(MISSING)}")
    scratch = folder / "scratch"
    scratch.mkdir()
    with Machines(scratch, *WORKERS) as made:
        yield made


def _manifest() -> dict[str, Any]:
    words = ("launch", "tf-2.21-cpu", "--hosts", "2x2", "--via", "kubernetes", "--kind", "mpijob", "--namespace", "ml")
    image = ("--image", "x", "--has", "mpirun", "--has", "ssh", "--has", "sshd", "--env", "NOTE=it's two words")
    argv = [sys.executable, "-m", "envbuild", *words, *image]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def _words(manifest: dict[str, Any], role: str) -> list[str]:
    (container,) = manifest["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"]
    return list(container["args"])


def test_mpirun_reaches_the_workers_as_the_images_user(pods: Machines, folder: Path) -> None:
    manifest = _manifest()
    assert manifest["spec"]["sshAuthMountPath"] == "/home/envbuild/.ssh"
    (folder / "keys").mkdir()
    key = folder / "keys" / "id_rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(key)], check=True)
    shutil.copy(folder / "keys" / "id_rsa.pub", folder / "keys" / "authorized_keys")
    (folder / "passwd").write_text(Path("/etc/passwd").read_text() + "envbuild:x:1000:1000::/home/envbuild:/bin/sh\n")
    (folder / "bin").mkdir()
    rank = folder / "bin" / "envbuild-smoke"
    rank.write_text(
        '#!/bin/sh\necho "rank=$OMPI_COMM_WORLD_RANK host=$(hostname) user=$(id -u) at=$MASTER_ADDR note=$NOTE words=$*"\n'
    )
    rank.chmod(0o755)
    (folder / "hostfile").write_text("".join(f"{name} slots={manifest['spec']['slotsPerWorker']}\n" for name in WORKERS))

    servers = [_start(pods, folder, name, _words(manifest, "Worker")) for name in WORKERS]
    try:
        for name, server in zip(WORKERS, servers, strict=True):
            _wait_until_it_listens(pods, name, server)
        told = (
            "OMPI_MCA_orte_keep_fqdn_hostnames=true",
            f"OMPI_MCA_orte_default_hostfile={folder}/hostfile",
            "OMPI_MCA_plm_rsh_args=wrong",
        )
        launcher = _start(pods, folder, WORKERS[0], _words(manifest, "Launcher"), *told)
        out, _ = launcher.communicate(timeout=300)
    finally:
        for server in servers:
            server.kill()
    logs = out + "".join(server.communicate()[0] for server in servers)
    assert launcher.returncode == 0, logs
    lines = sorted(line for line in out.splitlines() if line.startswith("rank="))
    assert lines == [
        f"rank={number} host={WORKERS[number // 2]} user=1000 at={WORKERS[0]} note=it's two words words=run"
        for number in range(4)
    ], logs


def _wait_until_it_listens(pods: Machines, name: str, server: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not subprocess.run([*pods.enter(name), "ss", "-Hltn"], capture_output=True, text=True, check=True).stdout:
        assert server.poll() is None and time.monotonic() < until, f"sshd of {name} does not start"
        time.sleep(0.05)


def _start(pods: Machines, folder: Path, name: str, words: list[str], *variables: str) -> subprocess.Popen[str]:
    script = POD.format(folder=folder, variables=" ".join(variables))
    argv = [*pods.enter(name), "sh", "-c", script, "pod", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
