"""Find the versions of a project that can be locked for a target (a Python and a glibc), and choose a file for each version."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.errors import BuildError
from envbuild.lock.target import Target

if TYPE_CHECKING:
    from envbuild.index.project_pages import IndexFile

SDIST_SUFFIXES = (".tar.gz", ".zip", ".tar.bz2")
_NONE_LATER: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionOffer:
    """One version of a project, and the best file of this version for the target."""

    version: Version
    file: IndexFile
    is_wheel: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """The versions of a project, best first: wheels from newest to oldest, then source archives from newest to oldest.

    Wheels come before source archives, because the newest version of an old project is often an archive that must be compiled,
    or that today's tools cannot build. ``refused`` maps each reason for leaving files out to the number of files that were left
    out for this reason.
    """

    project: str
    best_first: tuple[VersionOffer, ...]
    refused: dict[str, int]


def cutoff(exclude_newer: str) -> str:
    """Return the first moment (ISO, UTC) after the day of a date limit. Files that were published on the day of the limit are
    still allowed."""
    if not exclude_newer:
        return ""
    day = datetime.date.fromisoformat(exclude_newer[:10])
    return (day + datetime.timedelta(days=1)).isoformat()


class OfferBook:
    """Finds the offers of projects. The page of each project is read only once, through ``pages``."""

    def __init__(
        self,
        *,
        target: Target,
        pages: Callable[[str], list[IndexFile]],
        exclude_newer: str,
        undated: frozenset[str],
        exempt: frozenset[str] = frozenset(),
        later: Mapping[str, str] = _NONE_LATER,
        wheels_only: bool = False,
        skipped: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """``exclude_newer`` is the date limit. It does not apply to the projects in ``undated``, nor to the files whose names
        are in ``exempt``.

        ``later`` maps some projects to their own limits. Such a limit is the first moment (ISO, UTC) that is too new, or empty
        for no limit.
        """
        self._target = target
        self._pages = pages
        self._cutoff = cutoff(exclude_newer)
        self._undated = undated
        self._exempt = exempt
        self._later = later
        self._wheels_only = wheels_only
        self._skipped = skipped
        self._known: dict[str, Offers] = {}

    def of(self, project: str) -> Offers:
        """Return the offers of ``project``. Raises the errors of the index, and BuildError if the index states no upload
        times."""
        if project not in self._known:
            self._known[project] = self._read(project)
        return self._known[project]

    def _read(self, project: str) -> Offers:
        refused: Counter[str] = Counter()
        best: dict[Version, tuple[tuple[int, int, tuple[int, str], str], IndexFile]] = {}
        files = self._pages(project)
        if malformed := self._skipped(project):
            refused[f"have malformed entries on the project's page, such as {malformed[0]}"] += len(malformed)
        dated = "" if project in self._undated else self._later.get(project, self._cutoff)
        if dated and files and not any(file.uploaded for file in files):
            raise BuildError(
                f"The package index gives no upload times for {project}, so versions cannot be limited by date.",
                code="index-undated",
                hint="Use an index that gives upload times (PEP 700); a proxy that passes on the original pages also works.",
            )
        for file in files:
            found = self._judge(file, "" if file.filename in self._exempt else dated)
            if isinstance(found, str):
                refused[found] += 1
                continue
            version, rank = found
            order = (int(file.yanked), *rank, file.filename)
            if version not in best or order < best[version][0]:
                best[version] = (order, file)
        offers = [
            VersionOffer(version=version, file=file, is_wheel=file.filename.endswith(".whl"))
            for version, (_, file) in best.items()
        ]
        offers.sort(key=lambda offer: (offer.is_wheel, offer.version), reverse=True)
        return Offers(project=project, best_first=tuple(offers), refused=dict(refused))

    def _judge(self, file: IndexFile, dated: str) -> tuple[Version, tuple[int, tuple[int, str]]] | str:
        """Return the version of a file and its rank (see :class:`Target`), or the reason for leaving the file out."""
        version = version_of(file.filename, file.project)
        if version is None:
            return "are files of an unknown kind"
        if dated and (not file.uploaded or file.uploaded >= dated):
            return "were published after the date limit"
        if not self._target.accepts_python(file.requires_python):
            return f"refuse Python {self._target.python}"
        if file.filename.endswith(".whl"):
            rank = self._target.rank_of_wheel(file.filename)
            return (version, rank) if rank else f"are for another platform than Python {self._target.python} on Linux x86_64"
        if self._wheels_only:
            return "are source archives"
        return version, (len(self._target.rank), (0, ""))


def version_of(filename: str, project: str) -> Version | None:
    """Return the version in the name of a wheel or source archive. Return None for other files, and for files of other
    projects."""
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
            return version if name == canonicalize_name(project) else None
        suffix = next((s for s in SDIST_SUFFIXES if filename.endswith(s)), None)
        if suffix is None:
            return None
        stem = filename.removesuffix(suffix)
        # The name of a project may contain dashes. So try each dash as the one that separates name and version.
        for place in (i for i, letter in enumerate(stem) if letter == "-"):
            if canonicalize_name(stem[:place]) == canonicalize_name(project):
                return Version(stem[place + 1 :])
    except (InvalidVersion, InvalidWheelFilename, InvalidSdistFilename):
        return None
    return None
