"""Behaviour of the resolver: one YAML file per case in tests/cases, with a request on the toy matrix and its answer or refusal.

`matrix: several` uses the toy matrix with more frameworks, some of which are add-ons.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.codec import encode
from envbuild.errors import EnvbuildError
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.resolve.explanation import explain
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TESTS = Path(__file__).parents[2]
CASES = sorted((TESTS / "cases").glob("*.yaml"))
TOYS = {name: load_files(TESTS / "golden" / "toy" / f"{name}.yaml") for name in ("matrix", "several")}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    assert set(case) - {"request", "options", "matrix"} in ({"expect"}, {"refuse"})
    options, toy = case.get("options", {}), TOYS[case.get("matrix", "matrix")]
    if "expect" in case:
        request = parse(case["request"], matrix=toy, **options)
        _check_decision(toy, resolve(toy, request), case["expect"])
        explanation = explain(toy, request)
        assert explanation.resolution == resolve(toy, request)
        passed_over = [f"{each.row}: {each.reason}" for each in explanation.passed_over]
        for words in case["expect"].get("passed_over", ()):
            assert any(words in each for each in passed_over), (words, passed_over)
        for choice, next_best, because in case["expect"].get("choices", ()):
            found = {rival.choice: rival for rival in explanation.choices}[choice]
            assert found.next_best == next_best and because in found.because and found.source
        return
    with pytest.raises(EnvbuildError) as caught:
        resolve(toy, parse(case["request"], matrix=toy, **options))
    _check_refusal(caught.value, case["refuse"], options)


def _check_decision(toy: Matrix, resolution: Any, expected: dict[str, Any]) -> None:
    environment = resolution.environment
    framework = environment.frameworks[0]
    found = {
        "name": environment.name,
        "requirements": list(framework.requirements),
        "constraints": list(framework.constraints),
        "index": framework.index,
        "options": framework.options,
        "cudas": {each.name: environment.cuda_of(each) for each in environment.frameworks},
        "compute_capability": encode(environment.compute_capability),
        "packages": [f"{package.name}={package.version}" for package in environment.base.packages],
        **{key: getattr(environment, key) for key in ("cuda", "cudnn", "nccl", "driver_min", "require_cuda", "exclude_newer")},
    }
    for key, value in expected.items():
        if key == "warnings":
            assert len(resolution.warnings) == len(value), resolution.warnings
            for words in value:
                assert any(words in warning for warning in resolution.warnings), (words, resolution.warnings)
        elif key in ("choices", "passed_over"):
            continue
        elif key in ("base", "python"):
            whole = encode(getattr(environment, key))
            assert {name: whole[name] for name in value} == value
        else:
            assert found[key] == value, key
    assert recheck(toy, environment) == []


def _check_refusal(error: EnvbuildError, expected: dict[str, Any], options: dict[str, Any]) -> None:
    assert error.exit_code == expected["exit"], error.message
    assert error.code == expected["code"]
    assert error.message and error.hint
    rows = [conflict.row for conflict in error.conflicts]
    assert (error.exit_code == 3) == bool(rows)
    if "rows" in expected:
        assert rows == expected["rows"]
    if "reason" in expected:
        assert any(re.search(expected["reason"], conflict.reason) for conflict in error.conflicts), error.conflicts
    if "source" in expected:
        assert expected["source"] in {conflict.source for conflict in error.conflicts}
    assert expected.get("message", "") in error.message
    if "hint" in expected:
        assert expected["hint"] in error.hint
    if "alternatives" in expected:
        assert [alternative.name for alternative in error.alternatives] == expected["alternatives"]
    for words in expected.get("changes", []):
        assert any(words in alternative.changes for alternative in error.alternatives), error.alternatives
    for conflict in error.conflicts:
        own = "because of its row (" in conflict.reason  # a condition of the row itself, without a document
        assert conflict.source.startswith(("https://", "pkg:")) or (own and not conflict.source), conflict
