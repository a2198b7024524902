"""The parts of the engine's door that need no engine."""

from __future__ import annotations

import io
import ipaddress
import json
import os
import tarfile
from pathlib import Path

import pytest

from envbuild import procs
from envbuild.engine import buildkit, choice, containers, daemon, docker_program, image_tar, private_engine, private_network
from envbuild.engine.model import EngineInfo
from envbuild.errors import BuildError, EngineError
from envbuild.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path)


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_secrets_can_be_read_by_path_and_are_on_no_disk():
    with buildkit.secret_files({"one": b"first", "two": b"x" * 100_000}) as paths:
        assert Path(paths["one"]).read_bytes() == b"first"
        assert Path(paths["one"]).read_bytes() == b"first"  # each reader starts at the beginning
        assert Path(paths["two"]).stat().st_size == 100_000
        assert str(Path(paths["one"]).readlink()).startswith("/memfd:")
    assert not Path(paths["one"]).exists()


def test_secrets_are_gone_after_an_error():
    seen = {}
    with pytest.raises(KeyboardInterrupt), buildkit.secret_files({"one": b"first"}) as paths:
        seen.update(paths)
        raise KeyboardInterrupt
    assert not Path(seen["one"]).exists()


def test_a_secret_that_buildkit_would_refuse_is_refused_by_name():
    with pytest.raises(BuildError, match="envbuild-ca") as caught, buildkit.secret_files({"envbuild-ca": b"x" * 600_000}):
        pass
    assert caught.value.code == "secret-too-large"


def test_secrets_are_not_on_the_command_line():
    order = buildkit.Order(
        context=Path("/c"),
        tags=("a:1", "b:2"),
        secrets={"s": b"very secret"},
        build_args={"X": "1"},
        labels={"l": "v"},
        no_cache=True,
    )
    options = buildkit._options(order)
    assert options == ["--tag=a:1", "--tag=b:2", "--build-arg=X=1", "--label=l=v", "--no-cache"]


# --- the docker program ----------------------------------------------------------------------------------------------


def test_candidates_follow_path_and_count_each_file_once(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    for name in ("two", "three"):
        (tmp_path / name / "docker").write_text(f"#!/bin/sh\n# {name}\n")
        (tmp_path / name / "docker").chmod(0o755)
    (tmp_path / "one" / "docker").symlink_to(tmp_path / "two" / "docker")
    path = os.pathsep.join(str(tmp_path / name) for name in ("one", "two", "three"))
    found = [p for p in docker_program.candidates({"PATH": path}) if p.startswith(str(tmp_path))]
    assert found == [str(tmp_path / "one" / "docker"), str(tmp_path / "three" / "docker")]


def test_a_named_program_is_the_only_candidate(tmp_path):
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert docker_program.candidates({"ENVBUILD_DOCKER": str(tmp_path / "mine"), "PATH": "/usr/bin"}) == [
        str(tmp_path / "mine")
    ]
    assert docker_program.candidates({"ENVBUILD_DOCKER": str(tmp_path / "absent"), "PATH": "/usr/bin"}) == []


def test_no_program_means_the_classic_builder():
    assert docker_program.choose("unix:///nowhere", []).builder == "classic"


def test_buildx_builds_in_the_engine_itself():
    argv = docker_program.DockerCli(path="/d", builder="buildx", version="0.13").build_argv()
    assert argv[:3] == ["/d", "buildx", "build"]
    assert "--builder=default" in argv
    assert "--load" in argv
    assert docker_program.DockerCli(path="/d", builder="docker-buildkit", version="20").build_argv() == ["/d", "build"]


# --- choosing an engine ----------------------------------------------------------------------------------------------


def test_docker_host_is_the_only_choice_where_it_is_set(place):
    assert list(choice._endpoints(place, {"DOCKER_HOST": "tcp://h:1"})) == [("tcp://h:1", "DOCKER_HOST")]


def test_the_default_socket_comes_before_the_private_engine(place, monkeypatch, tmp_path):
    socket = tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setattr(choice, "DEFAULT_SOCKET", str(socket))
    monkeypatch.setattr(private_engine, "status", lambda _: private_engine.Status(
        running=True, pid=1, socket="/p.sock", data_root="", log="", bridge="", processes=3, data_exists=True
    ))  # fmt: skip
    assert list(choice._endpoints(place, {})) == [(f"unix://{socket}", "default socket"), ("unix:///p.sock", "private engine")]


def test_no_engine_says_what_was_tried_and_what_to_do(place, monkeypatch):
    monkeypatch.setattr(choice, "DEFAULT_SOCKET", "/nowhere/docker.sock")
    with pytest.raises(EngineError) as caught:
        choice.connect(place, {})
    assert (caught.value.code, caught.value.exit_code) == ("no-engine", 6)
    assert "/nowhere/docker.sock" in caught.value.message
    assert "engine up" in caught.value.hint


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        ("default socket unix:///s: nothing listens there", "no-engine"),  # a stopped engine's socket
        ("default socket unix:///s: permission denied", "refused"),
    ],
)
def test_a_socket_that_nobody_serves_is_no_refusal(refusal, code):
    assert choice._none_answers([refusal], named=False).code == code
    assert choice._none_answers([refusal], named=True).code == "refused"


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("('Connection aborted.', PermissionError(13, 'Permission denied'))", "permission denied"),
        ("('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))", "the socket does not exist"),
        ("('Connection aborted.', ConnectionRefusedError(111, 'Connection refused'))", "nothing listens there"),
        ("UnixHTTPConnectionPool: Read timed out. (read timeout=10)", "no answer in time"),
    ],
)
def test_refusals_in_words(words, meaning):
    assert choice._why(Exception(words)) == meaning


