"""Independent judges: programs of other projects that read what envbuild writes.

A test names its judges with the mark ``judges``. If one of them is not installed, the test is skipped. With
ENVBUILD_REQUIRE_JUDGES=1, as in `make prove`, it fails instead: a test that was skipped proves nothing.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

# Where a program comes from, if Debian's package does not have its name.
SOURCES = {
    "apptainer": "apptainer of Debian sid",
    "cosign": "cosign 3 of Debian sid",
    "docker": "docker.io",
    "node": "nodejs",
}
OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}


def path_of(program: str) -> str | None:
    """The path of a program, or None."""
    return next(filter(None, map(shutil.which, (program, *OTHER_NAMES.get(program, ())))), None)


def require(*programs: str) -> None:
    """Skip the test if a program is not installed, or fail it if ENVBUILD_REQUIRE_JUDGES is set."""
    missing = [program for program in programs if path_of(program) is None]
    if not missing:
        return
    lacks(f"not installed: {', '.join(SOURCES.get(program, program) for program in missing)}")


def lacks(reason: str) -> NoReturn:
    """Skip the test because this machine lacks a judge, or fail it if ENVBUILD_REQUIRE_JUDGES is set."""
    if os.environ.get("ENVBUILD_REQUIRE_JUDGES") == "1":
        pytest.fail(f"{reason} (ENVBUILD_REQUIRE_JUDGES=1)", pytrace=False)
    pytest.skip(reason)
