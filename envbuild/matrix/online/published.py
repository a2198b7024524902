"""Query the package index for the frameworks' packages. Has no other side effects than the queries."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.errors import UnknownNameError
from envbuild.index.project_pages import IndexFile
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.matrix.types import FrameworkTable, Matrix, Variant
from envbuild.matrix.versions import numbers
from envbuild.model.progress import OnProgress, Progress

_AT_ONCE = 4  # pages to query at once; few, because there is only one page per project
_ANY_PYTHON = "*"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}

Releases = dict[Version, "Wheels"]
Published = Mapping[str, Releases]


@dataclass(kw_only=True, slots=True)
class Wheels:
    """The wheels of one version for Linux on x86-64.

    ``pythons`` maps the Python of each wheel tag (such as ``3.10``, ``3.*`` or ``*``) to the Requires-Python of the files with
    this tag. ``floors`` maps the Python of each tag to the lowest glibc in these tags. ``file`` is a wheel for the newest
    Python, or None if there are only source archives. ``yanked`` is true if every file was yanked.
    """

    pythons: dict[str, set[str]] = field(default_factory=dict)
    floors: dict[str, str] = field(default_factory=dict)
    day: str = ""
    yanked: bool = True
    file: IndexFile | None = None

    @property
    def glibc(self) -> str:
        """The oldest glibc for which every Python has a wheel; empty if no tag states a glibc."""
        return max(self.floors.values(), key=numbers, default="")

    def serves(self, python: str) -> bool:
        """Whether a file is for the Python ``python`` (X.Y). Its tag and its Requires-Python must allow this Python."""
        tags = (python, _ANY_PYTHON, f"{python.partition('.')[0]}.{_ANY_PYTHON}")
        return any(_admits(text, python) for tag in tags for text in self.pythons.get(tag, ()))


def packages(framework: FrameworkTable) -> list[str]:
    """The projects of this machine's package index from which a framework's builds come."""
    found = (variant.package for release in framework.releases for variant in release.variants if indexed(variant))
    return list(dict.fromkeys(found))


def indexed(variant: Variant) -> bool:
    """Whether a build comes from the package index that this machine uses. Other indexes are not queried."""
    return variant.index == "default" and bool(variant.pins(""))


def ask(
    matrix: Matrix, files_of: Callable[[str], list[IndexFile]], on_progress: OnProgress
) -> dict[str, dict[Version, Wheels]]:
    """Query the index for every package, a few pages in parallel. A project that the index does not have gets no versions.

    Raises :class:`BuildError` (``index-unreachable``) that names the first page that cannot be read.
    """
    names = list(dict.fromkeys(name for framework in matrix.frameworks for name in packages(framework)))
    pool = DaemonPool(_AT_ONCE)
    answers = [(name, pool.submit(files_of, name)) for name in names]
    found: dict[str, Releases] = {}
    for number, (name, answer) in enumerate(answers):
        on_progress(Progress(stage="index", message=name, done=number, total=len(names), unit="projects"))
        try:
            files = result_of(answer)
            found[name] = wheels(files)
        except UnknownNameError:
            found[name] = {}
    on_progress(Progress(stage="index", message="all projects asked for", done=len(names), total=len(names), unit="projects"))
    return found


def wheels(files: Iterable[IndexFile]) -> Releases:
    """Map each version to its wheels for Linux on x86-64. A version without such wheels is mapped to its source archive, which
    counts as a file for every Python."""
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
        tags = frozenset(tag for tag in tags if not tag.abi.endswith("t"))  # free-threaded Python is another interpreter
        ours = [tag for tag in tags if tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith("x86_64"))]
        if not ours or name != canonicalize_name(file.project):
            continue
        entry = found.setdefault(version, Wheels())
        for tag in ours:
            python, floor = _python(tag.interpreter, tag.abi), _glibc(tag.platform)
            if entry.file is None or _order(python) >= max(map(_order, entry.pythons)):
                entry.file = file
            entry.pythons.setdefault(python, set()).add(file.requires_python)
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
        found[version] = Wheels(pythons={_ANY_PYTHON: {file.requires_python}}, day=file.uploaded[:10], yanked=file.yanked)


def _order(python: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", python))


@functools.lru_cache(maxsize=1024)
def _admits(requires_python: str, python: str) -> bool:
    """Whether a file's Requires-Python allows the last patch release of a Python. An invalid Requires-Python allows every
    Python."""
    try:
        return SpecifierSet(requires_python).contains(f"{python}.99", prereleases=True)
    except InvalidSpecifier:
        return True


def _python(interpreter: str, abi: str) -> str:
    digits = re.sub(r"^[a-z]+", "", interpreter)
    if interpreter.startswith("py") or abi == "abi3":
        return f"{digits[0]}.{_ANY_PYTHON}"
    return f"{digits[0]}.{digits[1:]}" if interpreter.startswith("cp") and len(digits) > 1 else interpreter


def _glibc(platform: str) -> str:
    modern = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return f"{modern[1]}.{modern[2]}" if modern else _LEGACY.get(platform.partition("_")[0], "")
