"""The matrix of this repository, read once for all test modules of a process: reading it takes seconds."""

from __future__ import annotations

from pathlib import Path

from envbuild.matrix.reading.loader import load_files

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "matrix.yaml"
FACTS = load_files(ENTRY)
