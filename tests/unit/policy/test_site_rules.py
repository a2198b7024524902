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


def test_the_driver_of_the_site_is_not_called_a_part_of_the_request(matrix: Matrix) -> None:
    """`driver: "470"` in the policy, and no `--driver`: every text names the site rule."""
    limited = under(matrix, 'driver: "470"')
    at = "the site has driver 470: excluded by the site rule in /etc/policy.yaml:3: our own reason"
    with pytest.raises(ConflictError) as caught:
        resolve(limited, parse(["xformers-0.0.31"], matrix=limited))
    assert any(each.reason.endswith(at) for each in caught.value.conflicts)
    assert caught.value.hint == "The site rules of the policy leave no environment for this framework."
    found = resolve(limited, parse(["pytorch-2.11"], matrix=limited))
    reasons = {each.choice: each.because for each in found.reasons}
    assert reasons["package torch==2.11.0+cpu"].startswith("the CPU build: no GPU build works with driver 470 of the site: ")
    assert any("pytorch 2.11.0 cu130 cannot be used: CUDA 13.0 needs" in each and each.endswith(at) for each in found.warnings)
    with pytest.raises(ConflictError) as both:
        resolve(limited, parse(["jax-0.4.1-cuda11"], matrix=limited, gpu="RTX 5090"))
    said = [each.reason for each in (*caught.value.conflicts, *both.value.conflicts)]
    assert not any("the request names" in each for each in (*said, *found.warnings, *reasons.values()))


def test_the_driver_of_the_request_is_named_beside_that_of_the_site(matrix: Matrix) -> None:
    limited = under(matrix, 'driver: "470"')
    with pytest.raises(ConflictError) as caught:
        resolve(limited, parse(["pytorch-2.11"], matrix=limited, driver="460"))
    said = [each.reason for each in caught.value.conflicts]
    assert any(each.endswith("; the request names 460") for each in said)
    assert any("; the site has driver 470: excluded by" in each for each in said)


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
