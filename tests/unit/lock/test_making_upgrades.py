"""Upgrades: which versions are chosen again, which stay, and how the difference between two locks is described."""

from dataclasses import replace

import pytest
from lock_universe import Universe, environment, framework
from packaging.requirements import Requirement

from envbuild.errors import ConflictError
from envbuild.lock import comparison, making
from envbuild.model.lock import BaseLock, Bootstrap, DebianPackage, Lock, Missing

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
    def call(env=None, on_progress=lambda _: None, **options):
        return making.make(
            env or environment(),
            making.LockInputs(
                recipe_requirements={"alpha": ("numpy",)},
                index=world,
                pin_base=pinned_base,
                downloads=tmp_path,
                on_progress=on_progress,
            ),
            **options,
        )

    return call


def versions(made):
    return {artifact.name: artifact.version for artifact in made.prefixes[0].artifacts}


@pytest.fixture
def moved(world, make):
    """A lock, and an index that later got newer versions of everything; one of them needs a newer delta."""
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


@pytest.fixture
def ahead(world, moved):
    """The same index with a gamma of 2021 that requires, directly or indirectly, other packages of 2021."""
    world.add(f"gamma-4.0-{ANY}", ("fresh[more]>=1", "delta>=3", "plain"), day="2021-06-01")
    world.add(f"fresh-0.9-{ANY}")
    world.add(f"fresh-1.0-{ANY}", ("below", "extra; extra == 'more'", "other; extra == 'less'"), day="2021-05-01")
    world.add(f"fresh-1.1-{ANY}", ("below", "gone"), day="2021-06-02")
    world.add(f"below-1.0-{ANY}", day="2020-01-01")
    world.add(f"delta-3.0-{ANY}", day="2021-06-01")
    world.add(f"plain-1.0-{ANY}")
    world.add(f"plain-2.0-{ANY}", day="2021-01-01")
    world.add(f"extra-1.0-{ANY}", day="2021-01-01")
    return moved


def test_what_a_version_past_the_date_requires_comes_with_it_and_nothing_else_does(make, ahead, world):
    world.pages["default", "beta"] = [f for f in world.pages["default", "beta"] if "1.0" not in f.filename]
    world.add(f"beta-1.0.1-{ANY}")  # the locked beta 1.0 is gone, and with it its bound on delta
    said = []
    after = make(like=ahead, upgrading=[Requirement("gamma==4.0")], on_progress=lambda news: said.append(news.message))
    kept = {name: version for name, version in versions(ahead).items() if name not in {"beta", "delta"}}
    # plain 1.0 is within the date limit and satisfies gamma. fresh 1.1 was published after gamma 4.0.
    brought = {"delta": "3.0", "fresh": "1.0", "below": "1.0", "plain": "1.0", "extra": "1.0"}
    assert versions(after) == {**kept, **brought, "gamma": "4.0", "beta": "1.1"}
    assert "gamma==4.0 requires versions that were published after 2018-06-30: below, delta, extra, fresh" in said
    assert make(like=after, upgrading=[Requirement("numpy")]) == after, "the next upgrade leaves them in place"


def test_a_requirement_published_after_the_version_is_taken_where_there_is_no_other(make, moved, world):
    world.add(f"gamma-4.0-{ANY}", ("tardy",), day="2021-06-01")
    world.add(f"tardy-1.0-{ANY}", day="2021-06-03")
    assert versions(make(like=moved, upgrading=[Requirement("gamma>=4")]))["tardy"] == "1.0"


def test_a_version_whose_requirement_nothing_meets_is_refused_by_its_name(make, moved, world):
    world.add(f"gamma-4.0-{ANY}", ("fresh>=1", "nowhere"), day="2021-06-01")
    world.add(f"fresh-1.0-{ANY}", day="2021-05-01")
    with pytest.raises(ConflictError, match="nowhere"):
        make(like=moved, upgrading=[Requirement("gamma==4.0")])
    world.add(f"gamma-5.0-{ANY}", ("beta<1",), day="2021-06-01")
    with pytest.raises(ConflictError, match="beta"):
        make(like=moved, upgrading=[Requirement("gamma==5.0")])


def test_a_file_that_is_gone_is_replaced_and_told(make, moved, world):
    world.pages["default", "gamma"] = [f for f in world.pages["default", "gamma"] if "1.0" not in f.filename]
    after = make(like=moved, upgrading=[Requirement("numpy")])
    difference = comparison.compare(moved, after)
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
    difference = comparison.compare(before, after)
    assert [(each.kind, each.role, each.name) for each in difference.changes] == [
        ("added", "package", "old"), ("added", "build tool", "pip"), ("added", "build tool", "setuptools"),
        ("added", "build tool", "wheel"),
    ]  # fmt: skip
    assert difference.decision == ("frameworks[0].constraints", "frameworks[0].requirements")
    assert difference.missing_added == after.missing
    assert [each.kind for each in comparison.compare(after, before).changes] == ["removed"] * 4
    assert comparison.compare(before, before).empty
    assert not difference.empty


def test_the_difference_of_bases_is_told_by_digest_or_by_package():
    def base(digest=None, **packages):
        listed = tuple(DebianPackage(name=name, version=version, sha256="0" * 64) for name, version in packages.items())
        found = Bootstrap(suite="toy", architecture="amd64", variant="minbase", packages=listed) if packages else None
        return BaseLock(image="toyos:12", digest=digest, bootstrap=found)

    def told(before, after):
        made = Lock(environment=environment(), base=before, prefixes=(), missing=())
        return comparison.compare(made, replace(made, base=after)).base

    assert told(base("sha256:1"), base("sha256:2")) == ("digest sha256:1 → sha256:2",)
    assert told(base(libc="1", tar="1"), base(libc="2", zlib="1")) == ("libc 1 → 2", "tar 1 removed", "zlib 1 added")
    assert told(base(libc="1"), base("sha256:2")) == ("digest none → sha256:2", "libc 1 removed")
    assert told(base(libc="1"), base(libc="1")) == ()
