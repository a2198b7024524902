"""Base images: how they are pinned, compared and refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from envbuild.engine import bases, bootstrap
from envbuild.engine.client import Engine
from envbuild.errors import BuildError, EngineError
from envbuild.model.environment import Base, Environment, Python, System
from envbuild.model.lock import BaseLock, Bootstrap, DebianPackage, Missing
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace


def packages(**versions: str) -> tuple[DebianPackage, ...]:
    return tuple(
        DebianPackage(name=n, version=v, sha256=hashlib.sha256(f"{n}{v}".encode()).hexdigest()) for n, v in versions.items()
    )


def made_of(**versions: str) -> Bootstrap:
    return Bootstrap(suite="bookworm", architecture="amd64", variant="minbase", packages=packages(**versions))


def environment(*, others: tuple[str, ...] = ()) -> Environment:
    return Environment(
        name="toy-1-cpu-py311-debian12",
        frameworks=(),
        python=Python(version="3.11", provided_by="distribution", executable="/usr/bin/python3.11", packages=("python3",)),
        system=System(
            name="debian12",
            family="debian",
            version="12",
            codename="bookworm",
            image="debian:12",
            glibc="2.36",
            bootstrap_suite="bookworm",
            init_package="tini",
            init="/usr/bin/tini",
            packages=(),
        ),
        cuda=None,
        cudnn=None,
        nccl=None,
        base=Base(provider="apt", image="debian:12", is_default=True, repositories=(), packages=(), other_providers=others),
        driver_min=None,
        compute_capability=None,
        require_cuda=None,
        exclude_newer="",
    )


def test_a_base_that_is_not_the_pinned_one_stops_with_every_difference():
    with pytest.raises(BuildError) as stopped:
        bases.require_same(made_of(a="1", b="1", c="1"), made_of(a="1", b="2", d="1"))
    assert (stopped.value.code, stopped.value.exit_code) == ("base-differs", 7)
    assert [str(each) for each in stopped.value.problems] == [
        "b: pinned 1, found 2",
        "c: pinned 1, found none",
        "d: not pinned, found 1",
    ]
    assert "b: pinned 1, found 2" in stopped.value.message
    assert "--base-image" in stopped.value.hint


def test_the_same_packages_are_the_same_base_in_any_order():
    bases.require_same(made_of(a="1", b="2"), made_of(b="2", a="1"))


def test_another_file_of_the_same_version_is_another_base():
    other = replace(made_of(), packages=(DebianPackage(name="a", version="1", sha256="f" * 64),))
    with pytest.raises(BuildError, match=r"a: pinned 1 with sha256 .*, found it with sha256 ffff"):
        bases.require_same(made_of(a="1"), other)


@pytest.mark.parametrize(("others", "words"), [(("wheels", "conda"), "wheels, conda"), ((), "--base IMAGE")])
def test_an_unreachable_base_names_source_provider_and_the_others(others, words):
    error = bases.unreachable(environment(others=others), "The registry does not give debian:12: no such host.")
    assert (error.code, error.exit_code) == ("base-unreachable", 7)
    for word in ("debian:12", "`apt`", "no such host"):
        assert word in error.message
    assert words in error.hint


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("debian:12", "debian"),
        ("registry.example:5000/a/b:1", "registry.example:5000/a/b"),
        ("registry.example:5000/a", "registry.example:5000/a"),
    ],
)
def test_the_repository_of_an_image(image, repository):
    assert bases.repository_of(image) == repository


class Registry:
    """An engine of which only the registry is used. Without a digest the registry cannot be reached."""

    def __init__(self, digest: str = "") -> None:
        self.digest = digest

    def registry_digest(self, image: str) -> str:
        if not self.digest:
            raise EngineError(f"{image}: no answer")
        return self.digest


KNOWN = bases.KnownBase(digest="sha256:" + "a" * 64, archive=("deb http://old.example/toy stone main",))


OTHER = "sha256:" + "b" * 64


def pinned(decided: Environment, engine: object, tmp_path: Path, known: bases.KnownBase = KNOWN) -> BaseLock | Missing:
    place = Workspace(root=tmp_path, output=tmp_path, home=tmp_path)
    return bases.pin(decided, cast(Engine | None, engine), place, ignore_progress, known)


@pytest.mark.parametrize("engine", [None, Registry(), Registry(OTHER)])
def test_a_base_that_can_only_be_pulled_is_pinned_by_the_known_digest_on_every_machine(engine: object, tmp_path: Path) -> None:
    decided = environment()
    decided = replace(decided, system=replace(decided.system, bootstrap_suite=""))
    expected = BaseLock(image="debian:12", digest=KNOWN.digest, bootstrap=None, archive=KNOWN.archive)
    assert pinned(decided, engine, tmp_path) == expected


def test_a_base_that_can_be_bootstrapped_is_pinned_by_its_packages_and_else_by_the_known_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "plan", lambda workspace, suite, components: made_of(a="1"))
    made = BaseLock(image="debian:12", digest=None, bootstrap=made_of(a="1"))
    assert pinned(environment(), Registry(OTHER), tmp_path) == made
    assert pinned(environment(), None, tmp_path) == made

    def unreachable(workspace: Workspace, suite: str, components: tuple[str, ...]) -> Bootstrap:
        raise BuildError("no mirror", code="base-unreachable")

    monkeypatch.setattr(bootstrap, "plan", unreachable)
    expected = BaseLock(image="debian:12", digest=KNOWN.digest, bootstrap=None, archive=KNOWN.archive)
    assert pinned(environment(), Registry(OTHER), tmp_path) == expected


def test_without_a_known_digest_the_registrys_is_taken_and_else_missed(tmp_path: Path) -> None:
    decided = environment()
    decided = replace(decided, system=replace(decided.system, bootstrap_suite=""))
    nothing = bases.KnownBase()
    assert pinned(decided, Registry(OTHER), tmp_path, nothing) == BaseLock(image="debian:12", digest=OTHER, bootstrap=None)
    assert isinstance(pinned(decided, Registry(), tmp_path, nothing), Missing)
