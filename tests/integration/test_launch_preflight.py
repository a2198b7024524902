"""`envbuild launch --preflight` examines real hosts: two network namespaces, and this machine over a real ssh."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import Machines, why_not

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "registry.example/lab/x:1"
GPU_IMAGE = "tf-2.21.0-cuda12.5-py311-debian12"
# Stand-ins for Docker and nvidia-smi. Host ant has everything; bee lacks the image and has one GPU with an old driver.
DOCKER = """#!/bin/sh
case "$(hostname):$*" in
*:version*) echo 27.0.1 ;;
*:info*DockerRootDir*) echo / ;;
*:info*Runtimes*) echo runc nvidia ;;
bee:image*) echo "Error: No such image" >&2; exit 1 ;;
bee:manifest*) echo "unauthorized: authentication required" >&2; exit 1 ;;
*:image*) echo sha256:1 ;;
*) exit 9 ;;
esac
"""
NVIDIA_SMI = """#!/bin/sh
if [ "$(hostname)" = ant ]; then
    echo "570.86.15, NVIDIA A100-SXM4-40GB"
    echo "570.86.15, NVIDIA A100-SXM4-40GB"
else
    echo "470.57.02, NVIDIA A100-SXM4-40GB"
fi
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if why_not():
        pytest.skip(why_not())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Machines(scratch, "ant", "bee") as made:
        yield made


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in (("docker", DOCKER), ("nvidia-smi", NVIDIA_SMI), ("orted", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def preflight(*words: str, env: dict[str, str]) -> tuple[int, dict[str, Any], str]:
    """Run the preflight; return the exit code, the findings of each host by id, and the text output."""
    argv = [sys.executable, "-m", "envbuild", "launch", *words, "--preflight", "--json"]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    hosts = {each["name"]: {one["id"]: one for one in each["findings"]} for each in document["preflight"]["hosts"]}
    return done.returncode, hosts, done.stderr


def missing(findings: dict[str, Any]) -> set[str]:
    return {id_ for id_, each in findings.items() if each["status"] == "missing"}


def test_each_host_says_what_it_lacks(machines: Machines, programs: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "ENVBUILD_RSH": str(machines.remote_shell(tmp_path))}
    ant, bee = (machines.address(name) for name in ("ant", "bee"))
    words = (GPU_IMAGE, "--hosts", f"{ant}:2,{bee}:2", "--via", "mpirun", "--image", IMAGE)
    code, hosts, said = preflight(*words, "--interface", "eth0", env=env)
    assert code == 6
    assert missing(hosts[ant]) == set(), said
    assert missing(hosts[bee]) == {"image", "gpu-count", "fits"}
    assert "unauthorized" in hosts[bee]["image"]["message"]
    assert "1 of the 2" in hosts[bee]["gpu-count"]["message"]
    assert "470.57.02" in hosts[bee]["fits"]["message"]
    assert f"{ant}: ready" in said and f"{bee}: not ready" in said and "→" in said


def test_network_and_folder_are_looked_at(machines: Machines, programs: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "ENVBUILD_RSH": str(machines.remote_shell(tmp_path))}
    ant, bee = (machines.address(name) for name in ("ant", "bee"))
    words = ("tf-2.21-cpu", "--hosts", f"{ant}:2,{bee}:2", "--via", "torchrun", "--has", "torchrun", "--image", IMAGE)
    listen = "import socket, time; s = socket.create_server(('0.0.0.0', 29700)); print('listens', flush=True); time.sleep(60)"
    listener = subprocess.Popen([*machines.enter("ant"), sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
    assert listener.stdout is not None
    machines.cut("bee")
    try:
        assert listener.stdout.readline() == "listens\n"
        code, hosts, said = preflight(
            *words, "--port", "29700", "--interface", "ib0", "--report", str(tmp_path / "none"), env=env
        )
    finally:
        listener.kill()
    assert code == 6
    assert missing(hosts[ant]) == {"port", "interface", "folder"}, said
    assert missing(hosts[bee]) == {"image", "port", "interface"}, said
    assert "eth0" in hosts[bee]["interface"]["message"]


def test_run_starts_nothing_where_a_host_is_not_ready(machines: Machines, programs: Path, tmp_path: Path) -> None:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "ENVBUILD_RSH": str(machines.remote_shell(tmp_path))}
    hosts = ",".join(f"{machines.address(name)}:1" for name in ("ant", "bee"))
    words = ("launch", "tf-2.21-cpu", "--hosts", hosts, "--via", "torchrun", "--has", "torchrun", "--image", IMAGE, "--run")
    argv = [sys.executable, "-m", "envbuild", *words]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 6 and "--skip-preflight" in done.stderr, done.stderr
    started = subprocess.run(
        [*argv, "--skip-preflight"], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert started.returncode == 9, started.stderr  # the stand-in for Docker has no `run`


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[str]:
    """The command that enters this machine over ssh; a server for the test listens on loopback."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None or os.geteuid() != 0:
        pytest.skip("no sshd here, or not root")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = (f"AuthorizedKeysFile={key}.pub", "StrictModes=no", "PidFile=none", "UsePAM=no", "PermitRootLogin=yes")
    options = [word for each in settings for word in ("-o", each)]
    argv = [server, "-De", "-f", "/dev/null", "-h", str(key), "-p", port, "-o", "ListenAddress=127.0.0.1", *options]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not listens(int(port)):
            assert time.monotonic() < until, "sshd does not start"
            time.sleep(0.05)
        asked = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
        yield f"ssh -i {key} -p {port} {' '.join(f'-o {each}' for each in asked)}"
    finally:
        process.kill()
        process.wait()


def test_a_host_behind_a_real_ssh(ssh: str, tmp_path: Path) -> None:
    assert getpass.getuser() == "root"
    folder = tmp_path / "it's here"
    folder.mkdir()
    words = ("tf-2.21-cpu", "--hosts", "127.0.0.1:2", "--via", "torchrun", "--kind", "inside", "--has", "torchrun")
    code, hosts, said = preflight(*words, "--interface", "lo", "--report", str(folder), env={"ENVBUILD_RSH": ssh})
    assert code == 6
    assert missing(hosts["127.0.0.1"]) == {"program"}, said  # neither torchrun nor the guest is installed here
    code, hosts, said = preflight(*words, env={"ENVBUILD_RSH": f"{ssh} -o PubkeyAuthentication=no"})
    assert (code, missing(hosts["127.0.0.1"])) == (6, {"reach"})
    assert "Permission denied" in hosts["127.0.0.1"]["reach"]["message"], said
