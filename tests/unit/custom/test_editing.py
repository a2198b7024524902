"""Entries are added to the lists of an ``envbuild.yaml``; everything else stays, comments included."""

from __future__ import annotations

import pytest
import yaml

from envbuild.custom.editing import edit_list
from envbuild.errors import InvalidInputError


def edit(text: str, *new: str, key: str = "pip", **replaced: str) -> str:
    return edit_list(text, key, new=new, replaced=replaced)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pip: [a]  # mine\nports: [1]\n", "pip: [a, b]  # mine\nports: [1]\n"),
        ("pip: []\n", "pip: [b]\n"),
        ("pip: [\n  a,\n]\n", "pip: [\n  a, b]\n"),
        ("pip:\n  - a  # first\nports: [1]\n", "pip:\n  - a  # first\n  - b\nports: [1]\n"),
        ("pip:\n- a", "pip:\n- a\n- b\n"),
        ("schema: 1\n", "schema: 1\npip: [b]\n"),
        ("schema: 1", "schema: 1\npip: [b]\n"),
        ('# pip: ["x", "y>=1"]\nports: [1]\n', "pip: [b]\nports: [1]\n"),
        ("", "pip: [b]\n"),
    ],
)
def test_an_entry_is_added_in_the_style_of_the_file(before: str, after: str) -> None:
    assert edit(before, "b") == after
    assert yaml.safe_load(edit(before, "b"))["pip"][-1] == "b"


@pytest.mark.parametrize("entry", ["b>=1", "1.0", "no", "b[extra]", "a: b", "#b", "b # c", "null", "ü"])
def test_what_yaml_would_read_otherwise_is_quoted(entry: str) -> None:
    for text in ("pip: [a]\n", "pip:\n  - a\n", ""):
        assert yaml.safe_load(edit(text, entry))["pip"][-1] == entry


@pytest.mark.parametrize("text", ["pip: [a, 'c.D >= 1', e]  # x\n", "pip:\n  - a\n  - c.D >= 1  # x\n  - e\n"])
def test_a_new_condition_takes_the_place_of_the_old_one(text: str) -> None:
    changed = edit(text, "f", **{"c-d": "c-d<3"})
    assert yaml.safe_load(changed)["pip"] == ["a", "c-d<3", "e", "f"]
    assert "# x" in changed


def test_nothing_to_add_changes_nothing() -> None:
    assert edit("pip: [a]") == "pip: [a]"


def test_a_key_that_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="`pip` is not a list"):
        edit("pip: a\n", "b")
