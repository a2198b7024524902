"""Three builders publish at the same time, the same set or each its part of a set, and one of them is killed (SIGKILL).

Nothing is replaced: each builds, verifies and trains the images, and publishes them into Debian's docker-registry. The builders
share the registry and the engine, and nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_registry import DebianRegistry, run_debians
from program import ROOT, Program, fresh_root, share_bases, share_downloads
from registry_judge import KINDS, Judge
from signing import write_pair

from envbuild.compose.store import LayerStore, StoreEntry
from envbuild.engine.client import Engine

pytestmark = [pytest.mark.prove, pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

SET = ("opencv-4.10.0.84-cpu-py311-debian12", "opencv-5.0.0.93-cpu-py311-debian12")
INCOMPLETE = "pytorch-2.5.1-cuda11.8-py311-debian12"  # no machine here can reach the index of this build
SHARING = ("sonnet-1.23-cpu-py27-debian11", "tf-1.9.0-cpu-py27-debian11")  # one large wheel


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A machine with its own checkout and cache folder. ``options`` say where and how it publishes."""

    program: Program
    options: tuple[str, ...]
    repository: str

    @property
    def log(self) -> Path:
        return self.program.home / "log"

    @property
    def names(self) -> Path:
        """The file with the names of the part that the machine published."""
        return self.program.home / "names.txt"

    def start(self, *names: str) -> subprocess.Popen[bytes]:
        return self._start(self.program.argv("publish", *names, *self.options))

    def start_part(self, part: str) -> subprocess.Popen[bytes]:
        """Plan a part of the work and publish its images with the composer, as a job of a CI system does: in one shell."""
        plan = shlex.join(self.program.argv("plan", "--against", self.repository, "--shard", part, "--format", "names"))
        publish = shlex.join(self.program.argv("publish", "--builder", "compose", "--counts", "1", *self.options))
        script = f'{plan} > "$0"; mapfile -t names < "$0"; {publish} "${{names[@]}}"'
        return self._start(["bash", "-euc", script, str(self.names)])

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(argv, stdout=log, stderr=log, env=self.program.env(), start_new_session=True)

    def layers(self) -> dict[str, StoreEntry]:
        """What the machine's store has, by the key of each layer."""
        return {entry.key: entry for entry in LayerStore(self.program.home / "layers").entries()}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DebianRegistry]:
    with run_debians(tmp_path) as running:
        yield running


@pytest.fixture
def host(registry: DebianRegistry) -> str:
    return registry.host


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
        options = ("--jobs", "1", "--to", f"{host}/lab/dl", "--key", str(key), "--progress", "plain")
        program = Program(root=root, home=home, environment=surroundings)
        return Builder(program=program, options=options, repository=f"{host}/lab/dl")

    return made


def test_three_builders_of_one_set_and_one_is_killed(builder: Callable[..., Builder], host: str) -> None:
    judge, builders = Judge(host), [builder(label, SET) for label in ("a", "b", "c")]
    running = [each.start(*SET) for each in builders]
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
    again = builders[0].program.run("publish", *SET, *builders[0].options, timeout=3000).expect(0)
    assert judge.require_truth() == found, again.err


def test_three_builders_of_one_part_each_and_one_is_killed(builder: Callable[..., Builder], registry: DebianRegistry) -> None:
    """The killed builder's part is planned and published again by a machine with an empty cache folder."""
    judge, names = Judge(registry.host), (*SET, *SHARING)
    builders = [builder(label, names) for label in ("a", "b", "c")]
    running = [each.start_part(f"{number}/3") for number, each in enumerate(builders, 1)]
    end = time.monotonic() + 3000
    while not any(tag.startswith(SHARING) for tag in judge.tags()):  # the first of two images arrives
        assert time.monotonic() < end and all(process.poll() in (None, 0) for process in running)
        time.sleep(0.05)
    (killed,) = [number for number, each in enumerate(builders) if SHARING[0] in each.names.read_text()]
    os.killpg(running[killed].pid, signal.SIGKILL)
    assert running[killed].wait(60) == -signal.SIGKILL
    judge.require_truth()
    again = builder("again", names)
    running[killed], part = again.start_part(f"{killed + 1}/3"), builders[killed].names.read_text()
    for each, process in zip([*builders[:killed], again, *builders[killed + 1 :]], running, strict=True):
        assert process.wait(3000) == 0, each.log.read_text()[-6000:]
    assert {*again.names.read_text().split()} <= {*part.split()}
    parts = [each.names.read_text().split() for each in builders]
    assert sorted(name for each in parts for name in each) == sorted(names) and sorted(SHARING) in parts
    found = judge.require_truth()
    assert all(judge.stated(found[name]) >= KINDS for name in names)
    planned = again.program.run("plan", "--against", again.repository, "--format", "names").expect(0)
    assert planned.out == "", "nothing is left to do"
    require_one_owner([[each, again] if each is builders[killed] else [each] for each in builders], registry)


def test_a_release_of_all_waits_for_an_image_that_cannot_be_made(builder: Callable[..., Builder], host: str) -> None:
    judge, this = Judge(host), builder("a", (SET[0], INCOMPLETE))
    words = ("publish", "--all", "--release", "2026.11", "--keep-going", *this.options)
    refused = this.program.run(*words, timeout=3000).expect(5)
    assert f"no tag was moved: 1 of 2 images could not be published ({INCOMPLETE})." in refused.err
    assert "release the other images only" in refused.err
    assert all(re.fullmatch(f"{re.escape(SET[0])}-[0-9a-f]{{8}}-[0-9a-f]{{8}}|sha256-.*", tag) for tag in judge.tags())
    shutil.rmtree(this.program.root / "images/environments" / INCOMPLETE)
    this.program.run(*words, timeout=3000).expect(0)
    assert {SET[0], "release", "release-2026.11"} <= {*judge.require_truth()}


def require_one_owner(parts: Sequence[Sequence[Builder]], registry: DebianRegistry) -> None:
    """Check that one part has made each layer of a large wheel, and that each of these layers was sent once."""
    stores = [{key: entry for each in part for key, entry in each.layers().items()} for part in parts]
    entries = {key: entry for store in stores for key, entry in store.items()}
    makers = Counter(key for store in stores for key in store)
    sent = registry.uploads()
    twice = [f"{entry.about} ({entry.layer.size} bytes)" for key, entry in entries.items() if makers[key] > 1]
    again = [entry.about for entry in entries.values() if sent[entry.layer.digest] > 1]
    print(f"\n{len(entries)} layers in the stores, {len(sent)} blobs sent; made twice: {twice}; sent more than once: {again}")
    of_wheels = {key: entry for key, entry in entries.items() if entry.about != "a layer that an engine built"}
    large = {key: entry for key, entry in of_wheels.items() if entry.layer.size > 40_000_000}
    assert len(large) == 3, "TensorFlow and two releases of OpenCV"
    assert {makers[key] for key in large} == {sent[entry.layer.digest] for entry in large.values()} == {1}
