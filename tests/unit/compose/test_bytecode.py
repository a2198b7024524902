"""The module to which a bytecode file belongs."""

from __future__ import annotations

import pytest

from envbuild.compose.bytecode import source_of


@pytest.mark.parametrize(
    ("bytecode", "source"),
    [
        ("/e/a/__pycache__/b.cpython-311.pyc", "/e/a/b.py"),
        ("/e/a/__pycache__/b.c.cpython-39.pyc", "/e/a/b.c.py"),
        ("/e/a/__pycache__/__init__.cpython-36.pyc", "/e/a/__init__.py"),
        ("/e/a/b.pyc", "/e/a/b.py"),
        ("/e/a/b.c.pyc", "/e/a/b.c.py"),
    ],
)
def test_the_module_of_a_file_of_bytecode(bytecode: str, source: str) -> None:
    assert source_of(bytecode) == source
