"""What the package index has of the frameworks' packages, and where the matrix says otherwise. Pure but for the asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.errors import UnknownNameError
from envbuild.index import IndexFile
from envbuild.index.pool import DaemonPool
from envbuild.matrix.types import FrameworkTable, Matrix, Release, Variant
from envbuild.matrix.versions import numbers
from envbuild.model import OnProgress, Progress

_AT_ONCE = 4  # one page per project, and no hurry
_ANY_PYTHON = "*"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}

Releases = dict[Version, "Wheels"]
Published = Mapping[str, Releases]


@dataclass(kw_only=True, slots=True)
class Wheels:
    """The wheels of one version for Linux on x86-64. ``pythons`` may be ``*``; ``floors`` are the least glibc for each."""

    pythons: set[str] = field(default_factory=set)
    floors: dict[str, str] = field(default_factory=dict)
    day: str = ""
    yanked: bool = True

    @property
    def glibc(self) -> str:
        """What every one of its Pythons is served from; empty where no tag says it."""
        return max(self.floors.values(), key=numbers, default="")

    def serves(self, python: str) -> bool:
        """Whether a wheel is for this Python, X.Y."""
        return not self.pythons.isdisjoint((python, _ANY_PYTHON, f"{python.partition('.')[0]}.{_ANY_PYTHON}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A place where index and matrix differ. ``kind``: gone, yanked, date, python, glibc (the matrix is wrong), new, more.

    ``at`` is the row's file and line, empty for what no row has.
    """

    kind: str
    framework: str
    version: str
    package: str
    message: str
    at: str

    @property
    def wrong(self) -> bool:
        """Whether the matrix says something that is not so; otherwise it merely says less than the index."""
        return self.kind not in ("new", "more")


def packages(framework: FrameworkTable) -> list[str]:
    """The projects of the host's own index that a framework's builds come from."""
    found = (variant.package for release in framework.releases for variant in release.variants if indexed(variant))
    return list(dict.fromkeys(found))


def indexed(variant: Variant) -> bool:
    """Whether a build comes from the host's own index; of others nothing is asked."""
    return variant.index == "default" and bool(variant.pins(""))


def ask(
    matrix: Matrix, files_of: Callable[[str], list[IndexFile]], on_progress: OnProgress
) -> dict[str, dict[Version, Wheels]]:
    """What the index has of every package, a few pages at a time. A project that it does not have at all has no versions.

    Raises :class:`BuildError` (``index-unreachable``) with the first page that could not be had.
    """
    names = list(dict.fromkeys(name for framework in matrix.frameworks for name in packages(framework)))
    pool = DaemonPool(_AT_ONCE)
    answers = [(name, pool.submit(files_of, name)) for name in names]
    found: dict[str, Releases] = {}
    for number, (name, answer) in enumerate(answers):
        on_progress(Progress(stage="index", message=name, done=number, total=len(names), unit="projects"))
        try:
            found[name] = wheels(answer.result())
        except UnknownNameError:
            found[name] = {}
    on_progress(Progress(stage="index", message="all asked", done=len(names), total=len(names), unit="projects"))
    return found


def wheels(files: Iterable[IndexFile]) -> Releases:
    """The wheels for Linux on x86-64 by version; where a version has none at all, its source archive serves any Python."""
    found: Releases = {}
    sources: Releases = {}
    for file in files:
        if not file.filename.endswith(".whl"):
            _source(sources, file)
            continue
        try:
            name, version, _, tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue
        tags = frozenset(tag for tag in tags if not tag.abi.endswith("t"))  # free-threaded builds are another interpreter's
        ours = [tag for tag in tags if tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith("x86_64"))]
        if not ours or name != canonicalize_name(file.project):
            continue
        entry = found.setdefault(version, Wheels())
        for tag in ours:
            python, floor = _python(tag.interpreter, tag.abi), _glibc(tag.platform)
            entry.pythons.add(python)
            if floor:
                entry.floors[python] = min(floor, entry.floors.get(python, floor), key=numbers)
        entry.day = min(filter(None, (entry.day, file.uploaded[:10])), default="")
        entry.yanked = entry.yanked and file.yanked
    return {**sources, **found}


