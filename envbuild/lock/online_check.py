"""Check on the indexes whether they still offer the pinned files, unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.lock.target import Target, read_requirement
from envbuild.model.lock import Artifact, Lock, Prefix
from envbuild.model.progress import OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile

Kind = Literal["gone", "changed", "refuses-python", "yanked", "yanked-yet-asked-for", "unreachable"]
# Installers accept a yanked file if its exact version is pinned (PEP 592).
HARMLESS: frozenset[Kind] = frozenset({"yanked-yet-asked-for"})


_HOST_PYTHON = "3.11"  # envbuild's own Python unpacks the tools from their wheels; the image's Python does not


@dataclass(frozen=True, kw_only=True, slots=True)
class PinFinding:
    """One difference between an index and a pin of a lock. ``environment`` is the name of the lock's environment. ``project``
    is the project whose page on the index was read."""

    environment: str
    kind: Kind
    index: str
    project: str
    filename: str
    message: str


def ask(locks: Iterable[Lock], index: Index, on_progress: OnProgress = ignore_progress) -> list[PinFinding]:
    """Return all differences between the indexes and ``locks``. The page of each project is read once for all locks.

    If an index cannot be reached, each file from this index gives a finding.
    """
    pins = list(_pins(locks))
    pages = dict.fromkeys((pin.artifact.index, pin.artifact.project) for pin in pins)
    for place, project in pages:
        index.prefetch([project], place)
    answers: dict[tuple[str, str], _Page] = {}
    for number, (place, project) in enumerate(pages, start=1):
        answers[place, project] = _page(index, place, project)
        on_progress(Progress(stage="check", message=f"looking up {project}", done=number, total=len(pages), unit="projects"))
    return [found for pin in pins for found in _judge(pin, answers[pin.artifact.index, pin.artifact.project])]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pin:
    environment: str
    artifact: Artifact
    target: Target
    exact: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    files: Mapping[str, tuple[IndexFile, ...]]
    unreachable: str = ""


def _pins(locks: Iterable[Lock]) -> Iterator[_Pin]:
    for lock in locks:
        exact = _exactly_asked_for(lock)
        for prefix in lock.prefixes:
            target = Target(python=prefix.python.version, glibc=lock.environment.system.glibc)
            for artifact in _files(prefix):
                name = lock.environment.name
                yield _Pin(environment=name, artifact=artifact, target=target, exact=artifact.name in exact)
        host = Target(python=_HOST_PYTHON, glibc=lock.environment.system.glibc)
        for artifact in lock.tools:
            yield _Pin(environment=lock.environment.name, artifact=artifact, target=host, exact=True)


def _files(prefix: Prefix) -> Iterable[Artifact]:
    return dict.fromkeys(prefix.files)


def _exactly_asked_for(lock: Lock) -> set[str]:
    found: set[str] = set()
    for text in (text for framework in lock.environment.frameworks for text in framework.requirements):
        try:
            requirement = read_requirement(text)
        except InvalidRequirement:
            continue  # the offline check reports this
        if any(bound.operator in ("==", "===") for bound in requirement.specifier):
            found.add(canonicalize_name(requirement.name))
    return found


def _page(index: Index, place: str, project: str) -> _Page:
    try:
        files = index.project_files(project, place)
    except UnknownNameError:
        return _Page(files={})
    except BuildError as error:
        return _Page(files={}, unreachable=error.message)
    named: dict[str, list[IndexFile]] = {}
    for file in files:
        named.setdefault(file.filename, []).append(file)
    return _Page(files={name: tuple(same) for name, same in named.items()})


def _judge(pin: _Pin, page: _Page) -> Iterator[PinFinding]:
    artifact = pin.artifact

    def found(kind: Kind, message: str) -> PinFinding:
        return PinFinding(
            environment=pin.environment,
            kind=kind,
            index=artifact.index,
            project=artifact.project,
            filename=artifact.filename,
            message=message,
        )

    if page.unreachable:
        yield found("unreachable", f"not looked up: {page.unreachable}")
        return
    offered = page.files.get(artifact.filename, ())
    same = [file for file in offered if file.sha256 in ("", artifact.sha256)]
    if not offered:
        yield found("gone", f"the index no longer offers it ({artifact.project} has {len(page.files)} other files)")
    elif not same:
        yield found("changed", f"its sha256 is {offered[0].sha256} on the index, but {artifact.sha256} in the lock")
    elif same[0].yanked:
        kind: Kind = "yanked-yet-asked-for" if pin.exact else "yanked"
        yield found(kind, "it was yanked" + (", but the lock asks for exactly this version" if pin.exact else ""))
    if same and not pin.target.accepts_python(same[0].requires_python):
        yield found("refuses-python", f"it now requires Python {same[0].requires_python}, but the lock has {pin.target.python}")
