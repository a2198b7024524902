"""Three builders publish the same set at the same time, and one of them is killed (SIGKILL) in the middle.

Nothing is replaced: each builds, verifies and trains the images, and publishes them into Debian's docker-registry. The builders
share the registry and the engine, and nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_registry import serve_debians
from program import ROOT, Program, fresh_root, share_bases, share_downloads
from registry_judge import KINDS, Judge
from signing import write_pair

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.prove, pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

SET = ("opencv-4.10.0.84-cpu-py311-debian12", "opencv-5.0.0.93-cpu-py311-debian12")


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A machine with its own checkout and cache folder."""

    program: Program
    words: tuple[str, ...]

    @property
    def log(self) -> Path:
        return self.program.home / "log"

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                self.program.argv(*self.words), stdout=log, stderr=log, env=self.program.env(), start_new_session=True
            )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    with serve_debians(tmp_path) as address:
        yield address


@pytest.fixture
def builder(tmp_path: Path, engine: Engine, host: str) -> Callable[[str, Sequence[str]], Builder]:
    key, _ = write_pair(tmp_path)
    surroundings = {"DOCKER_HOST": engine.endpoint, "DOCKER_CONFIG": str(tmp_path), "NO_PROXY": "127.0.0.1"}

    def made(label: str, names: Sequence[str]) -> Builder:
        root, home = fresh_root(tmp_path / f"root-{label}"), tmp_path / f"home-{label}"
        for name in names:
            shutil.copytree(ROOT / "images/environments" / name, root / "images/environments" / name)
        share_bases(home)
        share_downloads(home)
        words = ("publish", *names, "--jobs", "1", "--to", f"{host}/lab/dl", "--key", str(key), "--progress", "plain")
        return Builder(program=Program(root=root, home=home, environment=surroundings), words=words)

    return made


def test_three_builders_of_one_set_and_one_is_killed(builder: Callable[..., Builder], host: str) -> None:
    judge, builders = Judge(host), [builder(label, SET) for label in ("a", "b", "c")]
    running = [each.start() for each in builders]
    end = time.monotonic() + 3000
    while not judge.tags():  # the first image arrives, and its statements and moving tags are still to come
        assert time.monotonic() < end and all(each.poll() is None for each in running)
        time.sleep(0.05)
    os.killpg(running[0].pid, signal.SIGKILL)
    assert running[0].wait(60) == -signal.SIGKILL
    judge.require_truth()
    for each, process in zip(builders[1:], running[1:], strict=True):
        assert process.wait(3000) == 0, each.log.read_text()[-6000:]
    found = judge.require_truth()
    assert {*SET} <= {*found}
    images = {name: {digest for tag, digest in found.items() if tag.startswith(name)} for name in SET}
    assert all(len(digests) == 1 for digests in images.values()), "all builders make the same image"
    assert all(judge.stated(digest) >= KINDS for digests in images.values() for digest in digests)
    assert all(tag.startswith((*SET, "sha256-")) for tag in found)
    again = builders[0].program.run(*builders[0].words, timeout=3000).expect(0)
    assert judge.require_truth() == found, again.err
