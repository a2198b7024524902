"""The commands and files that start an image."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from envbuild.run_commands import commands, files
from envbuild.run_commands.files import Exported
from envbuild.run_commands.model import ContainerRun, Port

WHOLE = ContainerRun(
    image="envbuild:a",
    command=("python", "-c", "print(1)"),
    folder=Path("/my work"),
    user="1000:1000",
    gpus=("0", "1"),
    ports=(Port(host=9000, container=8888),),
    variables=("A=b c",),
    mounts=("/data:/data:ro",),
    is_interactive=True,
)


def told(program, **changes) -> str:
    fields = {name: getattr(WHOLE, name) for name in WHOLE.__dataclass_fields__}
    return shlex.join(commands.argv(program, ContainerRun(**{**fields, **changes})))


def test_docker_is_told_everything():
    assert told("docker") == (
        "docker run --rm --interactive --tty --user=1000:1000 --shm-size=8g '--gpus=\"device=0,1\"' --ulimit=memlock=-1 "
        "--ulimit=stack=67108864 '--volume=/my work:/workspace' --workdir=/workspace --volume=/data:/data:ro '--env=A=b c' "
        "--publish=127.0.0.1:9000:8888 envbuild:a python -c 'print(1)'"
    )


@pytest.mark.parametrize(
    ("program", "changes", "has", "lacks"),
    [
        ("docker", {"gpus": ("all",)}, ["--gpus=all"], ["nvidia.com"]),
        ("docker", {"gpus": ("all",), "gpu_option": "cdi"}, ["--device=nvidia.com/gpu=all"], ["--gpus"]),
        ("docker", {"gpus": ()}, [], ["--gpus", "--ulimit"]),
        ("docker", {"is_rootless": True}, ["--user=1000:1000"], ["keep-id"]),
        ("docker", {"user": ""}, [], ["--user"]),
        ("docker", {"is_interactive": False}, ["--interactive"], ["--tty"]),
        ("docker", {"folder": None}, ["--volume=/data"], ["/workspace"]),
        ("docker", {"tls": False}, [], ["tls"]),
        (
            "podman",
            {},
            ["--device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1", "--user=1000:1000"],
            ["--gpus", "keep-id", "tls"],
        ),
        ("podman", {"is_rootless": True}, ["--userns=keep-id --user=1000:1000"], []),
        ("podman", {"tls": False}, ["--tls-verify=false"], []),
        (
            "apptainer",
            {},
            ["exec --cleanenv --no-home --nv --env=CUDA_VISIBLE_DEVICES=0,1", "--pwd=/workspace"],
            ["--user", "--publish"],
        ),
        ("apptainer", {"gpus": ("all",)}, ["--nv"], ["CUDA_VISIBLE_DEVICES"]),
        ("apptainer", {"command": (), "tls": False, "gpus": ()}, ["--no-https", "envbuild:a bash"], ["--nv"]),
    ],
)
def test_each_program_is_told_in_its_own_words(program, changes, has, lacks):
    text = told(program, **changes)
    assert [each for each in has if each not in text] == []
    assert [each for each in lacks if each in text] == []


def test_apptainer_gets_variables_that_its_option_would_split_by_its_surroundings():
    """`--env=A=b=1,c` sets A to `b=1`, and fails at `c`: the option takes a list."""
    given = ("PLAIN=b c", "FLAGS=--x=1,--y=2", 'QUOTED="q"', "LINES=a\nb")
    text = told("apptainer", variables=given)
    assert "'--env=PLAIN=b c'" in text and not any(name in text for name in ("FLAGS", "QUOTED", "LINES"))
    assert commands.apptainer_variables(ContainerRun(image="a", variables=given)) == {
        "APPTAINERENV_FLAGS": "--x=1,--y=2", "APPTAINERENV_QUOTED": '"q"', "APPTAINERENV_LINES": "a\nb",
    }  # fmt: skip
    assert "--env=FLAGS=--x=1,--y=2" in told("docker", variables=given)


def exported(**changes) -> Exported:
    fields = {"name": "a+b", "image": "h.example/r@sha256:1", "title": "a+b-1", "gpu": False, "shm_size": "8g", **changes}
    return Exported(**fields)


def test_a_compose_file_has_one_service():
    text = files.compose(exported())
    assert text.startswith("# a+b-1, written by `envbuild export a+b --format compose`.\n")
    ((name, service),) = yaml.safe_load(text)["services"].items()
    assert name == "a_b" and service["image"] == "h.example/r@sha256:1" and service["volumes"] == [".:/workspace"]
    assert not {"deploy", "ports", "command", "ulimits"} & service.keys()


def test_services_of_the_image_are_started_at_ports_of_this_machine_alone():
    text = files.compose(exported(services=("web",), ports=(Port(host=80, container=80),), gpu=True))
    service = yaml.safe_load(text)["services"]["a_b"]
    assert service["command"] == ["envbuild-start", "web"] and service["ports"] == ["127.0.0.1:80:80"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]


def test_a_development_container_mounts_the_folder_of_the_editor():
    told = json.loads(
        files.devcontainer(
            exported(gpu=True, ports=(Port(host=80, container=80),), services=("web",), python="/opt/env/bin/python")
        )
    )
    assert told["workspaceMount"] == "source=${localWorkspaceFolder},target=/workspace,type=bind"
    assert (told["hostRequirements"], told["forwardPorts"], told["remoteUser"]) == ({"gpu": "optional"}, [80], "envbuild")
    assert "envbuild-start web" in told["postAttachCommand"]
    assert "hostRequirements" not in json.loads(files.devcontainer(exported(user="me")))
