"""The requirements files of a lock: which file lists each artifact, and the text of the files, with hashes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from envbuild.errors import InvalidInputError
from envbuild.model.environment import Environment, Framework
from envbuild.model.lock import Artifact, Prefix

BUILD = "build"
SDISTS = "sdists"
ADDED = "added"
COMPILED = "compiled"
_HEADER = "Rendered from lock.json by envbuild, do not edit. The Dockerfile beside it says how to make it again."
_FORMS = {
    "name": r"[A-Za-z0-9][A-Za-z0-9._-]*",
    "version": r"[A-Za-z0-9][A-Za-z0-9.!+_-]*",
    "filename": r"[A-Za-z0-9][A-Za-z0-9._!+-]*\.(whl|tar\.gz|tgz|tar\.bz2|zip)",
    "sha256": r"[0-9a-f]{64}",
    "index": r"default|https?://[A-Za-z0-9._~:/@%+-]+",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RequirementsFile:
    """One requirements file. ``stage`` is the Dockerfile stage if the file lists a group of large wheels, else empty."""

    name: str
    stage: str
    prefix: Prefix
    index: str
    artifacts: tuple[Artifact, ...]

    def text(self) -> str:
        """Return a comment, and then one line for each artifact, with its version and hash, in the order of the lock.

        The text does not contain the environment's name. So files with the same pins are equal, and builds of several
        environments share the layer that such a file makes.
        """
        return f"# {_HEADER}\n" + "".join(f"{a.name}=={a.version} --hash=sha256:{a.sha256}\n" for a in self.artifacts)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpinnedFile:
    """The requirements file of a framework for which the lock pins no files. The file has the version of the framework without
    a hash.

    An installer that requires hashes refuses this file and names the missing hash. A complete lock has no such file.
    """

    name: str
    prefix: Prefix
    index: str
    framework: Framework

    def text(self) -> str:
        """Return comments that say why there is no hash and what to do, and then the requirement."""
        framework = self.framework
        return (
            f"# {_HEADER}\n"
            f"# {framework.package} {framework.version} has no hash: {framework.index}\n"
            "# could not be reached when this was locked.\n"
            "# No installer takes it so. `envbuild lock NAME` completes the lock where that index can be reached.\n"
            f"{canonical(framework.package)}=={framework.version}\n"
        )


def unpinned(prefixes: Sequence[Prefix], environment: Environment) -> list[UnpinnedFile]:
    """Return a file for each framework of ``environment`` for which the lock pins no wheel, in the order of the environment."""
    found = []
    for plan, prefix in zip(environment.plans(), prefixes, strict=True):
        start = "requirements" if len(prefixes) == 1 else f"requirements-{prefix.name}"
        for framework in environment.part(plan).frameworks:
            if framework.name not in prefix.frameworks:
                _check_framework(framework)
                name = f"{start}-{framework.name}-unpinned.txt"
                found.append(UnpinnedFile(name=name, prefix=prefix, index=framework.index, framework=framework))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixFiles:
    """The requirements files of one prefix, in the order of installation.

    First come groups of large wheels (``large``), then the small wheels (``small``), then wheels that are built from ``sdists``
    with the packages of ``build``. ``compiled`` are sdists that can be built only when the packages before them are installed.
    ``added`` and ``added_sdists`` are only for a user's own recipe. These two come last, so that the layers below are the same
    as without the user's recipe.
    """

    prefix: Prefix
    large: tuple[RequirementsFile, ...]
    small: tuple[RequirementsFile, ...]
    sdists: RequirementsFile | None
    compiled: RequirementsFile | None
    build: RequirementsFile | None
    added: tuple[RequirementsFile, ...] = ()
    added_sdists: RequirementsFile | None = None

    def all(self) -> list[RequirementsFile]:
        """Every file of this prefix."""
        single = (self.build, self.sdists, self.compiled, self.added_sdists)
        return [*self.large, *self.small, *self.added, *(file for file in single if file)]


def split(prefix: Prefix, patterns: Sequence[str], compiled: Sequence[str] = (), *, alone: bool) -> PrefixFiles:
    """Divide the packages of ``prefix`` among requirements files.

    Each pattern in ``patterns`` makes one group of wheels: the wheels whose canonical project name matches. If several patterns
    match, the first counts. ``compiled`` are patterns for sdists that are compiled last. If ``alone`` is true, this is the
    image's only prefix, and its name is left out of the file names. Raises :class:`InvalidInputError` if the lock has sdists,
    but no tools to build them.
    """
    for artifact in prefix.files:
        _check(artifact)
    start = "requirements" if alone else f"requirements-{prefix.name}"
    added = [a for a in prefix.artifacts if a.added]
    frameworks_own = [a for a in prefix.artifacts if not a.added]
    wheels = [a for a in frameworks_own if _is_wheel(a)]
    upon = [a for a in frameworks_own if not _is_wheel(a) and _matching(a, compiled)]
    sdists = [a for a in frameworks_own if not _is_wheel(a) and a not in upon]
    added_sdists = [a for a in added if not _is_wheel(a)]
    groups: dict[str, list[Artifact]] = {pattern: [] for pattern in patterns}
    small: list[Artifact] = []
    for artifact in wheels:
        pattern = _matching(artifact, patterns)
        (small if pattern is None else groups[pattern]).append(artifact)
    large: list[RequirementsFile] = []
    for pattern, members in groups.items():
        group = pattern.rstrip("*").rstrip("-")
        large += _by_index(prefix, f"{start}-{group}", group if alone else f"{prefix.name}-{group}", members)
    files = PrefixFiles(
        prefix=prefix,
        large=tuple(large),
        small=tuple(_by_index(prefix, start, "", small)),
        sdists=_one(prefix, f"{start}-{SDISTS}", sdists),
        compiled=_one(prefix, f"{start}-{COMPILED}", upon),
        build=_one(prefix, f"{start}-{BUILD}", list(prefix.build_artifacts)) if sdists or upon or added_sdists else None,
        added=tuple(_by_index(prefix, f"{start}-{ADDED}", "", [a for a in added if _is_wheel(a)])),
        added_sdists=_one(prefix, f"{start}-{ADDED}-{SDISTS}", added_sdists),
    )
    _check_build_tools(files)
    return files


def check_names(files: Sequence[PrefixFiles], stages: Collection[str]) -> None:
    """Refuse names of files or stages that occur twice. Also refuse names that are in ``stages``, the stages that every image
    has."""
    held = [file for each in files for file in each.all()]
    named = [*stages, *(file.name for file in held), *(file.stage for file in held if file.stage)]
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise _invalid(
            f"Two prefixes of the lock would use the same name for different files or build stages: {', '.join(twice)}."
        )


def canonical(name: str) -> str:
    """Return the name of a project in the normalized form in which indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _matching(artifact: Artifact, patterns: Sequence[str]) -> str | None:
    return next((pattern for pattern in patterns if fnmatch.fnmatchcase(canonical(artifact.name), pattern)), None)


