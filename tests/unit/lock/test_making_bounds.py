"""Bounds of rows, recipes, dates and the user's conditions also hold while an index does not answer."""

from dataclasses import replace

import pytest
from lock_universe import Universe, environment, framework
from packaging.version import Version

from envbuild.lock import checking, making
from envbuild.model.custom import Custom
from envbuild.model.lock import Artifact, BaseLock

ANY = "py2.py3-none-any.whl"
ELSEWHERE = "https://wheels.example/cpu"
BASE = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)
CUSTOM = Custom(request=(), pip=(), newer=(), apt=(), files=(), user="", ports=(), services=())


@pytest.fixture
def world():
    universe = Universe()
    for version in ("59.5", "61.2"):
        universe.add(f"tools-{version}-{ANY}")
    universe.add(f"tools-70.0-{ANY}", day="2024-01-01")
    universe.add(f"board-1.0-{ANY}", ("tools>=41",))
    universe.add(f"omega-1.0-{ANY}", ("board",), index=ELSEWHERE, day="")
    universe.down.add(ELSEWHERE)
    return universe


@pytest.fixture
def make(world, tmp_path):
    def call(env, recipes=()):
        recipe = {"omega": tuple(recipes)}
        made = making.make(
            env, making.LockInputs(recipe_requirements=recipe, index=world, pin_base=lambda _: BASE, downloads=tmp_path)
        )
        assert checking.check(made, []) == []
        world.down.clear()
        whole = making.complete(
            made, making.LockInputs(recipe_requirements=recipe, index=world, pin_base=lambda _: BASE, downloads=tmp_path)
        )
        assert checking.check(whole, []) == [] and whole.missing == ()
        return made, whole

    return call


def omega(**changes):
    return environment(framework("omega", "1.0", index=ELSEWHERE, **changes), exclude_newer="2020-01-01")


def asks(env, *pip):
    return replace(env, custom=replace(CUSTOM, pip=pip))


def tools_of(*locks):
    return [[a.version for a in made.prefixes[0].artifacts if a.name == "tools"] for made in locks]


@pytest.mark.parametrize(
    ("env", "recipes", "expected"),
    [
        (asks(omega(constraints=("tools<59.6",)), "board"), (), "59.5"),
        (asks(omega(requirements=("omega==1.0", "tools<60")), "board"), (), "59.5"),
        (asks(omega(constraints=("tools<62",)), "board", "tools<60"), (), "59.5"),
        (asks(omega(), "board"), ("tools<60",), "59.5"),
        (asks(omega(), "board"), (), "61.2"),
    ],
    ids=["edit the constraints", "row's requirement", "user's condition", "recipe", "date"],
)
def test_a_bound_holds_before_and_after_the_index_answers(make, env, recipes, expected):
    before, after = tools_of(*make(env, recipes))
    assert before == [expected] == after


def test_several_frameworks_of_which_one_is_reachable(world, make):
    world.add(f"alpha-1.0-{ANY}", ("tools",))
    env = environment(framework("alpha", "1.0"), framework("omega", "1.0", index=ELSEWHERE, constraints=("tools<59.6",)))
    made, whole = make(replace(env, exclude_newer="2020-01-01"))
    assert tools_of(made, whole) == [["59.5"], ["59.5"]]


def test_an_earlier_lock_that_breaks_a_bound_is_reported_and_mended(world, make, tmp_path):
    env = asks(omega(constraints=("tools<59.6",)), "board")
    made, _ = make(env)
    world.down.add(ELSEWHERE)
    broken = replace(made, prefixes=(replace(made.prefixes[0], artifacts=tuple(map(_newer, made.prefixes[0].artifacts))),))
    assert any("omega allows tools<59.6, but 61.2 is pinned" in p.message for p in checking.check(broken, []))
    world.down.clear()
    options = {"recipe_requirements": {}, "index": world, "pin_base": lambda _: BASE, "downloads": tmp_path}
    mended = making.complete(broken, making.LockInputs(**options))
    assert tools_of(mended) == [["59.5"]]
    assert Version(tools_of(broken)[0][0]) > Version("59.6")


def _newer(artifact: Artifact) -> Artifact:
    if artifact.name != "tools":
        return artifact
    return replace(artifact, version="61.2", filename=f"tools-61.2-{ANY}")
