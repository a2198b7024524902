"""Builds on a real engine: secrets stay out of the image, failures are reported, and cancelled builds leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_toy import nap, sleeping

from envbuild import network
from envbuild.engine import bases, download_cache
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import BuildError, EngineError
from envbuild.model.progress import Progress, ignore_progress

pytestmark = [pytest.mark.engine, pytest.mark.network]
TAG = "envbuild-test/built:1"
SECRET = "correct-horse-battery-staple"


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "context").mkdir()
    return tmp_path / "context"


@pytest.fixture(autouse=True)
def _clean(engine: Engine) -> Iterator[None]:
    yield
    engine.remove_image(TAG)


def write(context: Path, base: bases.RealisedBase, *lines: str) -> Path:
    (context / "Dockerfile").write_text("\n".join([f"FROM {base.reference} AS os", *lines]) + "\n")
    return context


def test_a_secret_is_there_for_the_step_and_in_no_layer(engine, debian12, context):
    lines: list[Progress] = []
    write(
        context,
        debian12,
        "RUN --mount=type=secret,id=word,required=false wc -c < /run/secrets/word && echo done > /marker",
        "RUN --mount=type=secret,id=absent,required=false test ! -e /run/secrets/absent",
    )
    built = engine.build(context, tag=TAG, secrets={"word": SECRET.encode()}, on_progress=lines.append, no_cache=True)
    assert str(len(SECRET)) in [news.message for news in lines if news.log]  # the step really had the secret
    assert built.steps == 3
    seen = 0
    for entry in engine.layer_files(TAG):
        assert SECRET not in entry.path
        if entry.kind == "file":
            seen += 1
            assert SECRET.encode() not in entry.open().read(), entry.path
    assert seen > 1000
    assert all(SECRET not in command for command in engine.history(TAG))
    assert SECRET not in str(engine.client.api.inspect_image(TAG))


def test_the_search_would_find_what_is_there(engine, debian12, context):
    """The opposite case: a secret that a step writes into the image is found. So the test above can fail."""
    write(context, debian12, "RUN --mount=type=secret,id=word cp /run/secrets/word /leaked")
    engine.build(context, tag=TAG, secrets={"word": SECRET.encode()})
    assert any(SECRET.encode() in e.open().read() for e in engine.layer_files(TAG) if e.path == "/leaked")


def test_several_tags_labels_and_arguments(engine, debian12, context):
    write(context, debian12, "ARG WORD", "RUN echo $WORD > /word")
    other = "envbuild-test/built:2"
    try:
        built = engine.build(context, tag=[TAG, other], build_args={"WORD": "x"}, labels={"org.envbuild.test": "yes"})
        image = engine.image(other)
        assert image is not None
        assert image.id == built.id
        assert set(image.tags) >= {TAG, other}
        assert image.labels["org.envbuild.test"] == "yes"
        assert engine.run(TAG, ["cat", "/word"]).output == "x\n"
    finally:
        engine.remove_image(other)


def test_a_second_build_is_cached_and_no_cache_is_not(engine, debian12, context):
    write(context, debian12, f"RUN echo {time.time()}", "COPY Dockerfile /x")
    assert engine.build(context, tag=TAG).cached <= 1
    again = engine.build(context, tag=TAG)
    assert again.steps == 3
    assert again.cached >= 2  # builders do not always report the base as cached
    assert engine.build(context, tag=TAG, no_cache=True).cached <= 1


def test_steps_are_reported_with_their_total(engine, debian12, context):
    news: list[Progress] = []
    write(context, debian12, "RUN echo one", "FROM os AS last", f"RUN echo {time.time()}")
    engine.build(context, tag=TAG, on_progress=news.append)
    steps = [(n.done, n.total) for n in news if n.unit == "steps"]
    assert steps[-1] == (3.0, 3.0)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_steps_have_no_network_where_it_is_forbidden(engine, debian12, context):
    """A kernel may add tunnel devices to every network, so the test looks for routes.

    The loopback device proves that the step could read these files.
    """
    write(context, debian12, "RUN cat /proc/net/dev /proc/net/route > /network")
    with network.forbidden():
        engine.build(context, tag=TAG, no_cache=True)
    (content,) = [entry.open().read() for entry in engine.layer_files(TAG) if entry.path == "/network"]
    devices, heading, routes = content.decode().partition("Iface")
    assert "lo:" in devices
    assert heading
    assert len(routes.splitlines()) == 1, routes


def test_a_failing_step_is_named_with_its_last_words(engine, debian12, context):
    write(context, debian12, "RUN echo fine", "RUN echo first; echo last >&2; exit 9", "RUN echo never")
    with pytest.raises(BuildError) as caught:
        engine.build(context, tag=TAG)
    assert caught.value.code == "build-step"
    assert "exit 9" in caught.value.message
    assert "exit code: 9" in caught.value.message
    assert set(caught.value.details) == {"first", "last"}
    assert engine.image(TAG) is None


def test_a_broken_dockerfile(engine, debian12, context):
    write(context, debian12, "FRUN x")
    with pytest.raises(BuildError, match="FRUN"):
        engine.build(context, tag=TAG)


@pytest.mark.parametrize(
    "command",
    [
        "apt-get -o Acquire::Retries=0 -o Dir::Etc::sourcelist=/s -o Dir::Etc::sourceparts=/none update",
        'perl -MIO::Socket::INET -e \'IO::Socket::INET->new("index.invalid:80") or die "Name or service not known"\'',
    ],
    ids=["apt", "resolver"],
)
def test_an_unreachable_package_source_is_recognised(engine, debian12, context, command):
    write(
        context,
        debian12,
        "RUN echo 'deb http://index.invalid/debian bookworm main' > /s",
        f"RUN {command} 2>&1 | tee /l; ! grep -q -e Failed -e known /l",
    )
    with pytest.raises(BuildError) as caught:
        engine.build(context, tag=TAG)
    assert caught.value.code == "index-unreachable"


def test_an_unreachable_base_is_recognised_at_once(engine, context):
    (context / "Dockerfile").write_text("FROM registry.invalid/base:1\nRUN true\n")
    started = time.monotonic()
    with pytest.raises(BuildError) as caught:
        engine.build(context, tag=TAG)
    assert caught.value.code == "base-unreachable"
    assert "registry.invalid/base:1" in caught.value.message
    assert time.monotonic() - started < 120


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_a_stopped_build_stops_in_the_engine_and_leaves_no_secret(engine, debian12, context, workspace, number):
    seconds = nap(number)
    write(context, debian12, f"RUN --mount=type=secret,id=word sleep {seconds}")
    code = (
        # a shell starts background processes with SIGINT ignored, and this program would inherit that
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path; from envbuild.engine.choice import connect; from envbuild.workspace import Workspace\n"
        f"w = Workspace(root=Path({str(workspace.root)!r}), output=Path('/nowhere'), home=Path({str(workspace.home)!r}))\n"
        f"engine = connect(w, {{'DOCKER_HOST': {engine.endpoint!r}}})\n"
        f"engine.build(Path({str(context)!r}), tag={TAG!r}, secrets={{'word': {SECRET.encode()!r}}})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(workspace.root)}, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: sleeping(seconds), 120)
        process.send_signal(number)
        process.wait(timeout=120)
    finally:
        process.kill()
    wait_for(lambda: not sleeping(seconds), 120)
    assert engine.image(TAG) is None
    assert not list(Path("/dev/shm").glob("envbuild*"))
    write(context, debian12, "RUN echo the next build works")
    assert engine.build(context, tag=TAG).id


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.05)


def test_files_that_builds_downloaded_are_removed_when_the_disk_is_nearly_full(engine, debian12, context, monkeypatch):
    """Docker counts this cache as 0 bytes, so nothing else would ever remove it."""
    mount = "--mount=type=cache,id=envbuild,target=/mnt/cache"
    monkeypatch.setattr(download_cache, "ENOUGH", 1)  # so that the result does not depend on this machine's disk

    def output() -> str:
        lines: list[Progress] = []
        anew = time.time()
        write(context, debian12, f"RUN {mount} : {anew}; cat /mnt/cache/test || echo nothing > /mnt/cache/test")
        engine.build(context, tag=TAG, on_progress=lines.append)
        return "\n".join(news.message for news in lines if news.log)

    download_cache.make_room(engine.client, 0, ignore_progress)
    assert "No such file" in output()
    download_cache.make_room(engine.client, download_cache.ENOUGH, ignore_progress)
    download_cache.make_room(engine.client, None, ignore_progress)
    assert "nothing" in output()
    told: list[Progress] = []
    before = engine.info
    with monkeypatch.context() as full:
        full.setattr(download_cache, "ENOUGH", before.free_bytes * 2)
        engine.make_room(told.append)
    assert engine.info is not before, "the free bytes are asked for again"
    assert [news.message for news in told] == [
        "the engine's disk is nearly full: removing files that earlier builds downloaded"
    ]
    assert "No such file" in output()


def test_without_a_program_that_builds_the_refusal_says_what_to_install(engine, debian12, context, workspace, tmp_path):
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\necho 'ERROR: BuildKit is enabled but the buildx component is missing or broken.' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    other = connect(workspace, {"DOCKER_HOST": engine.endpoint, "ENVBUILD_DOCKER": str(program)})
    assert other.info.builder == "classic"
    write(context, debian12, "RUN true")
    with pytest.raises(EngineError) as caught:
        other.build(context, tag=TAG, secrets={"word": b"x"})
    assert (caught.value.code, caught.value.exit_code) == ("no-buildkit", 6)
    assert "buildx" in caught.value.hint


def test_a_better_program_is_found_behind_one_that_cannot(engine, workspace, tmp_path):
    bad = tmp_path / "docker"
    bad.write_text("#!/bin/sh\nexit 1\n")
    bad.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = connect(workspace, {"DOCKER_HOST": engine.endpoint, "PATH": path}).cli
    assert found.builder == engine.cli.builder
    assert found.path != str(bad)