def test_an_engine_in_one_line():
    info = EngineInfo(
        product="Docker",
        endpoint="unix:///x", origin="private engine", version="20.10.24", api_version="1.41", builder="docker-buildkit",
        builder_version="20.10.24", cli="/d", storage_driver="overlay2", data_root="/r", free_bytes=None, runtimes=(),
        cgroup_driver="cgroupfs", cgroup_version="1", operating_system="", architecture="", kernel="", cpus=1, memory_bytes=1,
    )  # fmt: skip
    assert info.describe() == "Docker 20.10.24 (overlay2, docker-buildkit) at unix:///x, the private engine"
    assert "unix" not in info.name


# --- the private engine ----------------------------------------------------------------------------------------------


def test_the_subnet_avoids_what_is_taken():
    assert private_network.choose_subnet([]) == "10.213.0.0/24"
    assert private_network.choose_subnet(["10.213.0.0/24", "10.213.1.7/32", "fd00::/8", "127.0.0.0/8"]) == "10.213.2.0/24"


def test_no_subnet_left_is_an_error_and_not_a_clash():
    with pytest.raises(EngineError) as caught:
        private_network.choose_subnet(["10.0.0.0/8"])
    assert caught.value.code == "no-network"


def test_every_rule_carries_the_bridges_mark():
    rules = private_network.rules("envb12345678", "10.213.0.0/24")
    assert {(r.table, r.chain) for r in rules} == {("nat", "POSTROUTING"), ("filter", "FORWARD")}
    assert all("envbuild:envb12345678" in rule.words for rule in rules)


def test_names_fit_their_limits(tmp_path):
    short = private_engine._Places(folder=Path("/h/engine"))
    long = private_engine._Places(folder=Path("/" + "x" * 150) / "engine")
    assert short.socket == Path("/h/engine/docker.sock")
    assert len(str(long.socket)) <= 107
    assert long.socket != private_engine._Places(folder=Path("/" + "y" * 150) / "engine").socket
    assert len(short.bridge) <= 15


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
    assert set(json.loads(daemon.configuration(tmp_path / "daemon.json"))) == {"builder", "shutdown-timeout"}


@pytest.mark.parametrize("absent", ["dockerd", "containerd", "runc", "iptables", "ip"])
def test_a_missing_program_is_named_with_its_package(monkeypatch, absent):
    monkeypatch.setattr(procs, "find", lambda program, **_: None if program == absent else f"/usr/sbin/{program}")
    with pytest.raises(EngineError) as caught:
        daemon.Programs.find()
    assert caught.value.code == "missing-program"
    assert f"program {absent}," in caught.value.message
    assert "apt-get install" in caught.value.hint


def test_only_root_may_start_it(place, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineError) as caught:
        private_engine.up(place)
    assert caught.value.code == "not-root"
    assert not place.engine.exists()


def test_status_of_what_never_ran(place):
    status = private_engine.status(place)
    assert (status.running, status.pid, status.processes, status.bridge, status.data_exists) == (False, None, 0, "", False)


# --- containers ------------------------------------------------------------------------------------------------------


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


# --- archives --------------------------------------------------------------------------------------------------------


def tar_of(**files: bytes) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return whole.getvalue()


class Saved:
    """An engine that answers ``docker save`` in uneven pieces."""

    def __init__(self, content: bytes) -> None:
        self.api = self
        self._content = content

    def get_image(self, _name: str):
        return iter([self._content[:1000], b"", self._content[1000:7001], self._content[7001:]])


@pytest.mark.parametrize("name", ["abc__layer.tar", "blobs__sha256__abc"])
def test_layers_are_read_from_both_formats(name):
    layer = tar_of(etc__passwd=b"root", big=b"x" * 5000)
    saved = tar_of(**{name: layer, "blobs__sha256__config": b'{"a": 1}', "manifest.json": b"[]"})
    found = {entry.path: entry.open().read() for entry in image_tar.layer_files(Saved(saved), "x")}
    assert found == {"/etc/passwd": b"root", "/big": b"x" * 5000}


def test_gateways_are_inside_their_subnet():
    subnet = ipaddress.ip_network(private_network.choose_subnet([]))
    assert str(next(subnet.hosts())).endswith(".1")
