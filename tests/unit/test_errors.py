"""There is one error class per exit code, and scripts can read the error object."""

import inspect
import json

from envbuild import errors


def _classes():
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.EnvbuildError)]
    return [c for c in found if c is not errors.EnvbuildError]


def test_exit_codes_are_those_of_the_design():
    assert {c.__name__: c.exit_code for c in _classes()} == {
        "UsageError": 2,
        "ConflictError": 3,
        "UnknownNameError": 4,
        "InvalidInputError": 5,
        "EngineError": 6,
        "BuildError": 7,
        "VerifyError": 8,
        "SmokeFailedError": 9,
        "SmokeInconclusiveError": 10,
        "PublishError": 11,
        "PolicyError": 12,
        "TimedOutError": 124,
        "InterruptedByUserError": 130,
    }


def test_default_codes_are_distinct():
    codes = [c.default_code for c in _classes()]
    assert len(set(codes)) == len(codes)


def test_the_json_form_carries_every_cause():
    error = errors.ConflictError(
        "no",
        hint="try",
        conflicts=[errors.Conflict(row="r", reason="because", source="s")],
        alternatives=[errors.Alternative(name="n", changes="c")],
        problems=[errors.Problem(where="f", line=3, message="m")],
    )
    data = json.loads(json.dumps(error.to_json()))
    assert data["code"] == "conflict"
    assert data["conflicts"] == [{"row": "r", "reason": "because", "source": "s", "overlaid": ""}]
    assert data["alternatives"] == [{"name": "n", "changes": "c"}]
    assert str(error.problems[0]) == "f:3: m"


def test_an_engine_with_a_full_disk_is_told_from_one_that_ended():
    full = errors.EngineError.gone('500 Server Error ("write /data/layer.tar: No space left on device")')
    assert full.code == "no-space"
    assert "free some space" in full.hint.lower()
    assert errors.EngineError.gone("connection refused").code == "engine-gone"
