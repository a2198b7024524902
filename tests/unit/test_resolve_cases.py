"""Resolver behaviour, one YAML file per case in tests/cases: a request on the toy matrix, and the decision or the refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild import matrix, resolve
from envbuild.codec import encode
from envbuild.errors import EnvbuildError

TESTS = Path(__file__).parent.parent
CASES = sorted((TESTS / "cases").glob("*.yaml"))
TOY = matrix.load_files(TESTS / "golden" / "toy" / "matrix.yaml")


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    assert set(case) - {"request", "options"} in ({"expect"}, {"refuse"})
    options = case.get("options", {})
    if "expect" in case:
        request = resolve.parse(case["request"], matrix=TOY, **options)
        _check_decision(resolve.resolve(TOY, request), case["expect"])
        explanation = resolve.explain(TOY, request)
        assert explanation.resolution == resolve.resolve(TOY, request)
        for choice, next_best, because in case["expect"].get("choices", ()):
            found = {rival.choice: rival for rival in explanation.choices}[choice]
            assert found.next_best == next_best and because in found.because and found.source
        return
    with pytest.raises(EnvbuildError) as caught:
        resolve.resolve(TOY, resolve.parse(case["request"], matrix=TOY, **options))
    _check_refusal(caught.value, case["refuse"], options)


def _check_decision(resolution: Any, expected: dict[str, Any]) -> None:
    environment = resolution.environment
    framework = environment.frameworks[0]
    found = {
        "name": environment.name,
        "requirements": list(framework.requirements),
        "constraints": list(framework.constraints),
        "index": framework.index,
        "options": framework.options,
        "packages": [f"{package.name}={package.version}" for package in environment.base.packages],
        **{key: getattr(environment, key) for key in ("cudnn", "nccl", "driver_min", "require_cuda", "exclude_newer")},
    }
    for key, value in expected.items():
        if key == "warnings":
            assert len(resolution.warnings) == len(value), resolution.warnings
            for words in value:
                assert any(words in warning for warning in resolution.warnings), (words, resolution.warnings)
        elif key == "choices":
            continue
        elif key in ("base", "python"):
            whole = encode(getattr(environment, key))
            assert {name: whole[name] for name in value} == value
        else:
            assert found[key] == value, key
    assert resolve.refusals(TOY, environment) == []


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
    if "hint" in expected:
        assert expected["hint"] in error.hint
    if "alternatives" in expected:
        assert [alternative.name for alternative in error.alternatives] == expected["alternatives"]
    for words in expected.get("changes", []):
        assert any(words in alternative.changes for alternative in error.alternatives), error.alternatives
    for conflict in error.conflicts:
        assert conflict.source.startswith(("https://", "pkg:")), conflict
