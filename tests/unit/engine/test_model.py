"""The description of an engine in one line."""

from __future__ import annotations

from envbuild.engine.model import EngineInfo


def test_an_engine_in_one_line():
    info = EngineInfo(
        product="Docker",
        endpoint="unix:///x", origin="private engine", version="20.10.24", api_version="1.41", builder="docker-buildkit",
        builder_version="20.10.24", cli="/d", storage_driver="overlay2", data_root="/r", free_bytes=None, runtimes=(),
        cgroup_driver="cgroupfs", cgroup_version="1", operating_system="", architecture="", kernel="", cpus=1, memory_bytes=1,
    )  # fmt: skip
    assert info.describe() == "Docker 20.10.24 (overlay2, docker-buildkit) at unix:///x, the private engine"
    assert "unix" not in info.name
