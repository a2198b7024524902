"""Containers on a real engine: inputs and outputs, and that no container is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_toy import nap, sleeping

from envbuild.engine import bases, containers
from envbuild.engine.client import Engine
from envbuild.engine.dialogue import EndedError
from envbuild.engine.model import Mount
from envbuild.errors import EngineError, TimedOutError

pytestmark = [pytest.mark.engine, pytest.mark.network]


def ours(engine: Engine, pid: int = 0) -> list[str]:
    """The containers in the engine that belong to this process, or to the process ``pid``.

    Other processes can use the same engine.
    """
    found = engine.client.api.containers(all=True, filters={"label": "org.envbuild.owner"})
    return [each["Id"] for each in found if f"/{pid or os.getpid()}@" in each["Labels"]["org.envbuild.owner"]]


@pytest.fixture
def image(engine: Engine, debian12: bases.RealisedBase) -> str:
    assert ours(engine) == []
    return debian12.reference


def test_code_output_and_lines(engine, image):
    lines: list[str] = []
    result = engine.run(image, ["sh", "-c", "echo out; echo err >&2; printf 'no newline'; exit 7"], on_line=lines.append)
    assert result.code == 7
    assert sorted(lines) == ["err", "no newline", "out"]
    assert result.output.splitlines() == lines
    assert ours(engine) == []


def test_each_line_of_containers_that_end_at_once_comes_exactly_once(engine, image):
    """Several containers at the same time.

    Under load, output once came both before the attachment and again from the log.
    """

    def run(number: int) -> list[str]:
        lines: list[str] = []
        engine.run(
            image, ["sh", "-c", f"echo {number} first; echo {number} second >&2; echo {number} last"], on_line=lines.append
        )
        return sorted(lines)

    with ThreadPoolExecutor(4) as pool:
        for number, lines in enumerate(pool.map(run, range(12))):
            assert lines == [f"{number} {word}" for word in ("first", "last", "second")]
    assert ours(engine) == []


def test_an_unfinished_line_is_not_joined_to_the_other_stream(engine, image):
    result = engine.run(image, ["sh", "-c", "printf begun; sleep 0.3; echo err >&2; sleep 0.3; echo ', done'"])
    assert result.output.splitlines() == ["err", "begun, done"]


def test_standard_input_reaches_the_program_whole(engine, image):
    content = os.urandom(3_000_000)
    import hashlib

    result = engine.run(image, ["sha256sum"], stdin=content)
    assert result.output.split()[0] == hashlib.sha256(content).hexdigest()


def test_a_program_that_does_not_read_its_input_does_not_hang(engine, image):
    assert engine.run(image, ["true"], stdin=b"x" * 5_000_000, timeout_s=60).code == 0


def test_files_are_delivered_before_the_start_readable_by_all_and_not_writable(engine, image, tmp_path):
    (tmp_path / "secret").write_bytes(os.urandom(3_000_000))
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "link").symlink_to("secret")
    wanted = {"/data/deep/one": tmp_path / "secret", "/tmp/two": tmp_path / "link"}
    script = "cmp /data/deep/one /tmp/two && stat -c '%a %u %F' /data/deep/one /tmp/two; echo x >> /data/deep/one"
    result = engine.run(image, ["sh", "-c", script], deliver=wanted, user="1234:1234")
    assert result.output.splitlines().count("444 0 regular file") == 2
    assert result.code != 0


def test_settings_reach_the_container(engine, image, tmp_path):
    (tmp_path / "given").write_text("from outside")
    tmp_path.chmod(0o755)
    script = "cat /given/given; echo; id -u; echo $WORD; df -m /dev/shm | tail -1; ls /sys/class/net; getent hosts $(uname -n)"
    result = engine.run(
        image,
        ["sh", "-c", f"{script}; touch /given/x 2>&1"],  # the order of standard output and standard error is not kept
        mounts=[Mount(source=str(tmp_path), target="/given")],
        env={"WORD": "a b"},
        user="1234:1234",
        shm_size="321m",
        network="none",
    )
    lines = result.output.splitlines()
    assert lines[:3] == ["from outside", "1234", "a b"]
    assert lines[3].split()[1] == "321"
    assert lines[4] == "lo"
    assert lines[5].split()[0] in {"127.0.0.1", "::1"}  # the container resolves its own host name
    assert "Read-only file system" in lines[-1] or "Permission denied" in lines[-1]


def test_a_writable_mount_and_a_read_only_root(engine, image, tmp_path):
    script = "echo hello > /out/file; echo x > /tmp/allowed && touch /refused"
    mounts = [Mount(source=str(tmp_path), target="/out", read_only=False)]
    result = engine.run(image, ["sh", "-c", script], mounts=mounts, read_only=True)
    assert result.code != 0
    assert "Read-only file system" in result.output
    assert (tmp_path / "file").read_text() == "hello\n"


def test_files_are_collected_from_the_container(engine, image):
    script = "mkdir -p /a/b; echo 1 > /a/one; echo 2 > /a/b/two; ln -s one /a/link; exit 3"
    result = engine.run(image, ["sh", "-c", script], collect=["/a", "/etc/debian_version", "/absent"])
    assert result.code == 3
    assert result.files["/a/one"] == b"1\n"
    assert result.files["/a/b/two"] == b"2\n"
    assert result.files["/etc/debian_version"].startswith(b"12")
    assert not any("absent" in path for path in result.files)


def test_the_time_limit_stops_and_removes(engine, image):
    started = time.monotonic()
    with pytest.raises(TimedOutError) as caught:
        # The limit includes the start of the container, which takes seconds on a slow machine.
        engine.run(image, ["sh", "-c", f"echo before; exec sleep {nap(1)}"], timeout_s=6)
    assert time.monotonic() - started < 120
    assert caught.value.exit_code == 124
    assert caught.value.details == ("before",)
    assert ours(engine) == []
    assert sleeping(nap(1)) == []


def test_an_interrupt_removes_the_container(engine, image):
    def interrupt(line: str) -> None:
        if line == "ready":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run(image, ["sh", "-c", f"echo ready; exec sleep {nap(2)}"], on_line=interrupt)
    assert ours(engine) == []
    assert sleeping(nap(2)) == []


@pytest.mark.parametrize("moment", ["running", 0.3, 0.6, 1.0])
def test_the_container_of_a_killed_process_goes_by_itself(engine, image, workspace, moment):
    code = (
        "import sys; from pathlib import Path\n"
        "from envbuild.engine.choice import connect; from envbuild.workspace import Workspace\n"
        f"w = Workspace(root=Path({str(workspace.root)!r}), output=Path('/nowhere'), home=Path({str(workspace.home)!r}))\n"
        f"connect(w, {{'DOCKER_HOST': {engine.endpoint!r}}}).run({image!r}, ['sleep', '{nap(3)}'])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(workspace.root)})
    if moment == "running":
        wait_for(lambda: sleeping(nap(3)))
    else:
        time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not ours(engine, process.pid) and not sleeping(nap(3)))
    time.sleep(2 if moment != "running" else 0)  # the engine may just have been creating a container
    wait_for(lambda: not ours(engine, process.pid) and not sleeping(nap(3)))


def test_the_next_run_sweeps_what_a_killed_one_left_with_its_guard(engine, image, workspace):
    code = (
        "import os, sys; from pathlib import Path; from envbuild import guard\n"
        "from envbuild.engine.choice import connect; from envbuild.workspace import Workspace\n"
        f"w = Workspace(root=Path({str(workspace.root)!r}), output=Path('/nowhere'), home=Path({str(workspace.home)!r}))\n"
        f"found = connect(w, {{'DOCKER_HOST': {engine.endpoint!r}}})\n"
        "guard.run_if_killed(['true']); print(guard._GUARD._process.pid, flush=True)\n"
        f"found.run({image!r}, ['sleep', '{nap(4)}'])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(workspace.root)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    wait_for(lambda: sleeping(nap(4)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(ours(engine, process.pid)) == 1
    assert engine.run(image, ["true"]).code == 0
    assert ours(engine, process.pid) == []
    assert sleeping(nap(4)) == []


def test_a_running_neighbour_is_not_swept(engine, image):
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(engine.run(image, ["sh", "-c", "sleep 3; exit 42"]).code))
    thread.start()
    wait_for(lambda: ours(engine))
    containers.sweep(engine.client)
    assert len(ours(engine)) == 1
    thread.join()
    assert done == [42]


def test_an_absent_image_is_named(engine):
    with pytest.raises(EngineError) as caught:
        engine.run("envbuild-test/absent:1", ["true"])
    assert caught.value.code == "no-image"
    assert "envbuild-test/absent:1" in caught.value.message


def test_a_program_that_does_not_exist(engine, image):
    with pytest.raises(EngineError, match="nosuchprogram"):
        engine.run(image, ["nosuchprogram"])
    assert ours(engine) == []


def test_gpus_where_there_are_none(engine, image):
    if "nvidia" in engine.info.runtimes or Path("/usr/bin/nvidia-container-runtime-hook").exists():
        assert engine.run(image, ["true"], gpus="all").code == 0
        return
    with pytest.raises(EngineError) as caught:
        engine.run(image, ["true"], gpus="all")
    assert caught.value.code == "no-gpu-support"
    assert "nvidia-container-toolkit" in caught.value.hint


def test_limits_are_raised_or_the_run_goes_on_without(engine, image):
    lines: list[str] = []
    result = engine.run(image, ["sh", "-c", "ulimit -l"], ulimits={"memlock": -1}, on_line=lines.append)
    assert result.code == 0
    assert lines[-1] == "unlimited" or lines[0].startswith("note: ")


def test_an_image_that_the_engine_does_not_hold_is_none(engine):
    assert engine.image("envbuild-test/absent:1") is None
    assert engine.image("sha256:" + "0" * 64) is None


def test_what_the_engine_says_of_itself(engine):
    info = engine.info
    assert info.version
    assert info.builder in ("buildx", "docker-buildkit")
    assert Path(info.cli).is_file()
    assert info.endpoint in info.describe()
    assert info.free_bytes is None or info.free_bytes > 0


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.05)


def test_a_program_in_a_workshop_answers_until_it_ends(engine, image):
    """More bytes than all buffers between here and there hold, and output of both kinds."""
    with engine.workshop(image) as workshop:
        talk = workshop.talk(["sh", "-c", 'head -c 3000000; echo "last $WORDS" >&2; exit 3'], {"WORDS": "words"})
        sent = os.urandom(3000000)
        sending = threading.Thread(target=talk.send, args=(sent,))
        sending.start()
        assert bytes(talk.receive(1)) + bytes(talk.receive(2999999)) == sent
        sending.join()
        with pytest.raises(EndedError, match="last words"):
            talk.receive(1)
        talk.close()
    assert ours(engine) == []


def test_all_words_of_a_program_that_cannot_start_are_told(engine, image):
    with engine.workshop(image) as workshop:
        talk = workshop.talk(["/no/such/program"], {})
        talk.send(b"?")
        start = bytes(talk.receive(3))
        assert b"no such file or directory" in start + talk.rest(5)


def test_the_end_of_a_workshop_ends_its_programs(engine, image):
    with engine.workshop(image) as workshop:
        talk = workshop.talk(["cat"], {})
        talk.send(b"words")
        assert talk.receive(5) == b"words"
    with pytest.raises(EndedError):
        talk.receive(1)
