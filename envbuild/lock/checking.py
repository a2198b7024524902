"""Check offline whether a lock is valid: its form, its environment, and whether its pins fit this environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.errors import Conflict, Problem
from envbuild.files import read_bytes
from envbuild.lock import staleness, structure
from envbuild.lock.available_versions import version_of
from envbuild.lock.installers import tool_names
from envbuild.lock.lock_file import dumps
from envbuild.lock.project_files import DEFAULT_INDEX
from envbuild.lock.target import Target, read_requirement
from envbuild.model.environment import Environment, Framework
from envbuild.model.lock import Artifact, Lock, Prefix

ByFramework = Mapping[str, Sequence[str]]
_NOTHING: ByFramework = {}
_ANY_PYTHON = "3.11"  # the tools run on every Python, so only the glibc version in their wheel tags matters


def check(
    lock: Lock,
    refusals: Sequence[Conflict],
    recipe_requirements: ByFramework = _NOTHING,
    *,
    today: Environment | None = None,
    path: Path | None = None,
) -> list[Problem]:
    """Return all problems of ``lock``. The result is empty if the lock is valid.

    ``refusals`` are the reasons why today's matrix refuses the locked environment. ``recipe_requirements`` are the packages
    that today's recipes require for each framework. ``today`` is the environment with the same name in today's matrix, or None.
    ``path`` is the lock's path: its folder must have the environment's name, and its bytes must be those that envbuild writes.
    """
    where = str(path) if path else lock.environment.name
    messages = [f"the matrix no longer accepts this environment: {refusal.row}: {refusal.reason}" for refusal in refusals]
    if path is not None and path.parent.name != lock.environment.name:
        messages.append(f"the folder is named {path.parent.name}, but the environment is {lock.environment.name}")
    if path is not None and path.is_file() and read_bytes(path) != dumps(lock).encode():
        messages.append("its text differs from the text that envbuild writes for these contents, so its hash is wrong")
    if lock.base.digest is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", lock.base.digest):
        messages.append(f"base: {lock.base.digest} is not a digest")
    messages.extend(structure.problems_of(lock))
    messages.extend(staleness.outdated(lock, today) if today else ())
    frameworks = (*lock.environment.frameworks, *(staleness.stricter(lock.environment, today) if today else ()))
    for prefix in lock.prefixes:
        messages.extend(_check_prefix(lock, prefix, frameworks, recipe_requirements))
    messages.extend(_check_tools(lock))
    messages = list(dict.fromkeys(messages))
    return [Problem(where=where, line=0, message=message) for message in messages]


def contradictions(locks: Sequence[Lock]) -> list[Problem]:
    """Return a problem for each file that two locks pin with different hashes. An index has only one file of each name, so one
    of the two hashes is wrong."""
    said: dict[tuple[str, str], tuple[str, str]] = {}
    problems = []
    for lock in locks:
        name = lock.environment.name
        for artifact in (*lock.tools, *(a for prefix in lock.prefixes for a in prefix.files)):
            sha256, first = said.setdefault((artifact.index, artifact.filename), (artifact.sha256, name))
            if sha256 != artifact.sha256:
                message = f"{artifact.filename} has sha256 {artifact.sha256} here, but {sha256} in the lock of {first}"
                problems.append(Problem(where=name, line=0, message=message))
    return problems


def _check_prefix(
    lock: Lock, prefix: Prefix, frameworks: Sequence[Framework], recipe_requirements: ByFramework
) -> Iterator[str]:
    target = Target(python=prefix.python.version, glibc=lock.environment.system.glibc)
    indexes = {DEFAULT_INDEX, *(framework.index for framework in lock.environment.frameworks)}
    kinds = {"artifact": prefix.artifacts, "build artifact": prefix.build_artifacts, "pip": (prefix.pip,) if prefix.pip else ()}
    for kind, artifacts in kinds.items():
        names = [artifact.name for artifact in artifacts]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield (
                f"{prefix.name}: {kind} {name} is pinned {names.count(name)} times, but only one file per package can "
                "be installed"
            )
        for artifact in artifacts:
            if artifact.index not in indexes:
                yield f"{prefix.name}: {kind} {artifact.filename}: no framework uses the index {artifact.index!r}"
            for message in _check_artifact(artifact, target):
                yield f"{prefix.name}: {kind} {artifact.filename}: {message}"
    by_name = {artifact.name: artifact for artifact in prefix.artifacts}
    yield from (f"{prefix.name}: {message}" for message in _check_pinned(prefix, frameworks))
    ours = [name for plan in lock.environment.plans() if plan.name == prefix.name for name in plan.frameworks]
    for framework in frameworks:
        if framework.name in {*ours, *prefix.frameworks}:
            # A framework may be absent because its files could not be pinned yet. It is added later, so the existing pins must
            # already fit its requirements.
            is_there = framework.name in prefix.frameworks
            asked = [(text, is_there) for text in framework.requirements] + [(text, False) for text in framework.constraints]
            yield from (f"{prefix.name}: {message}" for message in _check_asked(framework.name, asked, by_name, target))
    plan = next((plan for plan in lock.environment.plans() if plan.name == prefix.name), None)
    wheels = lock.environment.part(plan).cuda_wheels() if plan else ()
    base = [(wheel.requirement, True) for wheel in wheels]
    yield from (f"{prefix.name}: {message}" for message in _check_asked("the base", base, by_name, target))
    recipes = [(text, True) for name in ours for text in recipe_requirements.get(name, ())]
    yield from (f"{prefix.name}: {message}" for message in _check_asked("the recipe", dict.fromkeys(recipes), by_name, target))
    if lock.environment.custom is not None and prefix is lock.prefixes[0]:
        own = [(text, True) for text in lock.environment.custom.requirements()]
        yield from (f"{prefix.name}: {message}" for message in _check_asked("envbuild.yaml", own, by_name, target))


def _check_tools(lock: Lock) -> Iterator[str]:
    """Check the pinned programs and sources that a build needs. A missing program is not a problem, because `envbuild lock`
    adds it."""
    target = Target(python=_ANY_PYTHON, glibc=lock.environment.system.glibc)
    names = [artifact.name for artifact in lock.tools]
    for name in sorted(set(names) - set(tool_names(lock.prefixes))):
        yield f"its tools include {name}, which its build does not use"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"it pins the tool {name} {names.count(name)} times"
    for artifact in lock.tools:
        for message in _check_artifact(artifact, target):
            yield f"tool {artifact.filename}: {message}"
    built = {(f.options.get("repository"), f.options.get("revision")) for f in lock.environment.frameworks}
    for source in lock.sources:
        if (source.repository, source.revision) not in built:
            yield f"it pins the source {source.repository} at {source.revision}, but nothing is built from it"
        if not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
            yield f"source {source.repository}: {source.sha256!r} is not a sha256"


def _check_pinned(prefix: Prefix, frameworks: Sequence[Framework]) -> Iterator[str]:
    """Check the files that the matrix pins: their hashes in the lock must be those in the matrix."""
    pinned = {(framework.index, each.filename): each for framework in frameworks for each in framework.files}
    for artifact in prefix.artifacts:
        known = pinned.get((artifact.index, artifact.filename))
        if known and known.sha256 != artifact.sha256:
            yield f"artifact {artifact.filename}: according to {known.source}, its sha256 is {known.sha256}"


def _check_artifact(artifact: Artifact, target: Target) -> Iterator[str]:
    if not re.fullmatch(r"[0-9a-f]{64}", artifact.sha256):
        yield f"{artifact.sha256!r} is not a sha256"
    if artifact.project != artifact.name:
        yield f"it belongs to the project {artifact.project!r}"
    if "/" in artifact.filename or artifact.filename.startswith("."):
        yield "it is not a plain file name"
    try:
        pinned = Version(artifact.version)
    except InvalidVersion:
        yield f"{artifact.version!r} is not a version"
        return
    if version_of(artifact.filename, artifact.name) != pinned:
        yield f"its file name does not contain {artifact.name} {artifact.version}"
    elif artifact.filename.endswith(".whl") and target.rank_of_wheel(artifact.filename) is None:
        yield f"it does not work with Python {target.python} and glibc {target.glibc}"


def _check_asked(who: str, asked: Iterable[tuple[str, bool]], by_name: dict[str, Artifact], target: Target) -> Iterator[str]:
    """Check each pair of a requirement and a flag in ``asked``. If the flag is true, the required package must be pinned.
    Otherwise, the package may be absent."""
    for text, must_be_there in asked:
        try:
            requirement = read_requirement(text)
        except InvalidRequirement as error:
            yield f"{who}: {text!r}: {error}"
            continue
        if not target.wants(requirement):
            continue
        artifact = by_name.get(canonicalize_name(requirement.name))
        if artifact is None:
            if must_be_there:
                yield f"{who} requires {text}, which is not pinned"
        elif not _satisfies(artifact, requirement.specifier):
            yield f"{who} allows {text}, but {artifact.version} is pinned"


def _satisfies(artifact: Artifact, bounds: SpecifierSet) -> bool:
    try:
        return bounds.contains(Version(artifact.version), prereleases=True)
    except InvalidVersion:
        return False  # reported before, by the check of the artifact
