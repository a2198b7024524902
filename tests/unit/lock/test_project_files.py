"""Files that the matrix pins by hash: they are locked while their index is unreachable, and compared with it later."""

from dataclasses import replace

import pytest
from lock_universe import Universe, environment, framework

from envbuild.errors import BuildError
from envbuild.lock import checking, making
from envbuild.model.environment import PinnedFile
from envbuild.model.lock import BaseLock

ANY = "py2.py3-none-any.whl"
ELSEWHERE = "https://wheels.example/cu90"
OMEGA = "omega-1.0-cp36-cp36m-linux_x86_64.whl"
KNOWN = PinnedFile(filename=OMEGA, sha256="a" * 64, requires=("beta<2",), source="https://lock.example/Pipfile.lock")


@pytest.fixture
def world():
    universe = Universe()
    universe.add(f"beta-1.5-{ANY}")
    universe.add(f"beta-2.0-{ANY}")
    universe.down.add(ELSEWHERE)
    return universe


@pytest.fixture
def make(world, tmp_path):
    def call(*files):
        env = environment(framework("omega", "1.0", index=ELSEWHERE, files=files))
        base = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)
        return making.make(
            env, making.LockInputs(recipe_requirements={}, index=world, pin_base=lambda _: base, downloads=tmp_path)
        )

    return call


def test_a_pinned_file_is_locked_though_its_index_does_not_answer(make):
    made = make(KNOWN)
    beta, omega = made.prefixes[0].artifacts
    assert (omega.filename, omega.sha256, omega.index, omega.project, omega.size) == (OMEGA, "a" * 64, ELSEWHERE, "omega", None)
    assert beta.version == "1.5"
    assert made.missing == ()
    assert checking.check(made, [], today=made.environment) == []


def test_without_one_it_is_missing(make):
    assert [gap.what for gap in make().missing] == ["the files of omega 1.0 and of its dependencies"]


def test_an_index_that_answers_is_held_to_what_is_pinned(make, world):
    world.down.clear()
    offered = world.add(OMEGA, ("beta",), index=ELSEWHERE)
    assert make(replace(KNOWN, sha256=offered.sha256)).prefixes[0].artifacts[1].sha256 == offered.sha256
    with pytest.raises(BuildError) as caught:
        make(KNOWN)
    assert caught.value.code == "artifact-changed"
    for part in (OMEGA, ELSEWHERE, offered.sha256, "a" * 64, KNOWN.source):
        assert part in caught.value.message
    world.pages[ELSEWHERE, "omega"] = [replace(offered, sha256="")]
    assert make(KNOWN).prefixes[0].artifacts[1].sha256 == "a" * 64


def test_what_stands_upon_another_build_takes_that_from_the_same_index(world, tmp_path):
    world.down.clear()
    world.add(f"upon-1.0-{ANY}")
    world.add(f"upon-1.0-{ANY}", index=ELSEWHERE, day="")
    world.add(OMEGA, ("upon", "beta"), index=ELSEWHERE, day="")
    env = environment(framework("omega", "1.0", "omega==1.0", "upon==1.0", "beta<2", index=ELSEWHERE))
    base = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)
    made = making.make(env, making.LockInputs(recipe_requirements={}, index=world, pin_base=lambda _: base, downloads=tmp_path))
    assert [(each.name, each.index) for each in made.prefixes[0].artifacts] == [
        ("beta", "default"), ("omega", ELSEWHERE), ("upon", ELSEWHERE),
    ]  # fmt: skip


def test_a_lock_that_says_otherwise_is_refused(make):
    made = make(KNOWN)
    today = replace(
        made.environment, frameworks=(replace(made.environment.frameworks[0], files=(replace(KNOWN, sha256="b" * 64),)),)
    )
    (problem,) = checking.check(made, [], today=today)
    assert f"according to {KNOWN.source}, its sha256 is {'b' * 64}" in problem.message
