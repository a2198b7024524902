"""Run the guest with every Python of this machine, each with the oldest NumPy that pip still installs for it.

NumPy is installed into a separate folder (`pip install --target`), never into the Python itself. The folder is kept between
runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GUEST = REPOSITORY / "envbuild" / "smoke"
INSIDE = Path(__file__).parent / "inside"
FAULTY = INSIDE / "faulty.py"
# Python → the oldest NumPy with a wheel for it; for the newest Python, the newest NumPy.
NUMPY = {
    "2.7": "1.11.3",
    "3.5": "1.11.3",
    "3.6": "1.13.3",
    "3.7": "1.14.6",
    "3.8": "1.17.5",
    "3.9": "1.19.5",
    "3.10": "1.21.6",
    "3.11": "1.23.5",
    "3.12": "1.26.4",
    "3.13": "2.1.3",
    "3.14": "2.3.5",
}

TIMEOUT_S = 900  # longer than that is a hang; a loaded machine needs ten times as long as an idle one

STUBS = Path(__file__).parent / "stubs"


def compiled(folder: Path, *names: str) -> None:
    """Compile C files of `stubs/` into shared libraries that stand in for real ones."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-ins with")
    for name in names:
        command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", folder / f"{name}.so", STUBS / f"{name}.c", "-ldl"]
        subprocess.run(command, check=True)


@dataclass(frozen=True)
class Answer:
    """The exit code, output and report of one run of the guest."""

    code: int
    out: str
    err: str
    report: dict[str, Any] | None

    def failed(self) -> set[str]:
        assert self.report is not None, self.err
        return {check["id"] for check in self.report["checks"] if check["status"] == "fail"}

    def check(self, key: str, n: int | None = None) -> dict[str, Any]:
        assert self.report is not None, self.err
        return next(check for check in self.report["checks"] if check["id"] == key and check["n"] == n)


@dataclass(frozen=True)
class Guest:
    """A Python and a NumPy folder with which the guest runs."""

    version: str
    executable: str
    numpy: Path
    environment: dict[str, str] = field(default_factory=dict)
    guest: Path = GUEST

    def env(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ENVBUILD", "OMP_"))}
        kept |= {"PYTHONPATH": str(self.numpy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        return {**kept, "ENVBUILD_SMOKE": str(GUEST), **more}

    def start(self, *arguments: str | Path, prefix: tuple[str, ...] = (), **how: Any) -> subprocess.Popen[str]:
        argv = [*prefix, self.executable, str(self.guest), *map(str, arguments)]
        how.setdefault("env", self.env())
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)

    def run(self, *arguments: str | Path, folder: Path, **how: Any) -> Answer:
        target = folder / "report.json"
        process = self.start(*arguments, "--json", target, **how)
        out, err = process.communicate(timeout=TIMEOUT_S)
        report = json.loads(target.read_text()) if target.exists() else None
        return Answer(process.returncode, out, err, report)


def _found() -> dict[str, str]:
    """Return version → executable for every Python of ``NUMPY`` that this machine has."""
    folders = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    folders += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {ours: sys.executable} if ours in NUMPY else {}
    for version in NUMPY:
        for folder in folders:
            candidate = folder / f"python{version}"
            if version not in found and candidate.exists() and _works(candidate):
                found[version] = str(candidate)
    return {version: found[version] for version in NUMPY if version in found}


def _works(python: Path) -> bool:
    """Whether the Python starts and has pip. pyenv has shims for Pythons that are not selected, and these do not start."""
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _numpy_beside(version: str, executable: str) -> Path:
    """The folder with NumPy for this Python. The first call installs it; the folder is either complete or absent."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuild" / "test-guests"
    folder = cache / f"py{version}-numpy{NUMPY[version]}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / "site"
        install = [executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(fresh)]
        done = subprocess.run([*install, f"numpy=={NUMPY[version]}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"NumPy for Python {version} cannot be installed: {done.stderr.strip()[-300:]}")
        with contextlib.suppress(OSError):  # another process has made the folder meanwhile
            fresh.rename(folder)
    return folder


PYTHONS = _found()
OLDEST, NEWEST = next(iter(PYTHONS)), list(PYTHONS)[-1]
FEW = sorted({OLDEST, *({"3.6"} & PYTHONS.keys()), NEWEST}, key=list(NUMPY).index)
EVERY = [pytest.param(version, marks=() if version in FEW else pytest.mark.prove) for version in PYTHONS]


@pytest.fixture(scope="session")
def guest_of() -> Callable[[str], Guest]:
    def make(version: str) -> Guest:
        if version not in PYTHONS:
            pytest.skip(f"this machine has no Python {version}")
        return Guest(version, PYTHONS[version], _numpy_beside(version, PYTHONS[version]))

    return make


@pytest.fixture(scope="session")
def guest(guest_of: Callable[[str], Guest]) -> Guest:
    """The guest with the newest Python, for tests that do not depend on the version."""
    return guest_of(NEWEST)
