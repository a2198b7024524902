"""Verification of an image with several frameworks: each is examined and compared with its part of the lock."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from verify_locks import lock as make_lock

from envbuild import verify
from envbuild.host import nvidia
from envbuild.model.environment import ComputeCapability
from envbuild.model.lock import Lock
from envbuild.verify import framework_facts
from envbuild.verify.findings import Findings

TOY = {"name": "toy", "version": "1.0", "cuda_build": "9.0", "cudnn": "7.4.2", "arch_list": ["sm_60", "sm_80", "compute_80"]}
OTHER = {
    "name": "other",
    "version": "2.0",
    "cuda_build": "12.4",
    "cudnn": "9.1.0",
    "arch_list": ["sm_60", "sm_86", "compute_90"],
}


def joint() -> Lock:
    """A lock with Toy on the image's CUDA 9.0, and with another framework that brings CUDA 12.4."""
    lock = make_lock(cuda="9.0", cudnn="7.4.2")
    (toy,) = lock.environment.frameworks
    other = dataclasses.replace(toy, name="other", version="2.0", package="other", cuda_libraries="wheels", cuda="12.4")
    code = ComputeCapability(sass=("6.0", "8.6"), ptx=("9.0",))
    environment = dataclasses.replace(lock.environment, frameworks=(toy, other), compute_capability=code)
    return dataclasses.replace(lock, environment=environment)


class Engine:
    """Answers a probe as the guest does. With several frameworks the probe must name one."""

    endpoint = "tcp://elsewhere"

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.answers = answers

    def run(self, _image: str, argv: list[str], *, collect: list[str], **_: Any) -> Any:
        which = argv[argv.index("--framework") + 1]
        return SimpleNamespace(code=0, output="", files={collect[0]: json.dumps(self.answers[which]).encode()})


def asked(answers: dict[str, dict[str, Any]]) -> tuple[list[dict[str, str]], Findings]:
    found = Findings()
    info = cast(Any, SimpleNamespace(id="sha256:1"))
    return list(verify.ask_frameworks(cast(Any, Engine(answers)), joint(), info, found, lambda _: None)), found


def test_each_framework_is_asked_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "gpus", list)
    told, found = asked({"toy": {"framework": TOY}, "other": {"framework": OTHER}})
    assert [each["name"] for each in told] == ["toy", "other"]
    assert found.problems == [] and found.notes == []
    told, found = asked({"toy": {"framework": TOY}, "other": {"framework": None, "error": "no libcuda.so here"}})
    assert told[1] == {} and found.problems == []
    assert found.notes == ["not checked: other needs the NVIDIA driver, and this machine has none"]
    told, found = asked({"toy": {"framework": TOY}, "other": {"framework": None, "error": "broken"}})
    assert [str(each) for each in found.problems] == ["other: cannot be started (exit code 0): broken"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cuda_build": "9.0"}, "other CUDA: expected 12.4, but it was built with 9.0"),
        ({"version": "2.1"}, "other version: expected 2.0, but it reports 2.1"),
        ({"arch_list": ["sm_60", "sm_80", "compute_90"]}, ""),
        ({"arch_list": ["sm_60", "sm_90", "compute_90"]}, "other GPU code: no native code for 8.6"),
        ({"arch_list": ["sm_60", "sm_86", "compute_100"]}, "other GPU code: no PTX for 9.0"),
        ({"cudnn": "9.2.0"}, ""),
    ],
)
def test_each_is_compared_with_its_own_cuda(change: dict[str, Any], expected: str) -> None:
    lock, found = joint(), Findings()
    framework_facts.compare_framework(lock, lock.environment.frameworks[1], {**OTHER, **change}, found)
    assert [str(each).startswith(expected) for each in found.problems] == [True] * bool(expected)


def test_what_uses_the_image_s_cuda_has_its_cudnn() -> None:
    lock, found = joint(), Findings()
    framework_facts.compare_framework(lock, lock.environment.frameworks[0], {**TOY, "cudnn": "7.6.5"}, found)
    assert [str(each) for each in found.problems] == ["toy cudnn: expected 7.4.2, but it reports 7.6.5"]


def test_of_several_prefixes_a_difference_names_the_one_and_the_python_must_be_its_own() -> None:
    lock = joint()
    (env,) = lock.prefixes
    new = dataclasses.replace(env.python, version="3.13")
    prefixes = (
        dataclasses.replace(env, name="old", path="/opt/envs/old", frameworks=("toy",)),
        dataclasses.replace(env, name="new", path="/opt/envs/new", frameworks=("other",), python=new),
    )
    lock = dataclasses.replace(lock, prefixes=prefixes)
    found = Findings()
    for framework, told in zip(lock.environment.frameworks, (TOY, OTHER), strict=True):
        framework_facts.compare_framework(lock, framework, {**told, "version": "0.1", "python": "3.11.9"}, found)
    assert [str(problem) for problem in found.problems] == [
        "old: toy version: expected 1.0, but it reports 0.1",
        "new: other version: expected 2.0, but it reports 0.1",
        "new: other Python: expected 3.13, but it runs under 3.11.9",
    ]


def test_what_a_framework_does_not_say_of_itself_is_noted_as_not_compared() -> None:
    lock = joint()
    (toy, _other), found = lock.environment.frameworks, Findings()
    framework_facts.compare_framework(lock, toy, {**TOY, "cudnn": None, "arch_list": []}, found)
    assert found.problems == []
    assert found.notes == [
        "not compared: toy does not report its cudnn version",
        "not compared: toy does not list the GPUs that it has code for",
    ]