def _source(found: Releases, file: IndexFile) -> None:
    try:
        name, version = parse_sdist_filename(file.filename)
    except InvalidSdistFilename:
        return
    if name == canonicalize_name(file.project):
        found[version] = Wheels(pythons={_ANY_PYTHON}, day=file.uploaded[:10], yanked=file.yanked)


def _python(interpreter: str, abi: str) -> str:
    digits = re.sub(r"^[a-z]+", "", interpreter)
    if interpreter.startswith("py") or abi == "abi3":
        return f"{digits[0]}.{_ANY_PYTHON}"
    return f"{digits[0]}.{digits[1:]}" if interpreter.startswith("cp") and len(digits) > 1 else interpreter


def _glibc(platform: str) -> str:
    modern = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return f"{modern[1]}.{modern[2]}" if modern else _LEGACY.get(platform.partition("_")[0], "")


def compare(matrix: Matrix, published: Published) -> list[Finding]:
    """All differences, in the order of the matrix: of each framework first the rows that are wrong, then what is new."""
    found: list[Finding] = []
    for framework in matrix.frameworks:
        for release in framework.releases:
            found.extend(_release(matrix, framework, release, published))
        found.extend(_new(framework, published))
    return found


def _release(matrix: Matrix, framework: FrameworkTable, release: Release, published: Published) -> Iterator[Finding]:
    version = Version(release.version)
    ours = [variant for variant in release.variants if indexed(variant)]
    days = {}
    for variant in ours:
        there = published[variant.package].get(version)
        known = {"framework": framework.name, "version": release.version, "package": variant.package, "at": variant.origin.at}
        bad = variant.origin.status == "known-bad"
        if there is None:
            if not bad:
                yield Finding(kind="gone", message="the index has no file of it for Linux on x86-64", **known)
            continue
        days[variant.package] = there.day
        if there.yanked and not bad:
            yield Finding(kind="yanked", message="every wheel of it was yanked, and the row is not known-bad", **known)
        yield from _wheels(matrix, variant, there, known)
    if any(days.values()) and release.released not in days.values():
        first = min(filter(None, days.values()))
        message = f"the row says that it was released on {release.released}; its first wheel is from {first}"
        package = next(name for name, day in days.items() if day == first)
        at = release.origin.at
        yield Finding(kind="date", framework=framework.name, version=release.version, package=package, message=message, at=at)


def _wheels(matrix: Matrix, variant: Variant, there: Wheels, known: dict[str, str]) -> Iterator[Finding]:
    missing = [python for python in variant.python if not there.serves(python)]
    if missing:
        yield Finding(kind="python", message=f"the index has no wheel of it for Python {', '.join(missing)}", **known)
    more = [row.version for row in matrix.pythons if row.version in there.pythons and row.version not in variant.python]
    if more:
        text = ", ".join(sorted(more, key=numbers))
        yield Finding(kind="more", message=f"the index has wheels for Python {text} too", **known)
    if there.glibc and numbers(there.glibc) > numbers(variant.glibc):
        message = f"the row says glibc {variant.glibc}; its wheels ask for {there.glibc}"
        yield Finding(kind="glibc", message=message, **known)


def _new(framework: FrameworkTable, published: Published) -> Iterator[Finding]:
    known = {Version(release.version) for release in framework.releases}
    oldest = min(known)
    seen: set[Version] = set()
    for package in packages(framework):
        for version, there in published[package].items():
            fresh = version > oldest and version not in known | seen and not version.is_prerelease and not version.local
            if fresh and not there.yanked:
                seen.add(version)
                yield Finding(
                    kind="new",
                    framework=framework.name,
                    version=str(version),
                    package=package,
                    message=f"published on {there.day or 'an unknown day'}, and in no row",
                    at="",
                )
