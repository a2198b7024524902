"""Upgrading: what is chosen anew, what stays, and how the difference of two locks is told."""

from dataclasses import replace

import pytest
from lock_universe import Universe, environment, framework
from packaging.requirements import Requirement

from envbuild import lock
from envbuild.errors import ConflictError
from envbuild.model import BaseLock, Bootstrap, DebianPackage, Lock, Missing

ANY = "py2.py3-none-any.whl"


def pinned_base(env):
    return BaseLock(image=env.base.image, digest="sha256:" + "1" * 64, bootstrap=None)


@pytest.fixture
def world():
    universe = Universe()
    universe.add(f"alpha-1.0-{ANY}", ("beta>=1", "gamma"), day="2018-06-30")
    universe.add(f"beta-1.0-{ANY}", ("delta<2",))
    universe.add(f"gamma-1.0-{ANY}")
    universe.add(f"delta-1.0-{ANY}")
    universe.add(f"numpy-1.14-{ANY}")
    return universe


@pytest.fixture
def make(world, tmp_path):
    def call(env=None, **options):
        return lock.make(
            env or environment(),
            recipe_requirements={"alpha": ("numpy",)},
            index=world,
            pin_base=pinned_base,
            downloads=tmp_path,
            **options,
        )

    return call


def versions(made):
    return {artifact.name: artifact.version for artifact in made.prefixes[0].artifacts}


@pytest.fixture
def moved(world, make):
    """A lock, and a world that has moved on since: newer versions of everything, one of which needs a newer delta."""
    before = make()
    world.add(f"beta-1.1-{ANY}", ("delta>=2",))
    world.add(f"gamma-1.1-{ANY}")
    world.add(f"delta-1.1-{ANY}")
    world.add(f"delta-2.0-{ANY}")
    world.add(f"gamma-3.0-{ANY}", day="2021-01-01")
    return before


def test_all_of_it_is_chosen_anew_within_the_date(make, moved):
    assert versions(make()) == {"alpha": "1.0", "beta": "1.1", "delta": "2.0", "gamma": "1.1", "numpy": "1.14"}


def test_one_package_brings_what_it_needs_and_leaves_the_rest(make, moved):
    only_gamma = make(like=moved, upgrading=[Requirement("gamma")])
    assert versions(only_gamma) == {**versions(moved), "gamma": "1.1"}
    only_beta = make(like=moved, upgrading=[Requirement("Beta")])
    assert versions(only_beta) == {**versions(moved), "beta": "1.1", "delta": "2.0"}
    assert make(like=moved, upgrading=[Requirement("numpy")]) == moved


def test_a_version_that_is_asked_for_counts_whatever_its_date_and_is_kept_later(make, moved):
    fixed = make(like=moved, upgrading=[Requirement("gamma>=3")])
    assert versions(fixed) == {**versions(moved), "gamma": "3.0"}
    assert versions(make(like=fixed, upgrading=[Requirement("beta")]))["gamma"] == "3.0"
    assert versions(make())["gamma"] == "1.1"
    with pytest.raises(ConflictError, match="alpha"):
        make(like=moved, upgrading=[Requirement("alpha>=2")])


def test_a_file_that_is_gone_is_replaced_and_told(make, moved, world):
    world.pages["default", "gamma"] = [f for f in world.pages["default", "gamma"] if "1.0" not in f.filename]
    after = make(like=moved, upgrading=[Requirement("numpy")])
    difference = lock.compare(moved, after)
    assert [(each.kind, each.name, each.before.version, each.after.version) for each in difference.changes] == [
        ("changed", "gamma", "1.0", "1.1")
    ]


def test_the_difference_names_all_that_was_added_removed_and_changed(make, world):
    before = make()
    world.add("old-1.0.tar.gz")
    for tool in ("pip", "setuptools", "wheel"):
        world.add(f"{tool}-1.0-{ANY}")
    env = environment(framework(requirements=("alpha==1.0", "old"), constraints=("beta<2",)))
    after = replace(make(env), missing=(Missing(what="base toyos:12", why="no engine answers"),))
    difference = lock.compare(before, after)
    assert [(each.kind, each.role, each.name) for each in difference.changes] == [
        ("added", "package", "old"), ("added", "build tool", "pip"), ("added", "build tool", "setuptools"),
        ("added", "build tool", "wheel"),
    ]  # fmt: skip
    assert difference.decision == ("frameworks[0].constraints", "frameworks[0].requirements")
    assert difference.missing_added == after.missing
    assert [each.kind for each in lock.compare(after, before).changes] == ["removed"] * 4
    assert lock.compare(before, before).empty
    assert not difference.empty


def test_the_difference_of_bases_is_told_by_digest_or_by_package():
    def base(digest=None, **packages):
        listed = tuple(DebianPackage(name=name, version=version, sha256="0" * 64) for name, version in packages.items())
        found = Bootstrap(suite="toy", architecture="amd64", variant="minbase", packages=listed) if packages else None
        return BaseLock(image="toyos:12", digest=digest, bootstrap=found)

    def told(before, after):
        made = Lock(environment=environment(), base=before, prefixes=(), missing=())
        return lock.compare(made, replace(made, base=after)).base

    assert told(base("sha256:1"), base("sha256:2")) == ("digest sha256:1 → sha256:2",)
    assert told(base(libc="1", tar="1"), base(libc="2", zlib="1")) == ("libc 1 → 2", "tar 1 removed", "zlib 1 added")
    assert told(base(libc="1"), base("sha256:2")) == ("digest none → sha256:2", "libc 1 removed")
    assert told(base(libc="1"), base(libc="1")) == ()
