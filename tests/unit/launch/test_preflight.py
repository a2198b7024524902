"""The findings about each host, judged from the lines that the script prints there."""

import dataclasses

import pytest
from launch_orders import LAUNCHERS, PLAIN

from envbuild.launch.hosts import read_hosts
from envbuild.launch.launchers import choose
from envbuild.launch.preflight import Looked, judge, questions

_, DOCKER = choose(LAUNCHERS, "mpirun", "docker")
READY = (
    "machine x86_64",
    "program orted",
    "program docker",
    "mpirun 4.1.4",
    "engine 27.0.1",
    "engine-free-kib 99000000",
    "runtimes io.containerd.runc.v2 nvidia runc",
    "image sha256:1",
    *["gpu 550.54.15, NVIDIA A100-SXM4-40GB"] * 4,
    "toolkit nvidia-container-runtime",
    "port free",
    "shm-kib 65000000",
    "clock 1000",
    "end",
)


def look(lines, order=PLAIN, fits=lambda _driver, _gpu: (), failure=""):
    """Judge two hosts: the first is ready, the second has these lines. Return the findings about the second."""
    looked = [
        Looked(host=order.hosts[0], lines=READY, at=1000),
        Looked(host=order.hosts[1], lines=lines, failure=failure, at=1000),
    ]
    first, second = judge(order, looked, fits)
    assert first.is_ready, first.findings
    return {each.id: each for each in second.findings if each.status != "ok"}


def without(*words, added=()):
    return (*(line for line in READY if not line.startswith(words)), *added)


def test_ready_hosts_are_ready():
    assert look(READY) == {}


@pytest.mark.parametrize(
    ("lines", "id_", "said"),
    [
        (without("program orted", added=("no-program orted",)), "program", "not on this host"),
        (without("engine", "image", added=("no-engine permission denied",)), "engine", "permission denied"),
        (without("image", added=("no-image manifest unknown",)), "image", "cannot be pulled: manifest unknown"),
        (without("gpu", added=("no-gpu Driver/library version mismatch",)), "gpu", "version mismatch"),
        (without("gpu", added=("gpu 550.54.15, NVIDIA A100-SXM4-40GB",)), "gpu-count", "1 of the 4"),
        (without("toolkit", "runtimes"), "toolkit", "containers get no GPU"),
        ((*READY, "port taken"), "port", "another program uses"),
        ((*READY, "no-name a"), "name", "finds no address for a"),
        ((*READY, "no-reach no answer within 5 s"), "port", "cannot reach port"),
        ((*READY, "interface down"), "interface", "is down"),
        ((*READY, "no-interface lo eth0"), "interface", "lo eth0"),
        ((*READY, "no-rdma"), "rdma", "no adapter"),
        ((*READY, "no-folder it does not exist"), "folder", "does not exist"),
        (without("machine", added=("machine aarch64",)), "machine", "x86_64 on the other hosts"),
    ],
)
def test_each_thing_that_a_host_lacks_is_named_with_what_to_do(lines, id_, said):
    lacking = look(lines)
    assert list(lacking) == [id_]
    assert lacking[id_].status == "missing" and said in lacking[id_].message and lacking[id_].hint


@pytest.mark.parametrize(
    ("lines", "id_"),
    [
        (without("clock", added=("clock 1200",)), "clock"),
        (without("shm", added=("shm-kib 65536",)), "shm"),
        (without("mpirun", added=("mpirun 3.1.0",)), "mpirun"),
        (without("image", "engine-free", added=("image-pullable yes", "engine-free-kib 4000000")), "engine-disk"),
    ],
)
def test_what_may_do_harm_is_a_warning(lines, id_):
    lacking = look(lines)
    assert [(each.id, each.status) for each in lacking.values()] == [(id_, "warn")]


def test_a_host_that_cannot_be_entered_lacks_that_alone():
    lacking = look((), failure="Permission denied (publickey).")
    assert list(lacking) == ["reach"] and "publickey" in lacking["reach"].message


@pytest.mark.parametrize("lines", [(), READY[:4]])
def test_a_check_that_ended_early_is_not_ready(lines):
    assert list(look(lines)) == ["reach"]


def test_a_driver_that_is_too_old_is_said_with_the_reason():
    asked = []

    def fits(driver, gpu):
        asked.append((driver, gpu))
        return ("CUDA 13.0 needs driver 580.65.06 or newer",) if driver == "470.10" else ()

    lacking = look(without("gpu", added=["gpu 470.10, NVIDIA A100-SXM4-40GB"] * 4), fits=fits)
    assert "580.65.06" in lacking["fits"].message
    assert set(asked) == {("550.54.15", "NVIDIA A100-SXM4-40GB"), ("470.10", "NVIDIA A100-SXM4-40GB")}


def test_a_host_is_asked_only_for_what_the_launch_needs():
    order = dataclasses.replace(PLAIN, report="/data", interface="ib0", rdma=True)
    first, second = (questions(DOCKER, order, host) for host in order.hosts)
    assert {"runtime=docker", "programs=orted docker", "first=yes", "folder=/data", "gpus=yes", "rdma=yes"} <= set(first)
    assert "first=yes" not in second and "folder=/data" not in second and "master=a" in second
    plain = questions(DOCKER, dataclasses.replace(PLAIN, gpus=False), read_hosts("a:4")[0])
    assert not any(word.startswith(("gpus", "rdma", "interface", "folder")) for word in plain)
    _, inside = choose(LAUNCHERS, "torchrun", "inside")
    assert not any(word.startswith(("image=", "runtime=")) for word in questions(inside, PLAIN, PLAIN.hosts[0]))
    _, apptainer = choose(LAUNCHERS, "mpirun", "apptainer")
    assert "runtime=file" in questions(apptainer, dataclasses.replace(PLAIN, image="/shared/x.sif"), PLAIN.hosts[0])
