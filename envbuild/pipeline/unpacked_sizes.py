"""How much disk space the files of a lock need when they are unpacked, by the ratios in ``images/unpacked-sizes.json``.

``benchmarks/unpacked_sizes.py`` measures these ratios and writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from envbuild import files
from envbuild.errors import InvalidInputError
from envbuild.model.lock import Artifact, DebianPackage

# Ratios for files that the data file lacks. Wheels of Python packages and programs grow about fourfold, and CUDA's libraries
# twofold. A package that is built from its sources grows more, because its files and their bytecode were packed together.
_WHEEL = 4.0
_WHEEL_CUDA = 2.0
_SDIST = 7.0
_DEB = 4.3

Ratios = Mapping[str, tuple[tuple[Version, float], ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpackedSizes:
    """Ratios: the disk space of unpacked files, divided by the size of the packed file.

    The disk space includes the bytecode of Python modules, and whole blocks of the disk also for small files.

    ``wheels`` maps a project to pairs of a version and the ratio that holds from this version on. ``debian`` maps a suite to
    the ratios of its packages. ``bases`` maps a suite to the ratio of its minimal system as a whole.
    """

    wheels: Ratios = field(default_factory=dict)
    debian: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bases: Mapping[str, float] = field(default_factory=dict)

    def of_artifact(self, artifact: Artifact, *, with_cuda: bool) -> float:
        """Return the bytes on the disk of an installed wheel or source package. ``with_cuda`` is whether its environment has
        CUDA."""
        size = artifact.size or 0
        if not artifact.filename.endswith(".whl"):
            return _SDIST * size
        known = self.wheels.get(artifact.project)
        return size * (_from(known, artifact.version) if known else _WHEEL_CUDA if with_cuda else _WHEEL)

    def of_package(self, package: DebianPackage, suite: str) -> float:
        """Return the bytes on the disk of an installed Debian package that a step adds to the base."""
        return package.size * self.debian.get(suite, {}).get(package.name, _DEB)

    def of_base(self, package: DebianPackage, suite: str) -> float:
        """Return the share of a package of the base ``suite`` in the disk space of the base."""
        return package.size * self.bases.get(suite, _DEB)


def load(path: Path) -> UnpackedSizes:
    """Read the data file. Without this file, the same ratios are used for all projects.

    Raises :class:`InvalidInputError` (``unpacked-sizes``) if the file is damaged.
    """
    if not path.exists():
        return UnpackedSizes()
    try:
        told = json.loads(files.read_text(path))
        return UnpackedSizes(
            wheels={project: _steps(ratios) for project, ratios in told["wheels"].items()},
            debian={suite: {name: _ratio(ratio) for name, ratio in of.items()} for suite, of in told["debian"].items()},
            bases={suite: _ratio(ratio) for suite, ratio in told["bases"].items()},
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, LookupError) else str(error)[:200]
        raise InvalidInputError(
            f"{path} cannot be read: {why}.", code="unpacked-sizes", hint="Restore the file, for example with `git checkout`."
        ) from error


def _steps(ratios: Mapping[str, Any]) -> tuple[tuple[Version, float], ...]:
    if not ratios:
        raise ValueError("a project has no ratio")
    return tuple(sorted((Version(version), _ratio(ratio)) for version, ratio in ratios.items()))


def _ratio(told: Any) -> float:
    ratio = float(told)
    if not 0 < ratio < 1000:
        raise ValueError(f"{str(told)[:20]} is not a ratio of sizes")
    return ratio


def _from(steps: tuple[tuple[Version, float], ...], version: str) -> float:
    """Return the ratio that holds for ``version``: that of the newest listed version that is not newer, else the first one."""
    wanted = _parsed(version) if len(steps) > 1 else None
    if wanted is None:
        return steps[-1][1]
    return next((ratio for listed, ratio in reversed(steps) if listed <= wanted), steps[0][1])


@lru_cache(maxsize=4096)
def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None
