"""Containers: their owner, their GPUs."""

from __future__ import annotations

import os

import pytest

from envbuild.engine import containers


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
