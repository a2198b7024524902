"""Site rules reach the resolver: a request is refused or answered differently, and the rule is the stated reason."""

from __future__ import annotations

import pytest
from real_matrix import FACTS

from envbuild.errors import ConflictError, InvalidInputError
from envbuild.matrix.types import Matrix
from envbuild.policy import reading, site_rules
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return FACTS


def under(matrix: Matrix, rule: str) -> Matrix:
    policy = reading.read(f"schema: 1\nsite:\n  - {{{rule}, reason: our own reason}}\n", "/etc/policy.yaml")
    return site_rules.apply(matrix, policy.site)


RULES = {
    "systems: [debian12]": ("pytorch-2.14-cpu --os debian12", "pytorch-2.14-cpu"),
    'pythons: ["<3.12"]': ("pytorch-2.14-cpu-py311", "pytorch-2.14-cpu"),
    'cuda: ["13"]': ("pytorch-2.14-cuda13", "pytorch-2.14"),
    'frameworks: ["torch>=2.14"]': ("pytorch-2.14-cpu", "pytorch-cpu"),
    'driver: "525.60.13"': ("pytorch-2.14-cuda13", "pytorch-cuda12"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_refuses_what_it_excludes_and_leaves_the_rest(matrix: Matrix, rule: str) -> None:
    refused, answered = RULES[rule]
    limited = under(matrix, rule)
    words = refused.split(" --os ")
    options = {"system": words[1]} if len(words) > 1 else {}
    before = resolve(matrix, parse([words[0]], matrix=matrix, **options)).environment
    with pytest.raises(ConflictError) as caught:
        resolve(limited, parse([words[0]], matrix=limited, **options))
    assert any(
        "excluded by the site rule in /etc/policy.yaml:3: our own reason" in each.reason for each in caught.value.conflicts
    )
    assert not recheck(matrix, before)
    assert any("our own reason" in each.reason for each in recheck(limited, before))
    after = resolve(limited, parse([answered], matrix=limited)).environment
    assert not recheck(limited, after)
    for each in caught.value.alternatives:
        assert not recheck(limited, resolve(limited, parse([each.name], matrix=limited)).environment)


def test_an_add_on_upon_an_excluded_release_is_excluded(matrix: Matrix) -> None:
    limited = under(matrix, 'frameworks: ["pytorch==2.11"]')
    with pytest.raises(ConflictError) as caught:
        resolve(limited, parse(["torchvision+torch-2.11"], matrix=limited))
    assert any("our own reason" in each.reason for each in caught.value.conflicts)


def test_the_matrix_itself_stays_and_rules_have_an_identity_of_their_own(matrix: Matrix) -> None:
    one, other = under(matrix, "systems: [debian12]"), under(matrix, "systems: [debian11]")
    assert len({matrix.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert site_rules.apply(matrix, ()) is matrix
    assert next(row for row in matrix.systems if row.name == "debian12").origin.status != "known-bad"


@pytest.mark.parametrize(
    ("rule", "near"),
    [("systems: [debain12]", "did you mean debian12?"), ('frameworks: ["tensorflw<2"]', "did you mean tensorflow?")],
)
def test_a_rule_about_nothing_is_refused_with_its_line(matrix: Matrix, rule: str, near: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        under(matrix, rule)
    assert near in caught.value.message and "/etc/policy.yaml:3" in caught.value.message
