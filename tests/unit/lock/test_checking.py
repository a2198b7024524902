"""The offline check of a lock: it checks every field that the environment determines, and no other field."""

from dataclasses import replace

import pytest
from lock_universe import Universe, environment, framework

from envbuild.errors import InvalidInputError
from envbuild.lock import checking, lock_file, making
from envbuild.model.environment import ComputeCapability, PrefixPlan, Python
from envbuild.model.lock import BaseLock

ANY = "py2.py3-none-any.whl"


@pytest.fixture
def made(tmp_path):
    world = Universe()
    world.add(f"alpha-1.0-{ANY}", ("beta",))
    world.add("beta-1.0.tar.gz")
    for tool in ("pip", "setuptools", "wheel"):
        world.add(f"{tool}-1.0-{ANY}")
    base = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)
    return making.make(
        environment(), making.LockInputs(recipe_requirements={}, index=world, pin_base=lambda _: base, downloads=tmp_path)
    )


def said(spoilt, **options):
    return "\n".join(problem.message for problem in checking.check(spoilt, [], **options))


def with_prefix(made, **changes):
    return replace(made, prefixes=(replace(made.prefixes[0], **changes),))


def test_a_lock_as_it_was_made_holds(made):
    assert said(made, today=made.environment) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "other"}, "its prefixes are other, but the environment has env"),
        ({"path": "/usr"}, "env: it is at /usr instead of /opt/env"),
        ({"backend": "pip"}, "env: it is installed by pip instead of uv"),
        ({"frameworks": ()}, "env: alpha is neither installed nor listed as unpinned"),
        ({"frameworks": ("alpha", "gamma")}, "env: it installs gamma, which the environment does not have in this prefix"),
        ({"build_artifacts": ()}, "env: it has source archives, but no tools to build them"),
        (
            {"python": Python(version="3.7", provided_by="uv", executable="/x", packages=())},
            "env: its Python is /x (3.7, uv), but the environment has /usr/bin/python3.6 (3.6, distribution)",
        ),
    ],
)
def test_a_prefix_is_what_the_environment_makes_it(made, changes, message):
    assert message in said(with_prefix(made, **changes)).splitlines()


def test_artifacts_are_in_order_from_known_indexes_and_no_more_than_needed(made):
    alpha, beta = made.prefixes[0].artifacts
    tools = made.prefixes[0].build_artifacts
    assert "env: its artifacts are not sorted by name" in said(with_prefix(made, artifacts=(beta, alpha)))
    strange = replace(alpha, index="https://elsewhere.example", project="gamma")
    told = said(with_prefix(made, artifacts=(strange, beta)))
    assert "no framework uses the index 'https://elsewhere.example'" in told
    assert "it belongs to the project 'gamma'" in told
    assert "it lacks wheel, which installing" in said(with_prefix(made, build_artifacts=tools[:2]))
    told = said(with_prefix(made, artifacts=(alpha,)))
    assert "it pins the build tools pip, setuptools, wheel, but builds nothing" in told


def test_several_prefixes_are_told_apart(made):
    plans = tuple(PrefixPlan(name=name, python=made.environment.python, frameworks=("alpha",)) for name in ("one", "two"))
    env = replace(made.environment, prefixes=plans)
    assert "its prefixes are env, but the environment has one, two" in said(replace(made, environment=env))


def test_a_base_is_pinned_or_said_to_be_missing(made):
    other = BaseLock(image="toyos:13", digest=None, bootstrap=None)
    told = said(replace(made, base=other))
    assert "its base is toyos:13, but the environment has toyos:12" in told
    assert "its base toyos:12 is neither pinned nor listed as unpinned" in told


def test_facts_are_those_of_the_matrix_today_and_choices_may_stay(made):
    def against(**changes):
        return said(made, today=replace(made.environment, **changes))

    assert against(exclude_newer="2020-01-01", nccl="2.9") == ""
    assert against(driver_min="384.81") == "driver_min is absent in the lock, but 384.81 in the matrix"
    assert "compute_capability" in against(compute_capability=ComputeCapability(sass=("6.1",), ptx=()))
    assert "frameworks[0].recipe is alpha in the lock, but gamma in the matrix" in against(
        frameworks=(framework(recipe="gamma"),)
    )
    assert against(frameworks=(framework(cuda="9.0"),)) == ""  # older locks lack this field
    told = against(frameworks=(framework(options={"controller": "mpi"}),))
    assert "frameworks[0].options" in told
    assert "mpi in the matrix" in told
    assert "alpha allows beta<1, but 1.0 is pinned" in against(frameworks=(framework(constraints=("beta<1",)),))
    assert against(frameworks=(framework(requirements=("alpha==1.0", "Beta>=1")),)) == "", "the lock pins this package"
    told = against(frameworks=(framework(requirements=("alpha==1.0", "gamma>=2")),))
    assert told == "alpha requires gamma, which the lock does not pin"


def test_a_file_that_two_locks_pin_differently_is_named_with_both(made):
    alpha, beta = made.prefixes[0].artifacts
    other = with_prefix(made, artifacts=(replace(alpha, sha256="0" * 64), beta))
    other = replace(other, environment=replace(made.environment, name="other"))
    assert checking.contradictions([made, made]) == []
    (problem,) = checking.contradictions([made, other])
    assert problem.where == "other"
    assert problem.message == (
        f"{alpha.filename} has sha256 {'0' * 64} here, but {alpha.sha256} in the lock of {made.environment.name}"
    )


def test_the_bytes_are_those_that_are_written(made, tmp_path):
    path = tmp_path / made.environment.name / "lock.json"
    lock_file.write(path, made)
    assert said(lock_file.read(path), path=path) == ""
    path.write_text(path.read_text().replace('"schema": 1', '"schema":  1').replace("\n  ", "\n "))
    assert "its text differs from the text that envbuild writes" in said(lock_file.read(path), path=path)


def test_versions_that_are_none_are_refused_when_read(made, tmp_path):
    path = tmp_path / made.environment.name / "lock.json"
    lock_file.write(path, replace(made, environment=replace(made.environment, cuda="new", cudnn="")))
    with pytest.raises(InvalidInputError) as caught:
        lock_file.read(path)
    assert [problem.message for problem in caught.value.problems] == [
        "'new' is not a version of CUDA", "'' is not a version of cuDNN",
    ]  # fmt: skip
