"""The module to which a bytecode file belongs, and the wheels that are compiled together."""

from __future__ import annotations

import pytest

from envbuild.compose.bytecode import batches, source_of


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


def test_wheels_that_hold_the_same_path_are_compiled_apart() -> None:
    assert batches([["/e/a.py", "/e/tests.py"], ["/e/b.py"], ["/e/tests.py"], []]) == [[0, 1, 3], [2]]
