"""If a base cannot be reached, the error names what this machine can build: Debian instead of Ubuntu, CPU instead of CUDA."""

from __future__ import annotations

import pytest
from real_matrix import FACTS

from envbuild.errors import BuildError
from envbuild.pipeline import base_alternatives
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve


@pytest.mark.parametrize(
    ("request_text", "named"),
    [
        ("tf-1.12-cuda9", ["tf-1.12.0-cpu-py27-debian11"]),
        ("mxnet-1.9", ["mxnet-1.9.1-cuda11.2-py39-debian11", "mxnet-1.9.1-cpu-py39-debian11"]),
        ("tf-2.16-cuda12", ["tf-2.16.2-cuda12.3-py311-debian13", "tf-2.16.2-cpu-py311-debian12"]),
        ("cupy-13", ["cupy-13.6.0-cuda13.0-py311-debian12"]),
    ],
)
def test_the_ways_on_take_a_debian_mirror_and_the_package_index_alone(request_text: str, named: list[str]) -> None:
    environment = resolve(FACTS, parse([request_text], matrix=FACTS)).environment
    found = base_alternatives.alternatives(FACTS, environment)
    assert [each.name.split("-py")[0] for each in found] == [name.split("-py")[0] for name in named]
    for each in found:
        other = resolve(FACTS, parse([each.name], matrix=FACTS)).environment
        assert other.name == each.name and other.system.bootstrap_suite and not other.base.packages
        assert other.python.provided_by == "distribution"
        assert ("CPU instead of" in each.changes) == (other.cuda is None)


def test_the_error_of_an_unreachable_base_names_them_and_others_stay_as_they_are() -> None:
    environment = resolve(FACTS, parse(["mxnet-1.9"], matrix=FACTS)).environment
    with pytest.raises(BuildError) as caught, base_alternatives.with_alternatives(lambda: FACTS, environment):
        raise BuildError("Out of reach.", code="base-unreachable", hint="The lock stays valid.")
    assert [each.name for each in caught.value.alternatives]
    assert caught.value.hint == f"This machine can build {caught.value.alternatives[0].name}. The lock stays valid."
    with pytest.raises(BuildError) as other, base_alternatives.with_alternatives(lambda: FACTS, environment):
        raise BuildError("It failed.", code="build-failed", hint="See above.")
    assert other.value.alternatives == ()