def _is_wheel(artifact: Artifact) -> bool:
    return artifact.filename.endswith(".whl")


def _by_index(prefix: Prefix, stem: str, stage: str, artifacts: list[Artifact]) -> list[RequirementsFile]:
    """Make one file for each index that ``artifacts`` come from: an installer with two indexes would take packages from either
    index."""
    indexes = sorted({a.index for a in artifacts}, key=lambda index: (index != "default", index))
    found = []
    for number, index in enumerate(indexes, start=1):
        suffix = "" if number == 1 else f"-{number}"
        members = tuple(a for a in artifacts if a.index == index)
        name, place = f"{stem}{suffix}.txt", f"{stage}{suffix}" if stage else ""
        found.append(RequirementsFile(name=name, stage=place, prefix=prefix, index=index, artifacts=members))
    return found


def _one(prefix: Prefix, stem: str, artifacts: list[Artifact]) -> RequirementsFile | None:
    found = _by_index(prefix, stem, "", artifacts)
    if len(found) > 1:
        raise _invalid(f"The source packages and build tools of {prefix.name} come from several indexes.")
    return found[0] if found else None


def _check(artifact: Artifact) -> None:
    for field, pattern in _FORMS.items():
        value = getattr(artifact, field)
        if not re.fullmatch(pattern, value):
            raise _invalid(f"The lock's {field} {value!r} of {artifact.filename!r} does not have the expected form.")


def _check_framework(framework: Framework) -> None:
    told = {"name": framework.package, "version": framework.version, "index": framework.index}
    for field, value in told.items():
        if not re.fullmatch(_FORMS[field], value):
            raise _invalid(f"The lock's {field} {value!r} of {framework.name!r} does not have the expected form.")


def _check_build_tools(files: PrefixFiles) -> None:
    sources = [artifact for each in (files.sdists, files.compiled, files.added_sdists) if each for artifact in each.artifacts]
    if not sources:
        return
    tools = {canonical(a.name) for a in files.build.artifacts if _is_wheel(a)} if files.build else set()
    if missing := sorted({"pip", "setuptools", "wheel"} - tools):
        names = ", ".join(a.name for a in sources)
        raise _invalid(f"{names} must be built from source, but the lock has no wheel of {', '.join(missing)} to build with.")


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid-lock", hint="Make the lock again with: envbuild lock NAME --relock")
