"""Modules that `resolve` must not import, because importing one of them takes longer than finding the answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOY = Path(__file__).parents[1] / "golden" / "toy"
SLOW = {"yaml", "jinja2", "rich", "docker", "requests", "packaging", "envbuild.model.lock", "envbuild.pipeline.proofs"}
PROGRAM = """
import sys
from envbuild.cli import frame
assert frame.run(["resolve", "wd-1.12-cuda9", "--root", sys.argv[1]]) == 0
print("modules", *sys.modules)
"""


def test_resolve_imports_only_what_it_uses_once_the_matrix_is_compiled(tmp_path: Path) -> None:
    env = {**os.environ, "ENVBUILD_HOME": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM, str(TOY)], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        for _ in range(2)
    )
    imported = [set(text.splitlines()[-1].split()) for text in (first, second)]
    assert "yaml" in imported[0]  # the first run compiles the matrix
    assert not imported[1] & SLOW
