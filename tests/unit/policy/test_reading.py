"""Policies are read strictly: each fault is told with its line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from envbuild.errors import InvalidInputError
from envbuild.policy import reading

SCHEMA = json.loads((Path(reading.__file__).parents[1] / "schemas" / "policy.json").read_text())
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "policy.md"
EXCEPTION = "{subject: CVE-1, reason: not reachable here, owner: me, expires: 2027-01-01}"


class Texts(yaml.SafeLoader):
    """Loads dates as text, as the strict reader does."""


Texts.yaml_implicit_resolvers = {
    key: [each for each in found if each[0] != "tag:yaml.org,2002:timestamp"]
    for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def shown() -> str:
    return GUIDE.read_text().split("```yaml file=policy.yaml\n", 1)[1].split("```", 1)[0]


def test_the_policy_of_the_guide_is_read_and_fits_the_schema() -> None:
    policy = reading.read(shown(), "policy.yaml")
    assert policy.vulnerabilities is not None and policy.vulnerabilities.deadlines["low"] is None
    assert [rule.driver for rule in policy.site] == ["", "535"]
    assert policy.sizes is not None and policy.sizes.image == 12 * 10**9
    assert policy.exceptions[0].line == 5 and policy.exceptions[0].owner == "security@example.org"
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.load(shown(), Loader=Texts))


FAULTS = {
    "schema: 2\n": (1, "schema must be 1"),
    "schema: 1\nsizs: {image: 1GB}\n": (2, "unknown key, did you mean sizes?"),
    "schema: 1\nsizes: {image: lots}\n": (2, "not a size"),
    "schema: 1\nsizes: {image: 5}\n": (2, "quote it"),
    "schema: 1\nsizes: {image: 0GB}\n": (2, "not a size"),
    "schema: 1\nsizes: {}\n": (2, "give the largest size of an image"),
    "schema: 1\nvulnerabilities: {deadlines: {}}\n": (2, "at least one of"),
    "schema: 1\nvulnerabilities: {deadlines: {high: soon}}\n": (2, "an integer expected"),
    "schema: 1\nvulnerabilities: {deadlines: {high: -1}}\n": (2, "an integer expected"),
    "schema: 1\nvulnerabilities: {deadlines: {hihg: 1}}\n": (2, "unknown key, did you mean high?"),
    "schema: 1\nvulnerabilities: []\n": (2, "a mapping is expected"),
    "schema: 1\nlicences: {}\n": (2, "allowed is missing"),
    "schema: 1\nregistries: {allowed: []}\n": (2, "it needs at least one entry"),
    "schema: 1\nsigners: []\n": (2, "it needs at least one entry"),
    "schema: 1\nsigners: [{key: a.pub}]\n": (2, "expires is missing"),
    "schema: 1\nsigners: [{expires: 2027-01-01}]\n": (2, "key is missing"),
    "schema: 1\nsigners:\n  - {key: a.pub, expires: 2027-01}\n": (3, "not a full date"),
    "schema: 1\nsigners:\n  - {key: a.pub, expires: 2027-01-01, expire: x}\n": (3, "unknown key, did you mean expires?"),
    "schema: 1\nsigners:\n  - {key: a, expires: 2027-01-01}\n  - {key: a, expires: 2028-01-01}\n": (4, "a is listed twice"),
    "schema: 1\nevidence: {required: [{kind: smoked}]}\n": (2, "'smoked' is not one of"),
    "schema: 1\nevidence: {required: [{kind: verified, machine: A100}]}\n": (2, "only a proof of a smoke test"),
    "schema: 1\nend_of_life: {refuse: yes}\n": (2, "true or false expected"),
    "schema: 1\nsite:\n  - {reason: because of that}\n": (3, "a site rule names"),
    "schema: 1\nsite:\n  - {systems: [debian12], reason: ok}\n": (3, "too short for a reason"),
    "schema: 1\nsite:\n  - {systems: [debian12]}\n": (3, "reason is missing"),
    'schema: 1\nsite:\n  - {pythons: ["three"], reason: because of that}\n': (3, "neither a version nor a condition"),
    'schema: 1\nsite:\n  - {frameworks: ["tf<x"], reason: because of that}\n': (3, "not a framework with a condition"),
    'schema: 1\nsite:\n  - {frameworks: ["<2"], reason: because of that}\n': (3, "names no framework"),
    f"schema: 1\nexceptions:\n  - {EXCEPTION.replace('{', '{rule: site, ', 1)}\n": (3, "narrow the site rule"),
    "schema: 1\nunchecked_allowed: [everything]\n": (2, "'everything' is not one of"),
    "schema: 1\nexceptions:\n  - {subject: A, reason: because of that, expires: 2027-01-01}\n": (3, "owner is missing"),
    'schema: 1\nexceptions:\n  - {subject: A, reason: because of that, owner: "", expires: 2027-01-01}\n': (3, "found nothing"),
    "schema: 1\nexceptions:\n  - {subject: A, reason: because of that, owner: me}\n": (3, "expires is missing"),
    "schema: 1\nexceptions:\n  - {subject: A, reason: because of that, owner: me, expires: 2027-01}\n": (3, "not a full date"),
    "schema: 1\nexceptions:\n  - {subject: A, reason: because of that, owner: me, expires: 2027-02-30}\n": (3, "not a date"),
    f"schema: 1\nexceptions:\n  - {EXCEPTION}\n  - {EXCEPTION}\n": (2, "repeats the one on line 3"),
    "schema: 1\nexceptions:\n  - {subject: A, status: not_affected, reason: because of it, owner: me, expires: 2027-01-01}\n": (
        3,
        "needs a justification",
    ),
    "schema: 1\nbases: &b {allowed: [a]}\nregistries: *b\n": (2, "anchors and aliases are not supported"),
    "schema: 1\na: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n": (2, "anchors and aliases are not supported"),
    "[]\n": (1, "must be a mapping"),
    "": (1, "must be a mapping"),
    "schema: 1\nschema: 1\n": (2, "is repeated"),
    "schema: 1\n\tx: 1\n": (2, "not YAML"),
}


@pytest.mark.parametrize("text", FAULTS)
def test_each_fault_is_told_with_its_line(text: str) -> None:
    line, words = FAULTS[text]
    with pytest.raises(InvalidInputError) as caught:
        reading.read(text, "policy.yaml")
    assert caught.value.code == "bad-policy"
    assert any(words in each.message and each.line == line for each in caught.value.problems), caught.value.problems


def test_a_bomb_of_aliases_ends_at_once() -> None:
    lines = ["schema: 1", 'a0: &a0 ["x"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(InvalidInputError) as caught:
        reading.read("\n".join(lines), "policy.yaml")
    assert any("anchors and aliases" in each.message for each in caught.value.problems)


def test_an_expired_exception_is_refused_with_its_line_on_the_next_day_only() -> None:
    policy = reading.read(f"schema: 1\nexceptions:\n  - {EXCEPTION}\n", "policy.yaml")
    reading.require_current(policy, "2027-01-01")
    with pytest.raises(InvalidInputError) as caught:
        reading.require_current(policy, "2027-01-02")
    assert caught.value.code == "expired-exception"
    assert "policy.yaml:3: the exception for CVE-1 expired on 2027-01-01" in caught.value.message


@pytest.mark.parametrize("make", ["missing", "folder", "large", "binary"])
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, make: str) -> None:
    path = tmp_path / "policy.yaml"
    if make == "folder":
        path.mkdir()
    elif make == "large":
        path.write_bytes(b"#" * (reading.LARGEST + 1))
    elif make == "binary":
        path.write_bytes(b"\xff\xfe\x00schema")
    with pytest.raises(InvalidInputError) as caught:
        reading.load(path)
    assert caught.value.code == "bad-policy" and str(path) in caught.value.message
