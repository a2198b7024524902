"""JSON of the model: values survive writing and reading, and other forms are refused."""

import json
from dataclasses import dataclass

import pytest

from envbuild import codec
from envbuild.errors import InvalidInputError
from envbuild.model.lock import Artifact, BaseLock, Bootstrap, DebianPackage

ARTIFACT = Artifact(
    name="numpy", version="1.16.6", filename="numpy.whl", sha256="a" * 64, index="default", project="numpy", size=None
)
BASE = BaseLock(
    image="debian:12",
    digest=None,
    bootstrap=Bootstrap(
        suite="bookworm",
        architecture="amd64",
        variant="minbase",
        packages=(DebianPackage(name="apt", version="2.6.1", sha256="b" * 64),),
    ),
)


@pytest.mark.parametrize("value", [ARTIFACT, BASE], ids=["artifact", "base"])
def test_round_trip_keeps_values_and_bytes(value):
    text = codec.dumps(value)
    again = codec.decode(type(value), json.loads(text), "file")
    assert again == value
    assert codec.dumps(again) == text


def test_every_problem_is_reported_with_its_path():
    data = codec.encode(BASE)
    data["digets"] = "x"
    data["bootstrap"]["packages"][0]["version"] = 2.6
    del data["bootstrap"]["suite"]
    with pytest.raises(InvalidInputError) as caught:
        codec.decode(BaseLock, data, "base")
    assert {p.where for p in caught.value.problems} == {
        "base.digets",
        "base.bootstrap.packages[0].version",
        "base.bootstrap.suite",
    }


@pytest.mark.parametrize("wrong", [None, [], "text", 3, {"name": 1}], ids=str)
def test_other_shapes_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        codec.decode(Artifact, wrong, "artifact")


def test_a_boolean_is_not_an_integer():
    with pytest.raises(InvalidInputError, match="expected form"):
        codec.decode(Artifact, {**codec.encode(ARTIFACT), "size": True}, "artifact")


def test_a_field_with_a_default_may_be_absent():
    @dataclass(frozen=True, kw_only=True)
    class WithDefault:
        name: str
        count: int = 3

    assert codec.decode(WithDefault, {"name": "x"}, "w") == WithDefault(name="x")
