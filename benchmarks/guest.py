"""Helpers of the benchmarks of the smoke test: load the guest as a package, and run it once with another Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GUEST = ROOT / "envbuild" / "smoke"


def adapter_of(name: str) -> str:
    """Return the path of the smoke.py of the recipe ``name``. If there is no such recipe, return ``name``, the name of an
    adapter in the guest.
    """
    path = ROOT / "images" / "recipes" / name / "smoke.py"
    return str(path) if path.exists() else name


def complete(folder: Path) -> Path:
    """Copy the guest into ``folder`` with the adapters of all recipes, as an image of an add-on has them; return its path.

    The adapter of an add-on such as Horovod imports the adapters of the frameworks that it extends.
    """
    copy = folder / "smoke"
    shutil.copytree(GUEST, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for adapter in (ROOT / "images" / "recipes").glob("[!_]*/smoke.py"):
        shutil.copy(adapter, copy / "adapters" / f"{adapter.parent.name}.py")
    return copy


def load() -> types.ModuleType:
    """Import the guest as the package ``envbuild_smoke``, as in an image."""
    package = types.ModuleType("envbuild_smoke")
    package.__path__ = [str(GUEST)]
    sys.modules["envbuild_smoke"] = package
    return package


def run(python: str, adapter: str, arguments: list[str], **environment: str) -> dict[str, Any]:
    """Run the guest once and return its report. Only the phase ``bench`` runs, unless ``arguments`` select other phases."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        argv = [python, str(GUEST), "run", "--adapter", adapter, "--phases", "bench", "--json", str(target), *arguments]
        done = subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if not target.exists():
            sys.exit(f"{' '.join(argv)} left no report:\n{done.stderr[-2000:]}")
        report: dict[str, Any] = json.loads(target.read_text())
    if not report["runs"]:
        sys.exit(f"nothing was measured: {report['reason']}\n{done.stderr[-2000:]}")
    return report
