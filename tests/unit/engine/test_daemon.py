"""The private engine's daemon: command line, configuration, programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild import procs
from envbuild.engine import daemon
from envbuild.errors import EngineError


def test_the_daemon_listens_on_its_socket_alone_and_touches_no_firewall():
    argv = daemon.argv(
        daemon.Programs(dockerd="/d", unshare="/u", proxy="/p"),
        config=Path("/c"), data=Path("/data"), endpoint="unix:///s", bridge="envb0", cgroup="/g",
    )  # fmt: skip
    assert [word for word in argv if word.startswith("--host")] == ["--host=unix:///s"]
    assert {"--iptables=false", "--ip6tables=false", "--bridge=envb0", "--data-root=/data", "--kill-child=KILL"} <= set(argv)
    assert argv[0] == "/u"


def test_the_hosts_settings_for_every_engine_are_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(procs, "find", lambda program, **_: "/usr/bin/" + program)
    host = tmp_path / "daemon.json"
    given = {
        "registry-mirrors": ["https://m.example"],
        "hosts": ["tcp://0.0.0.0:2375"],
        "data-root": "/big",
        "runtimes": {"nvidia": {"path": "/own/runtime"}},
    }
    host.write_text(json.dumps(given))
    config = json.loads(daemon.configuration(host))
    assert config["registry-mirrors"] == ["https://m.example"]
    assert config["runtimes"] == {"nvidia": {"path": "/own/runtime"}}
    assert not {"hosts", "data-root"} & config.keys()


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_a_broken_host_configuration_is_ignored(tmp_path, monkeypatch, content):
    monkeypatch.setattr(procs, "find", lambda program, **_: None)
    (tmp_path / "daemon.json").write_text(content)
    assert set(json.loads(daemon.configuration(tmp_path / "daemon.json", ()))) == {"builder", "shutdown-timeout"}


def test_the_private_engine_uses_cdi_if_a_file_describes_gpus(tmp_path):
    assert "features" not in json.loads(daemon.configuration(tmp_path / "absent", [tmp_path]))
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert json.loads(daemon.configuration(tmp_path / "absent", [tmp_path]))["features"] == {"cdi": True}


@pytest.mark.parametrize("absent", ["dockerd", "containerd", "runc", "iptables", "ip"])
def test_a_missing_program_is_named_with_its_package(monkeypatch, absent):
    monkeypatch.setattr(procs, "find", lambda program, **_: None if program == absent else f"/usr/sbin/{program}")
    with pytest.raises(EngineError) as caught:
        daemon.Programs.find()
    assert caught.value.code == "missing-program"
    assert f"program {absent}," in caught.value.message
    assert "apt-get install" in caught.value.hint
