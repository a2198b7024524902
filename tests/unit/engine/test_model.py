"""The description of an engine in one line."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from envbuild.engine.client import has_cdi_gpus
from envbuild.engine.model import EngineInfo


def engine(**facts: Any) -> EngineInfo:
    info = EngineInfo(
        product="Docker",
        endpoint="unix:///x", origin="private engine", version="20.10.24", api_version="1.41", builder="docker-buildkit",
        builder_version="20.10.24", cli="/d", storage_driver="overlay2", data_root="/r", free_bytes=None, runtimes=(),
        cgroup_driver="cgroupfs", cgroup_version="1", operating_system="", architecture="", kernel="", cpus=1, memory_bytes=1,
    )  # fmt: skip
    return dataclasses.replace(info, **facts)


def test_an_engine_in_one_line():
    info = engine()
    assert info.describe() == "Docker 20.10.24 (overlay2, docker-buildkit) at unix:///x, the private engine"
    assert "unix" not in info.name


@pytest.mark.parametrize(
    ("facts", "gives", "by_cdi"),
    [
        ({}, False, False),
        ({"runtimes": ("nvidia",)}, True, False),
        ({"has_cdi_gpus": True}, True, True),
        ({"has_cdi_gpus": True, "runtimes": ("nvidia",)}, True, False),
    ],
)
def test_the_runtime_of_nvidia_comes_before_cdi(facts, gives, by_cdi):
    assert (engine(**facts).gives_gpus, engine(**facts).by_cdi) == (gives, by_cdi)


def test_which_engines_give_gpus_by_cdi(tmp_path):
    (tmp_path / "other.yaml").write_text("kind: vendor.com/net\n")
    folders = {"CDISpecDirs": [str(tmp_path), str(tmp_path / "absent")]}
    assert not has_cdi_gpus("unix:///s", {})
    assert not has_cdi_gpus("unix:///s", {"CDISpecDirs": None, "DiscoveredDevices": None})
    assert not has_cdi_gpus("unix:///s", folders)
    assert not has_cdi_gpus("ssh://host", {"DiscoveredDevices": [{"Source": "cdi", "ID": "vendor.com/net=0"}]})
    assert has_cdi_gpus("ssh://host", {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]})
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert has_cdi_gpus("unix:///s", folders)
    assert not has_cdi_gpus("ssh://host", folders)
