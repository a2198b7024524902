"""Read from the metadata of wheels which versions of CUDA, cuDNN, NCCL and companion packages they require."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.errors import UnknownNameError
from envbuild.index.project_pages import IndexFile
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.matrix.online.published import Published, Releases, indexed, wheels
from envbuild.matrix.types import Matrix, Variant
from envbuild.matrix.versions import has_prefix, numbers
from envbuild.model.progress import OnProgress, Progress

# Maps each field of a matrix row to the names of the CUDA vendor's packages on the index. From CUDA 13 on, the names of the
# packages have no major version.
_PACKAGES = {
    "cuda": re.compile(r"cuda-toolkit|nvidia-cuda-runtime(-cu\d+)?"),
    "cudnn": re.compile(r"nvidia-cudnn(-cu\d+)?"),
    "nccl": re.compile(r"nvidia-nccl(-cu\d+)?"),
}
_AT_ONCE = 8
_DEPTH = 3  # depth of requirements to read: a framework requires its plug-in, which requires the vendor's packages

RequiresOf = Callable[[IndexFile, Version], Sequence[Requirement] | None]  # None if the requirements cannot be known
Key = tuple[str, str]  # a requirement such as name[extra], and the version
Declarations = Mapping[Key, "Declared"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """The version conditions in a wheel's metadata. ``projects`` maps the name of each required project to the conditions.
    ``libraries`` maps ``cuda``, ``cudnn`` and ``nccl`` to their conditions, if there are any."""

    libraries: Mapping[str, SpecifierSet] = field(default_factory=dict)
    projects: Mapping[str, SpecifierSet] = field(default_factory=dict)


def key_of(variant: Variant, version: str) -> Key:
    """Return the key of a build's wheel in the result of :func:`collect`."""
    return variant.requirement, version


def declared_of(projects: Mapping[str, SpecifierSet]) -> Declared:
    """Return ``projects``, the conditions on each project, together with the conditions on each of the CUDA vendor's
    libraries."""
    libraries: dict[str, SpecifierSet] = {}
    for name, conditions in projects.items():
        if what := library_of(name):
            libraries[what] = libraries.get(what, SpecifierSet()) & conditions
    return Declared(libraries=libraries, projects=projects)


def admits(conditions: SpecifierSet, version: str) -> bool:
    """Whether a release whose number begins with ``version`` (such as 12.4 or 9.1.0) satisfies the conditions."""
    bounds = [clause.version.removesuffix(".*") for clause in conditions]
    lines = [bound for bound in bounds if has_prefix(bound, version)]
    return any(conditions.contains(text, prereleases=True) for text in (version, f"{version}.99999", *lines))


def exactly(conditions: SpecifierSet) -> str:
    """Return the single required version, or an empty text for a range."""
    return next((clause.version for clause in conditions if clause.operator == "==" and "*" not in clause.version), "")


def library_of(project: str) -> str:
    """Return the field of a matrix row for a project: ``cuda``, ``cudnn`` or ``nccl``. Return an empty text for other
    projects."""
    return next((what for what, names in _PACKAGES.items() if names.fullmatch(project)), "")


def lowest(conditions: SpecifierSet) -> str:
    """Return the single required version, or the lower bound of the required range. Return an empty text if there is
    neither."""
    bounds = [clause.version.removesuffix(".*") for clause in conditions if clause.operator in ("==", ">=", "~=", ">")]
    return max(bounds, key=Version, default="")


def below(conditions: SpecifierSet) -> str:
    """Return the upper bound of the range, which is not part of the range. Return an empty text if there is no upper bound."""
    return min((clause.version for clause in conditions if clause.operator == "<"), key=Version, default="")


class Reader:
    """Reads the requirements of wheels. If a wheel requires a package with an extra, the requirements of that package are read,
    too. The extra may require the CUDA vendor's packages."""

    def __init__(self, published: Published, files_of: Callable[[str], list[IndexFile]], requires_of: RequiresOf) -> None:
        self._published: dict[str, Releases] = dict(published)
        self._files_of = files_of
        self._requires_of = requires_of

    def read(self, requirement: str, version: str, python: str) -> Declared | None:
        """Return the requirements of ``requirement`` in ``version`` on Linux with ``python``; None if no wheel states them."""
        wanted = Requirement(f"{requirement}=={version}")
        requires = self._requires(wanted, python)
        if requires is None:
            return None
        projects: dict[str, SpecifierSet] = {}
        for each in self._below(requires, python, _DEPTH):
            name = canonicalize_name(each.name)
            projects[name] = projects.get(name, SpecifierSet()) & each.specifier
        return declared_of(projects)

    def newest(self, project: str, asked: SpecifierSet) -> Version | None:
        """Return the newest release of ``project`` that ``asked`` allows and for which the index has wheels."""
        found = self._releases(canonicalize_name(project))
        return max((version for version in found if asked.contains(version) and found[version].file), default=None)

    def offers(self, project: str, asked: SpecifierSet) -> bool:
        """Whether the index has a release of ``project`` that ``asked`` allows and that was not withdrawn."""
        found = self._releases(canonicalize_name(project))
        return any(not there.yanked for there in map(found.__getitem__, asked.filter(found, prereleases=None)))

    def _below(self, requires: Sequence[Requirement], python: str, depth: int) -> Iterable[Requirement]:
        for each in requires:
            yield each
            if each.extras and depth and not library_of(canonicalize_name(each.name)):
                yield from self._below(self._requires(each, python) or (), python, depth - 1)

    def _requires(self, wanted: Requirement, python: str) -> list[Requirement] | None:
        """The requirements of the newest release that ``wanted`` allows. Requirements whose markers do not hold are left out.
        The result is None if the requirements cannot be known."""
        newest = self.newest(wanted.name, wanted.specifier)
        file = self._releases(canonicalize_name(wanted.name))[newest].file if newest else None
        if file is None or newest is None:
            return None
        said = self._requires_of(file, newest)
        return None if said is None else [each for each in said if _holds(each, wanted.extras, python)]

    def _releases(self, project: str) -> Releases:
        if project not in self._published:
            try:
                self._published[project] = wheels(self._files_of(project))
            except UnknownNameError:
                self._published[project] = {}
        return self._published[project]


def _holds(requirement: Requirement, extras: Iterable[str], python: str) -> bool:
    if requirement.marker is None:
        return True
    machine = {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix", "platform_machine": "x86_64"}
    machine |= {"python_version": python, "python_full_version": f"{python}.0", "implementation_name": "cpython"}
    return any(requirement.marker.evaluate({**machine, "extra": extra}) for extra in ("", *extras))


def collect(matrix: Matrix, reader: Reader, on_progress: OnProgress) -> dict[Key, Declared]:
    """Read the requirements of the wheels of all builds that get CUDA from packages or whose rows list requirements."""
    wanted: dict[Key, str] = {}
    for framework in matrix.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                if indexed(variant) and (variant.cuda_libraries == "wheels" or variant.requirements):
                    wanted.setdefault(key_of(variant, release.version), max(variant.python, key=numbers))
    pool = DaemonPool(_AT_ONCE)
    answers = [(key, pool.submit(reader.read, *key, python)) for key, python in wanted.items()]
    found = {}
    for number, (key, answer) in enumerate(answers):
        message = f"{key[0]} {key[1]}"
        on_progress(Progress(stage="metadata", message=message, done=number, total=len(answers), unit="wheels"))
        declared = result_of(answer)
        if declared is not None:
            found[key] = declared
    on_progress(
        Progress(stage="metadata", message="metadata of all wheels read", done=len(answers), total=len(answers), unit="wheels")
    )
    return found
