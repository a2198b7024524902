"""Real builders publish into Debian's docker-registry. Nothing is replaced: they build, verify and train the images.

Three publish the same set at the same time, and one of them is killed (SIGKILL) in the middle; they share the registry and the
engine, and nothing else. One changes a recipe, and exactly the images of that recipe move.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_registry import serve_debians
from program import ROOT, Answer, Program, fresh_root, share_bases, share_downloads
from registry_judge import KINDS, Judge
from signing import write_pair

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.prove, pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

SET = ("opencv-4.10.0.84-cpu-py311-debian12", "opencv-5.0.0.93-cpu-py311-debian12")
OTHER = "jax-0.6.2-cpu-py311-debian12"


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
    with serve_debians(tmp_path, deletes=True) as address:
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


def test_a_changed_recipe_moves_its_own_images_and_no_other(builder: Callable[..., Builder], host: str) -> None:
    judge, one, to = Judge(host), builder("one", (*SET, OTHER)), f"{host}/lab/dl"
    run, recipe = one.program.run, one.program.root / "images/recipes/opencv/smoke.py"

    def publish(*words: str) -> Answer:
        return run(*one.words, *words, timeout=3000).expect(0)

    publish("--release", "first")
    first = judge.require_truth()
    again = publish("--release", "first")
    assert judge.require_truth() == first and again.seconds < 3 * 3 + 10, "nothing changed, so nothing is made"
    recipe.write_text(f"{recipe.read_text()}\n# a change\n")
    plan = run("plan", "--against", to, "--json").expect(0).document
    assert sorted(each["name"] for part in plan["parts"] for each in part["environments"]) == sorted(SET)
    publish("--release", "second")
    second = judge.require_truth()
    moved = {tag for tag in first if first[tag] != second[tag]}
    assert moved == {
        "release",
        *SET,
        *(tag for tag in first if any(re.fullmatch(f"{re.escape(each)}-[0-9a-f]{{8}}", tag) for each in SET)),
    }
    new = {tag for tag in second.keys() - first.keys() if not tag.startswith("sha256-")}
    assert len(new) == 3 and "release-second" in new and all(tag.startswith(SET) for tag in new - {"release-second"})
    run("publish", "--rollback", *one.words[-6:-2]).expect(0)
    back = judge.require_truth()
    assert {tag: back[tag] for tag in first} == first and back["release-second"] == second["release-second"]
    recipe.write_text(f"{recipe.read_text()}# one more\n")
    held = run(one.words[0], SET[0], *one.words[-8:], "--hold-tags", timeout=3000).expect(0)
    before = judge.require_truth()
    (unneeded,) = {before[tag] for tag in before.keys() - back.keys() if tag.startswith(SET)}
    shown = run("registry", "prune", to, "--keep", "0", "--json").expect(0).document
    assert [each["digest"] for each in shown["removed"]] == [unneeded] and judge.require_truth() == before, held.out
    run("registry", "prune", to, "--keep", "0", "--yes").expect(0)
    assert {tag for tag in judge.require_truth() if not tag.startswith("sha256-")} == {
        tag for tag in back if not tag.startswith("sha256-")
    }
