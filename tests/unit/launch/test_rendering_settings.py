"""Requests to a site's launcher: batch settings, names of images, and programs that the image must contain."""

import dataclasses
import re

import pytest
from launch_orders import FULL, LAUNCHERS, PLAIN, text_of

from envbuild.errors import UsageError
from envbuild.launch.hosts import read_hosts
from envbuild.launch.launchers import choose
from envbuild.launch.settings import (
    BatchSettings,
)

ASKED = BatchSettings(partition="gpu", account="lab", time_s=5400, cpus=6, memory_mib=64 * 1024, sbatch=("--qos=high",))


def directives(kind, order):
    text = text_of(*choose(LAUNCHERS, "slurm", kind), order)
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE)), text


@pytest.mark.parametrize(("kind", "tasks", "cpus"), [("docker", "1", "24"), ("pyxis", "4", "6"), ("apptainer", "4", "6")])
def test_slurm_is_asked_for_what_the_site_needs(kind, tasks, cpus):
    asked, text = directives(kind, dataclasses.replace(PLAIN, settings=ASKED))
    assert asked == {
        "job-name": "envbuild-smoke",
        "output": "envbuild-smoke-%j.log",
        "nodes": "2",
        "nodelist": "a,b",
        "ntasks-per-node": tasks,
        "cpus-per-task": cpus,
        "gpus-per-node": "4",
        "exclusive": "",
        "mem": "65536M",
        "partition": "gpu",
        "account": "lab",
        "time": "1:30:00",
        "qos": "high",
    }
    assert f"export SRUN_CPUS_PER_TASK={cpus}" in text
    first_command = next(line for line in text.splitlines() if not line.startswith("#"))
    assert text.rindex("#SBATCH") < text.index(first_command)  # sbatch reads directives up to the first command


def test_slurm_takes_whole_hosts_and_all_their_memory_unless_told_otherwise():
    whole, text = directives("pyxis", PLAIN)
    assert whole["exclusive"] == "" and whole["mem"] == "0" and "cpus-per-task" not in whole
    assert "SLURM_CPUS_ON_NODE" in text
    shared, _ = directives("pyxis", dataclasses.replace(PLAIN, settings=BatchSettings(shared=True, cpus=2)))
    assert "exclusive" not in shared and "mem" not in shared and shared["cpus-per-task"] == "2"


def test_a_shared_hosts_container_takes_no_more_than_its_share():
    _, text = directives("docker", dataclasses.replace(PLAIN, settings=BatchSettings(shared=True, cpus=2, memory_mib=1024)))
    assert "--cpus 8" in text and "--memory 1024m" in text
    _, whole = directives("docker", dataclasses.replace(PLAIN, settings=BatchSettings(cpus=2, memory_mib=1024)))
    assert "--cpus 8" not in whole and "--memory" not in whole


@pytest.mark.parametrize(("via", "kind"), [(via, "docker") for via in ("mpirun", "torchrun", "slurm")])
def test_containers_get_gpus_by_number(via, kind):
    order = dataclasses.replace(FULL, hosts=read_hosts("a:4,b:4"))
    text = text_of(*choose(LAUNCHERS, via, kind), order)
    assert "--gpus all" not in text
    wanted = {"mpirun": '--gpus "$OMPI_COMM_WORLD_LOCAL_SIZE"', "torchrun": "--gpus 4", "slurm": "gpus=4"}[via]
    assert wanted in text


def test_each_host_of_torchrun_gets_its_own_number_of_gpus():
    text = text_of(*choose(LAUNCHERS, "torchrun", "docker"), dataclasses.replace(PLAIN, hosts=read_hosts("a:4,b:2")))
    assert re.findall(r"--gpus (\d)", text) == ["4", "2"]


@pytest.mark.parametrize(("via", "kind", "name"), [("mpirun", "docker", "partition"), ("slurm", "docker", "namespace")])
def test_a_setting_that_a_launcher_cannot_use_is_refused(via, kind, name):
    order = dataclasses.replace(PLAIN, settings=BatchSettings(**{name: "x"}))
    with pytest.raises(UsageError, match=f"does not use --{name}") as refused:
        text_of(*choose(LAUNCHERS, via, kind), order)
    assert refused.value.code == "option-unused"
