"""If a build fails because a file is gone or was replaced, the error names the file, its project and the lock."""

import pytest

from envbuild.engine.build_failures import explain
from envbuild.errors import BuildError
from envbuild.lock import download_errors

ANY = "py2.py3-none-any.whl"
UV = ["Resolved 3 packages in 22ms", "error: Failed to download `beta==1.0`", "  cause: Hash mismatch for `beta==1.0`"]
PIP = [
    "Collecting alpha==1.0 (from -r r.txt (line 1))",
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
    "    beta==1.0 from https://files.example/beta-1.0.whl (from -r r.txt (line 2)):",
    "        Expected sha256 00",
]


@pytest.mark.parametrize("lines", [UV, PIP])
def test_a_file_that_was_replaced_is_named(made, lines):
    error = download_errors.of_lock(made, explain(instruction="RUN install", reason="exit code: 1", lines=lines))
    assert error.code == "artifact-changed"
    assert error.exit_code == 7
    assert f"The lock of {made.environment.name} can no longer be installed: beta-1.0-{ANY} (project beta on " in error.message
    assert "alpha" not in error.message.partition(":")[2]
    assert "a different file" in error.message and "--package beta" in error.hint
    assert error.details[-len(lines) :] == tuple(lines)


@pytest.mark.parametrize(
    "line",
    [
        "Because there is no version of omega==1.0 and you require omega==1.0, we can conclude that",
        "ERROR: No matching distribution found for omega==1.0",
    ],
)
def test_a_file_that_is_gone_is_named_with_its_index(made, line):
    error = download_errors.of_lock(made, explain(instruction="RUN install", reason="exit code: 1", lines=[line]))
    assert error.code == "artifact-gone"
    assert f"omega-1.0-{ANY} (project omega on https://wheels.example/cu90) is no longer offered by its index." in error.message


def test_what_the_index_says_before_the_build_is_named_too_and_the_rest_stays_as_it_is(made):
    gone = BuildError(f"The package index no longer offers beta-1.0-{ANY} with the locked hash.", code="artifact-gone")
    assert "The lock of" in download_errors.of_lock(made, gone).message
    for other in (BuildError("beta==1.0", code="build-step"), BuildError("pip is gone", code="artifact-gone")):
        assert download_errors.of_lock(made, other) is other
    offline = explain(
        instruction="RUN",
        reason="1",
        lines=["Failed to establish a new connection", "No matching distribution found for beta==1.0"],
    )
    assert offline.code == "index-unreachable"
