"""A small package index, and a lock that was made from it."""

import pytest
from lock_universe import Universe, environment, framework

from envbuild.lock import making
from envbuild.model.lock import BaseLock

ANY = "py2.py3-none-any.whl"
ELSEWHERE = "https://wheels.example/cu90"


@pytest.fixture
def world():
    universe = Universe()
    universe.add(f"alpha-1.0-{ANY}", ("beta",))
    universe.add(f"beta-1.0-{ANY}")
    universe.add(f"omega-1.0-{ANY}", index=ELSEWHERE)
    return universe


@pytest.fixture
def made(world, tmp_path):
    env = environment(framework(), framework("omega", "1.0", index=ELSEWHERE))
    base = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)
    return making.make(env, making.LockInputs(recipe_requirements={}, index=world, pin_base=lambda _: base, downloads=tmp_path))
