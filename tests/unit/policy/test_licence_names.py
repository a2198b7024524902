"""Licences that packages state are compared as SPDX expressions, or as a whole."""

from __future__ import annotations

import pytest

from envbuild.policy import licence_names
from envbuild.policy.model import Allowed

RULE = Allowed(line=1, allowed=("MIT*", "BSD*", "Apache-2.0*"), denied=("MIT-bad",))


@pytest.mark.parametrize(
    ("stated", "is_allowed"),
    [
        ("MIT", True),
        ("mit license", True),
        ("GPL-3.0", False),
        ("MIT-bad", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0 AND MIT", False),
        ("MIT AND BSD-3-Clause OR GPL-3.0", True),
        ("GPL-3.0 OR MIT AND LGPL", False),
        ("(GPL-3.0 OR MIT) AND BSD", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0 WITH Classpath", False),
        ("GPL-3.0 or MIT", True),  # as Debian writes it
        ("MIT and GPL-3.0", False),
        ("MIT OR", True),  # no expression: compared as a whole, and it begins with MIT
        ("(MIT", False),
        ("AND", False),
        (")" * 50, False),
        ("(" * 5000 + " AND ", False),
    ],
)
def test_one_licence(stated: str, is_allowed: bool) -> None:
    assert (licence_names.problem((stated,), RULE) == "") == is_allowed


def test_each_stated_licence_must_be_allowed() -> None:
    assert "GPL" in licence_names.problem(("MIT", "GPL"), RULE)
    assert licence_names.problem(("anything",), Allowed(line=1, allowed=(), denied=("GPL",))) == ""
