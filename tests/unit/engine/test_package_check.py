"""Compare the Debian packages of an image with those that its lock pins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from verify_locks import lock as make_lock

from envbuild.engine import package_check
from envbuild.engine.client import Engine
from envbuild.errors import BuildError

PINNED = package_check.pinned(make_lock())


class Image:
    """An engine with one image; the test sets the answer of its dpkg."""

    def __init__(self, said: dict[str, str], code: int = 0) -> None:
        self.said = said
        self.code = code

    def run(self, image: str, argv: list[str], **_: object) -> SimpleNamespace:
        lines = [f"installed ii  {name} {version}" for name, version in self.said.items()]
        return SimpleNamespace(code=self.code, output="\n".join([*lines, "installed rc  gone 9", "some warning", ""]))


def ask(said: dict[str, str], code: int = 0) -> None:
    package_check.require_pinned(cast(Engine, Image(said, code)), make_lock(), "sha256:0")


def test_the_toy_lock_pins_packages():
    assert PINNED


def test_pinned_packages_and_others_beside_them_pass():
    ask({**PINNED, "another": "1"})


def test_every_package_in_another_version_is_named_with_both():
    name, version = next(iter(PINNED.items()))
    with pytest.raises(BuildError) as stopped:
        ask({**PINNED, name: "0.other"})
    assert (stopped.value.code, stopped.value.exit_code) == ("packages-differ", 7)
    assert [str(each) for each in stopped.value.problems] == [f"{name}: pinned {version}, found 0.other"]
    assert f"{name}: pinned {version}, found 0.other" in stopped.value.message


def test_an_absent_package_and_an_image_without_dpkg_stop_the_build():
    name = next(iter(PINNED))
    with pytest.raises(BuildError, match="found none"):
        ask({each: version for each, version in PINNED.items() if each != name})
    with pytest.raises(BuildError, match="found none"):
        ask({}, code=127)
