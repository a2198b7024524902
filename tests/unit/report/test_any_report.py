"""No report makes an output format fail: damaged real reports, reports that the schema accepts, and any other JSON."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from importlib import resources
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_files import NAMES, load

from envbuild.report import comparison, html_page, junit_xml, markdown_page, plain_text, view

SCHEMA = json.loads(resources.files("envbuild.schemas").joinpath("smoke-report.json").read_text(encoding="utf-8"))
VALID = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)

numbers = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(), st.sampled_from([math.nan, math.inf, -math.inf, 0, -1, 10**400, 5e-324, 1e308])
)
scalars = st.one_of(
    st.none(), st.booleans(), numbers, st.text(max_size=8), st.sampled_from(["<b>", "\x00", "\ud800", "|", "pass"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=8
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*way, key)
        yield from places(inner, (*way, key))


def render_all(content: Any) -> None:
    for text in (
        plain_text.table(content),
        markdown_page.markdown(content),
        html_page.html(content),
        comparison.compare(content, content),
    ):
        assert text.encode()
    ElementTree.fromstring(junit_xml.junit(content).encode())
    sentence, hint = view.summary(content)
    assert sentence.encode() and isinstance(hint, str)


@pytest.mark.parametrize("name", NAMES)
def test_the_real_reports_follow_the_schema(name: str) -> None:
    assert list(VALID.iter_errors(load(name))) == []


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_report_renders(name: str, data: st.DataObject) -> None:
    content = copy.deepcopy(load(name))
    for _ in range(data.draw(st.integers(1, 4))):
        way = data.draw(st.sampled_from(list(places(content))))
        place = content
        for key in way[:-1]:
            place = place[key]
        if isinstance(place, dict) and data.draw(st.booleans()):
            del place[way[-1]]
        else:
            place[way[-1]] = data.draw(values)
    render_all(content)


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=60, deadline=None)
def test_any_report_that_the_schema_accepts_renders_with_its_own_verdict(name: str, data: st.DataObject) -> None:
    content = copy.deepcopy(load(name))
    for _ in range(data.draw(st.integers(1, 6))):
        way = data.draw(st.sampled_from(list(places(content))))
        place = content
        for key in way[:-1]:
            place = place[key]
        before = place[way[-1]]
        place[way[-1]] = data.draw(st.one_of(st.none(), numbers.filter(lambda n: n == n), st.text(max_size=20), st.just([])))
        if next(VALID.iter_errors(content), None) is not None:
            place[way[-1]] = before
    assert next(VALID.iter_errors(content), None) is None
    render_all(content)
    assert plain_text.table(content).startswith(content["status"].upper())


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), values, max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_object_renders(content: dict[str, Any]) -> None:
    render_all(content)
