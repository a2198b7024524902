"""Containers: their owner, their GPUs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
from docker.errors import APIError

from envbuild.engine import containers
from envbuild.errors import EngineError


def test_a_process_is_told_apart_from_a_later_one_of_its_number():
    mine = containers.identity_of(os.getpid())
    assert containers.is_alive(mine)
    assert not containers.is_alive(f"{os.getpid()}@1")
    assert not containers.is_alive("")


@pytest.mark.parametrize(
    ("gpus", "request_"),
    [("all", {"Count": -1}), (["0", "2"], {"DeviceIDs": ["0", "2"]}), ("GPU-1234", {"DeviceIDs": ["GPU-1234"]})],
)
def test_gpus_are_asked_for_as_devices(gpus, request_):
    (wanted,) = containers.device_requests(gpus) or []
    assert request_.items() <= wanted.items()
    assert wanted["Capabilities"] == [["gpu"]]
    assert containers.device_requests(None) is None


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        ("all", ["nvidia.com/gpu=all"]),
        (["0", "2"], ["nvidia.com/gpu=0", "nvidia.com/gpu=2"]),
        ("GPU-1234", ["nvidia.com/gpu=GPU-1234"]),
    ],
)
def test_gpus_are_asked_for_by_their_cdi_names(gpus, names):
    (wanted,) = containers.device_requests(gpus, by_cdi=True) or []
    assert (wanted["Driver"], wanted["DeviceIDs"]) == ("cdi", names)
    assert containers.device_requests(None, by_cdi=True) is None


class SlowEngine:
    """An engine that is slow, as under load.

    With ``logs=True`` it reads the log of a container only after the container has run.
    """

    def __init__(self) -> None:
        self.api = self
        self._written: list[bytes] = []

    def attach(self, _container: str, *, logs: bool = False, **_: object) -> Iterator[tuple[bytes | None, bytes | None]]:
        def read() -> Iterator[tuple[bytes | None, bytes | None]]:
            yield from ((piece, None) for piece in (self._written if logs else ()))
            yield from ((piece, None) for piece in self._written)

        return read()

    def start(self, _container: str) -> None:
        self._written += [b"first\n", b"last\n"]

    def create_host_config(self, **_: object) -> dict[str, str]:
        return {}

    def create_container(self, _image: str, **_: object) -> dict[str, str]:
        return {"Id": "1"}

    def wait(self, _container: str) -> dict[str, int]:
        return {"StatusCode": 0}

    def inspect_container(self, _container: str) -> dict[str, dict[str, bool]]:
        return {"State": {}}

    def containers(self, **_: object) -> list[dict[str, str]]:
        return []

    def remove_container(self, _container: str, **_: object) -> None:
        return


class EngineWithoutGpu(SlowEngine):
    """An engine that lacks the requested GPU, with the message of Docker 26.1."""

    def start(self, _container: str) -> None:
        raise APIError("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7")


SPEC = containers.ContainerSpec(
    image="x", argv=(), mounts=(), env={}, gpus=None, shm_size=None, ulimits={}, network=None, user=None, read_only=False,
    timeout_s=None, stdin=None, entrypoint=None, collect=(), deliver=(),
)  # fmt: skip


@pytest.mark.parametrize(("by_cdi", "way"), [(True, "nvidia-ctk cdi generate"), (False, "Install the NVIDIA driver")])
def test_an_engine_without_the_gpu_says_what_to_do(by_cdi, way):
    with pytest.raises(EngineError) as caught:
        containers.run(cast(Any, EngineWithoutGpu()), dataclasses.replace(SPEC, gpus=["7"], by_cdi=by_cdi), None)
    assert caught.value.code == "no-gpu-support" and "nvidia.com/gpu=7" in caught.value.message
    assert way in caught.value.hint


def test_the_engine_is_not_asked_for_the_log_of_what_is_attached_to():
    lines: list[str] = []
    result = containers.run(cast(Any, SlowEngine()), SPEC, lines.append)
    assert lines == result.output.splitlines() == ["first", "last"]
