"""Overlays of the toy matrix."""

from __future__ import annotations

from pathlib import Path

TOY_ENTRY = Path(__file__).parents[1] / "golden" / "toy" / "matrix.yaml"
# CUDA 11.4 from Debian's packages, for the toy matrix.
PACKAGE_SETS = """\
package_sets:
  - name: marble12
    system: marble12
    cuda: "11.4"
    components: [quarry]
    packages: [libcudart11, libcublas11]
    build_packages: [cuda-toolkit]
"""
HEAD = 'defaults: {source: "https://example.org/mine", checked: "2026-11-21"}\n'


def overlay(folder: Path, text: str, name: str = "site.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path
