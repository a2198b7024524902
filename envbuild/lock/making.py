"""An environment with every file pinned: the one stage that asks a package index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, InvalidInputError, Problem
from envbuild.files import sha256_of
from envbuild.lock.added import choose
from envbuild.lock.metadata import MetadataReader
from envbuild.lock.offers import OfferBook
from envbuild.lock.resolver import Candidate, resolve
from envbuild.lock.target import Target, read_requirement
from envbuild.model import (
    Artifact,
    BaseLock,
    Environment,
    Framework,
    Lock,
    Missing,
    OnProgress,
    Prefix,
    PrefixPlan,
    Progress,
    ignore_progress,
)

if TYPE_CHECKING:
    from envbuild.index import Index

_ONLY = ("env", "/opt/env")
_ONE_OF_SEVERAL = "/opt/envs"
DEFAULT_INDEX = "default"
# uv installs into 3.6 and newer ("does not support -I" below that); older interpreters need the last pip that knew them, and
# a virtualenv that brings its own pip and setuptools, as 20.0 and later do not.
_OLDEST_FOR_UV = (3, 6)
_INSTALLERS = ("pip", "virtualenv<20")
_BUILDERS = ("pip", "setuptools", "wheel")

PinBase = Callable[[Environment], BaseLock | Missing]
# What the recipes say, by the name of the framework that each is for: it holds in that framework's prefix.
ByFramework = Mapping[str, Sequence[str]]
_NOTHING: ByFramework = {}


def make(
    environment: Environment,
    *,
    recipe_requirements: ByFramework,
    index: Index,
    pin_base: PinBase,
    downloads: Path,
    ignored: ByFramework = _NOTHING,
    like: Lock | None = None,
    upgrading: Sequence[Requirement] = (),
    on_progress: OnProgress = ignore_progress,
) -> Lock:
    """Choose and pin every Python package of ``environment``, in each of its prefixes; the base is pinned by ``pin_base``.

    What packages ask of ``ignored`` projects is not followed. The files of ``like``, an earlier lock, are taken again wherever
    they still fit, but for the projects of ``upgrading``: those are chosen anew, within their bounds if they have any, and then
    however new they are.
    What cannot be pinned stands in the lock's ``missing``. Same environment and same index, same lock, byte for byte. Raises
    :class:`ConflictError` (``unsatisfiable``), and :class:`BuildError` (``index-unreachable``) where the host's own index
    cannot be asked.
    """
    earlier = {prefix.name: prefix for prefix in like.prefixes} if like else {}
    prefixes: list[Prefix] = []
    gaps: list[_Gap] = []
    for plan in environment.plans():
        maker = _PrefixMaker(environment, plan, index, downloads, ignored=ignored, on_progress=on_progress)
        ours = environment.part(plan).frameworks
        gaps += [gap for framework in ours if (gap := maker.unreachable(framework))]
        absent = {gap.framework for gap in gaps}
        present = [framework for framework in ours if framework.name not in absent]
        prefixes.append(maker.make(present, recipe_requirements, like=earlier.get(plan.name), upgrading=upgrading))
    base, base_gap = _pin_base(environment, pin_base, on_progress)
    missing = (*_unpinned(environment), *(gap.missing for gap in gaps), *base_gap)
    return Lock(environment=environment, base=base, prefixes=tuple(prefixes), missing=missing)


def complete(
    lock: Lock,
    *,
    recipe_requirements: ByFramework,
    index: Index,
    pin_base: PinBase,
    downloads: Path,
    ignored: ByFramework = _NOTHING,
    on_progress: OnProgress = ignore_progress,
) -> Lock:
    """``lock`` with what stood under its ``missing`` pinned, as far as that can be had now; what was pinned stays.

    An equal lock where nothing new could be had. No index is asked, and none has to answer, where none was missing.
    """
    environment = lock.environment
    missing, base, prefixes = list(lock.missing), lock.base, list(lock.prefixes)
    for place, (plan, prefix) in enumerate(zip(environment.plans(), lock.prefixes, strict=True)):
        absent = [each for each in environment.part(plan).frameworks if each.name not in prefix.frameworks]
        maker = _PrefixMaker(environment, plan, index, downloads, ignored=ignored, on_progress=on_progress)
        if absent and (whole := _retry(maker, recipe_requirements, absent, prefix)):
            prefixes[place] = whole
            answered = {_gap_of(framework).missing for framework in absent}
            missing = [gap for gap in missing if gap not in answered]
    if base.digest is None and base.bootstrap is None:
        base, still = _pin_base(environment, pin_base, on_progress)
        if not still:
            ours = {*_unpinned(environment), *(_gap_of(f).missing for f in environment.frameworks)}
            missing = [gap for gap in missing if gap in ours]
    return Lock(environment=environment, base=base, prefixes=tuple(prefixes), missing=tuple(missing))


def _retry(maker: _PrefixMaker, recipe_requirements: ByFramework, absent: Sequence[Framework], prefix: Prefix) -> Prefix | None:
    """``prefix`` with the ``absent`` frameworks added, None where an index that is needed for that still does not answer."""
    if any(maker.unreachable(framework) for framework in absent):
        return None
    try:
        return maker.make(maker.environment.frameworks, recipe_requirements, pins={a.name: a for a in prefix.artifacts})
    except BuildError as error:
        if error.code != "index-unreachable":
            raise
        return None


def _pin_base(environment: Environment, pin_base: PinBase, on_progress: OnProgress) -> tuple[BaseLock, tuple[Missing, ...]]:
    on_progress(Progress(stage="lock", message=f"pinning the base {environment.base.image}"))
    found = pin_base(environment)
    if isinstance(found, Missing):
        return BaseLock(image=environment.base.image, digest=None, bootstrap=None), (found,)
    return found, ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Gap:
    framework: str
    missing: Missing


def _gap_of(framework: Framework) -> _Gap:
    return _Gap(
        framework=framework.name,
        missing=Missing(
            what=f"the files of {framework.package} {framework.version} and of what it requires",
            why=f"its package index {framework.index} could not be reached",
        ),
    )


def _unpinned(environment: Environment) -> list[Missing]:
    """What the matrix itself leaves open: packages without a hash, and sources named by a tag, which can be moved."""
    sources = [
        Missing(
            what=f"the commit of {framework.options['repository']} that {revision} names",
            why="the matrix names a tag or a branch there, no commit",
        )
        for framework in environment.frameworks
        if (revision := framework.options.get("revision", "")) and not re.fullmatch(r"[0-9a-f]{40}", revision)
    ]
    return sources + [
        Missing(
            what=f"sha256 of {package.name} {package.version}",
            why=f"no public source gives it; apt checks it at build time against the signed index of {package.repository}",
        )
        for package in environment.base.packages
        if not package.sha256
    ]


class _Keep:
    """What of an earlier lock is to stay, and what is to be chosen anew."""

    def __init__(self, artifacts: Sequence[Artifact], upgrading: Sequence[Requirement]) -> None:
        self.upgrading = frozenset(canonicalize_name(requirement.name) for requirement in upgrading)
        self.bounds = [requirement for requirement in upgrading if requirement.specifier]
        self.preferred = {a.name: a.filename for a in artifacts if canonicalize_name(a.name) not in self.upgrading}
        self.filenames = frozenset(self.preferred.values())


class _PrefixMaker:
    """Locks the packages of one prefix; holds what its steps share."""

    def __init__(
        self,
        whole: Environment,
        plan: PrefixPlan,
        index: Index,
        downloads: Path,
        *,
        ignored: ByFramework,
        on_progress: OnProgress,
    ) -> None:
        self._name, self._path = (plan.name, f"{_ONE_OF_SEVERAL}/{plan.name}") if whole.prefixes else _ONLY
        self.environment = environment = whole.part(plan)
        self._ignored = frozenset(canonicalize_name(name) for f in environment.frameworks for name in ignored.get(f.name, ()))
        self._own = whole.custom if plan == whole.plans()[0] else None
        self._index = index
        self._downloads = downloads
        self._on_progress = on_progress
        self._target = Target(python=environment.python.version, glibc=environment.system.glibc)
        self._reader = MetadataReader(index, downloads, on_progress)
        self._index_of: dict[str, str] = {canonicalize_name(f.package): f.index for f in environment.frameworks}
        self._picked = 0

    def unreachable(self, framework: Framework) -> _Gap | None:
        """What is missing if ``framework`` stands on an index of its own that cannot be asked now."""
        if framework.index == DEFAULT_INDEX:
            return None
        try:
            self._index.project_files(framework.package, framework.index)
        except BuildError as error:
            if error.code != "index-unreachable":
                raise
            return _gap_of(framework)
        return None

    def make(
        self,
        frameworks: Sequence[Framework],
        recipe_requirements: ByFramework,
        *,
        pins: Mapping[str, Artifact] | None = None,
        like: Prefix | None = None,
        upgrading: Sequence[Requirement] = (),
    ) -> Prefix:
        """The prefix with the packages of ``frameworks`` and of the recipes, and the tools that install or build them.

        ``pins`` are files already locked, by name: none of them changes. Those of ``like`` change where they have to, and the
        projects of ``upgrading`` wherever something better is offered.
        """
        pins = pins or {}
        for note in self._index.notes:
            self._say(note, log=True)
        recipes = [text for f in self.environment.frameworks for text in recipe_requirements.get(f.name, ())]
        asked = self._read([text for f in frameworks for text in f.requirements] + recipes)
        added = self._read(self._own.requirements()) if self._own else []
        constraints = self._read([text for f in frameworks for text in f.constraints])
        constraints += [Requirement(f"{pin.name}=={pin.version}") for pin in pins.values()]
        self._say(f"asking for {', '.join(sorted({str(r) for r in [*asked, *added]}))}")
        undated = [f.package for f in frameworks] + [r.name for r in upgrading if r.specifier]
        undated += self._own.newer if self._own else ()
        keep = _Keep(like.artifacts if like else (), upgrading)
        book = self._book(undated=frozenset(map(canonicalize_name, undated)), exempt=keep.filenames)
        chosen = choose(asked, added, lambda wanted: self._resolve(wanted, constraints, book, keep), self.environment)
        backend: Literal["uv", "pip"] = "uv" if self._target.python_info >= _OLDEST_FOR_UV else "pip"
        tools = self._tools(chosen, backend, _Keep(like.build_artifacts if like else (), upgrading))
        return Prefix(
            name=self._name,
            path=self._path,
            python=self.environment.python,
            frameworks=tuple(f.name for f in frameworks),
            backend=backend,
            artifacts=tuple(pins.get(artifact.name, artifact) for artifact in self._artifacts(chosen)),
            build_artifacts=self._artifacts(tools),
        )

    def _tools(self, chosen: Sequence[Candidate], backend: Literal["uv", "pip"], keep: _Keep) -> list[Candidate]:
        """Wheels only: the installer's own at their last versions, the rest as old as the packages they build."""
        wanted: list[str] = list(_INSTALLERS) if backend == "pip" else []
        sources = [c for c in chosen if not c.offer.is_wheel]
        if sources:
            wanted += _BUILDERS
            self._say("built from source: " + ", ".join(f"{c.project} {c.offer.version}" for c in sources), log=True)
        if not wanted:
            return []
        requirements = self._read(wanted)
        for source in sources:
            declared = self._reader.read(source.offer.file, source.offer.version).build_requires
            requirements += [requirement for requirement in declared if self._target.wants(requirement)]
        undated = frozenset(canonicalize_name(r.name) for r in self._read(_INSTALLERS))
        book = self._book(undated=undated, exempt=keep.filenames, wheels_only=True)
        return self._resolve(list(dict.fromkeys(requirements)), [], book, keep)

    def _resolve(
        self, requirements: Sequence[Requirement], constraints: Sequence[Requirement], book: OfferBook, keep: _Keep
    ) -> list[Candidate]:
        """The packages; where some are to be kept, first those to be upgraded as if none were, then the rest around them."""
        self._prefetch(canonicalize_name(r.name) for r in requirements)
        bounds = [*constraints, *keep.bounds]
        chosen = self._search(requirements, bounds, book, {})
        if not keep.filenames:
            return chosen
        best = [Requirement(f"{c.project}=={c.offer.version}") for c in chosen if c.project in keep.upgrading]
        return self._search(requirements, [*bounds, *best], book, keep.preferred)

    def _search(
        self,
        requirements: Sequence[Requirement],
        constraints: Sequence[Requirement],
        book: OfferBook,
        preferred: Mapping[str, str],
    ) -> list[Candidate]:
        return resolve(
            requirements,
            constraints=constraints,
            target=self._target,
            book=book,
            reader=self._reader,
            prefetch=self._prefetch,
            on_pick=self._news,
            preferred=preferred,
            ignored=self._ignored,
        )

    def _book(self, *, undated: frozenset[str], exempt: frozenset[str], wheels_only: bool = False) -> OfferBook:
        return OfferBook(
            target=self._target,
            pages=lambda project: self._index.project_files(project, self._index_of.get(project, DEFAULT_INDEX)),
            exclude_newer=self.environment.exclude_newer,
            undated=undated,
            exempt=exempt,
            wheels_only=wheels_only,
        )

    def _prefetch(self, projects: Iterable[str]) -> None:
        for project in projects:
            self._index.prefetch([project], self._index_of.get(project, DEFAULT_INDEX))

    def _read(self, texts: Iterable[str]) -> list[Requirement]:
        """The requirements that hold on the target, doubles left out. Raises InvalidInputError for all unreadable ones."""
        found, problems = [], []
        for text in dict.fromkeys(texts):
            try:
                found.append(read_requirement(text))
            except ValueError as error:
                problems.append(Problem(where=self.environment.name, line=0, message=f"requirement {text!r}: {error}"))
        if problems:
            raise InvalidInputError(
                f"Requirements of {self.environment.name} cannot be read.",
                code="bad-requirement",
                hint="Correct the row in the matrix, or the recipe.",
                problems=problems,
            )
        return [requirement for requirement in found if self._target.wants(requirement)]

    def _artifacts(self, candidates: Sequence[Candidate]) -> tuple[Artifact, ...]:
        files = [candidate.offer.file for candidate in candidates]
        self._say(f"asking for the sizes of {len(files)} files")
        sizes = self._index.sizes(files)
        return tuple(
            Artifact(
                name=candidate.project,
                version=str(candidate.offer.version),
                filename=file.filename,
                sha256=file.sha256 or sha256_of(self._index.download(file, self._downloads / "unhashed", self._on_progress)),
                index=file.index,
                project=file.project,
                size=size,
            )
            for candidate, file, size in zip(candidates, files, sizes, strict=True)
        )

    def _news(self, candidate: Candidate) -> None:
        self._picked += 1
        self._on_progress(
            Progress(
                stage="lock",
                message=f"reading {candidate.project} {candidate.offer.version}",
                done=self._picked,
                unit="files",
            )
        )

    def _say(self, message: str, *, log: bool = False) -> None:
        self._on_progress(Progress(stage="lock", message=message, log=log))
