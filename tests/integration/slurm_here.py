"""A temporary Slurm with several nodes, each in its own network namespace."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from machines import Machines

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
_UP_WITHIN_S = 60


def _configuration(folder: Path, machines: Machines) -> str:
    first = machines.names[0]
    nodes = "".join(
        f"NodeName={name} NodeAddr={machines.address(name)} CPUs=2 RealMemory=800 Gres=gpu:2 State=UNKNOWN\n"
        for name in machines.names
    )
    return f"""\
ClusterName=two
SlurmctldHost={first}({machines.address(first)})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def slurm(folder: Path, machines: Machines) -> Iterator[dict[str, str]]:
    """Run Slurm until the block ends; yield the environment variables for its commands.

    The commands must run on one of the machines.
    """
    (folder / "state").mkdir(parents=True)
    (folder / "slurm.conf").write_text(_configuration(folder, machines))
    # Any character devices can stand in for GPUs, because nothing opens them.
    (folder / "gres.conf").write_text("Name=gpu File=/dev/tty[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    files = [f"--{what}-file={folder}/munge.{what}" for what in ("pid", "log", "seed")]
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}", *files]
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        with (folder / "daemons.log").open("ab") as log:
            started.append(subprocess.Popen(argv, env=os.environ | variables, stdout=log, stderr=log, start_new_session=True))

    try:
        start(*munge)
        first = machines.enter(machines.names[0])
        start(*first, "slurmctld", "-D")
        for name in machines.names:
            start(*machines.enter(name), "slurmd", "-D", "-N", name)
        _wait_for_nodes(first, variables, folder, len(machines.names))
        yield variables
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_nodes(enter: tuple[str, ...], variables: dict[str, str], folder: Path, count: int) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    said = ""
    while time.monotonic() < until:
        argv = [*enter, "sinfo", "--noheader", "--format=%D %t"]
        done = subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if f"{count} idle" in done.stdout:
            return
        time.sleep(0.5)
    logs = "".join(path.read_text(errors="replace")[-1500:] for path in sorted(folder.glob("*.log")))
    raise AssertionError(f"Slurm did not come up: {said}\n{logs}")
