"""The order of versions, and conditions on them."""

from __future__ import annotations

import pytest

from envbuild.matrix.versions import has_prefix, newest_first, numbers, serves, within


def test_version_order() -> None:
    assert numbers("9.0") == numbers("9") < numbers("9.2") < numbers("10") < numbers("12.10")
    assert sorted(["11.0", "11.2", "12.0", "9.2"], key=newest_first) == ["12.0", "11.2", "11.0", "9.2"]
    assert has_prefix("9.0", "9") and not has_prefix("90.1", "9") and has_prefix("9.0", "")
    assert serves("11.8", "11") and serves("9.0", "9.0") and not serves("9.2", "9.0")


@pytest.mark.parametrize(
    ("version", "specifier", "expected"),
    [
        ("3.7", ">=3.7", True), ("3.10", ">=3.7", True), ("3.6", ">=3.7,<3.10", False), ("3.10", "<3.10", False),
        ("9.2", "==9", True), ("9.2", "==9.*", True), ("9.0", "=9.2", False), ("9.2", "!=9", False), ("10.1", "!=9", True),
        ("9.2", "~=9.0", True), ("10.0", "~=9.0", False), ("9.0", ">9", False), ("9.0", "<=9", True), ("1.0", "", True),
    ],
)  # fmt: skip
def test_specifiers(version: str, specifier: str, expected: bool) -> None:
    assert within(version, specifier) is expected
