"""Containers: their owner, their GPUs."""

from __future__ import annotations

import os

import pytest

from envbuild.engine import containers


def test_a_process_is_told_apart_from_a_later_one_of_its_number():
    mine = containers._identity(os.getpid())
    assert containers._alive(mine)
    assert not containers._alive(f"{os.getpid()}@1")
    assert not containers._alive("")


@pytest.mark.parametrize(
    ("gpus", "request_"),
    [("all", {"Count": -1}), (["0", "2"], {"DeviceIDs": ["0", "2"]}), ("GPU-1234", {"DeviceIDs": ["GPU-1234"]})],
)
def test_gpus_are_asked_for_as_devices(gpus, request_):
    (wanted,) = containers._devices(gpus) or []
    assert request_.items() <= wanted.items()
    assert wanted["Capabilities"] == [["gpu"]]
    assert containers._devices(None) is None
