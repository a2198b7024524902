"""The Pythons of this machine: those on PATH, and those that pyenv has built."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def of_pyenv(version: str) -> list[Path]:
    """The interpreters of this version, such as ``"3.6"``, the newest patch last. Their folders can be copied into an image."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = root.glob(f"versions/{version}.*/bin/python{version}")
    return sorted(found, key=lambda path: [int(word) for word in path.parents[1].name.split(".") if word.isdigit()])


def interpreter(version: str) -> str:
    """A Python of this version that starts; the test is skipped if there is none.

    pyenv's programs on PATH start only if their version is selected.
    """
    found = shutil.which(f"python{version}")
    for candidate in ([found] if found else []) + [str(path) for path in of_pyenv(version)]:
        if subprocess.run([candidate, "-c", "import zlib, ssl"], capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip(f"this machine has no working Python {version}")
