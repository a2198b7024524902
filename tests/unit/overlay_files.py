"""Overlays of the toy matrix."""

from __future__ import annotations

from pathlib import Path

TOY_ENTRY = Path(__file__).parents[1] / "golden" / "toy" / "matrix.yaml"
HEAD = 'defaults: {source: "https://example.org/mine", checked: "2026-11-21"}\n'


def overlay(folder: Path, text: str, name: str = "site.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path
