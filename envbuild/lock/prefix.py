"""Lock one prefix: choose its packages; pin their files, and the tools that install or build the packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.errors import ConflictError, InvalidInputError, Problem, UnknownNameError
from envbuild.files import sha256_of
from envbuild.lock.available_versions import OfferBook
from envbuild.lock.installers import BUILDERS, INSTALLERS, backend_of, path_of
from envbuild.lock.metadata import MetadataReader
from envbuild.lock.project_files import Pages
from envbuild.lock.resolver import PackageCandidate, resolve
from envbuild.lock.target import Target, read_requirement
from envbuild.lock.upgrade_date_limits import DateLimits, UpgradeDateLimits
from envbuild.lock.user_packages import choose
from envbuild.model.environment import Environment, Framework, PrefixPlan
from envbuild.model.lock import Artifact, Prefix
from envbuild.model.progress import OnProgress, Progress

if TYPE_CHECKING:
    from envbuild.index.client import Index

# Maps the name of a framework to names or requirements of packages, such as the requirements of its recipe. These names and
# requirements apply to the prefix that contains the framework.
ByFramework = Mapping[str, Sequence[str]]
_NONE_LATER: DateLimits = {}


class _Keep:
    """The pins of an earlier lock that should stay, and the projects whose versions are chosen again."""

    def __init__(self, artifacts: Sequence[Artifact], upgrading: Sequence[Requirement]) -> None:
        self.upgrading = frozenset(canonicalize_name(requirement.name) for requirement in upgrading)
        self.bounds = [requirement for requirement in upgrading if requirement.specifier]
        self.preferred = {a.name: a.filename for a in artifacts if canonicalize_name(a.name) not in self.upgrading}

    @property
    def filenames(self) -> frozenset[str]:
        """The names of the files that should stay pinned."""
        return frozenset(self.preferred.values())

    def prefer(self, candidates: Sequence[PackageCandidate]) -> None:
        """Also prefer the files of ``candidates``, except the files of projects that are upgraded."""
        chosen = {c.project: c.offer.file.filename for c in candidates}
        self.preferred |= {name: filename for name, filename in chosen.items() if name not in self.upgrading}


class PrefixMaker:
    """Locks the packages of one prefix. The object holds the state that the steps share."""

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
        self._name, self._path = plan.name, path_of(whole, plan)
        self.environment = environment = whole.part(plan)
        self._ignored = frozenset(canonicalize_name(name) for f in environment.frameworks for name in ignored.get(f.name, ()))
        self._own = whole.custom if plan == whole.plans()[0] else None
        self._index = index
        self._downloads = downloads
        self._on_progress = on_progress
        self._target = Target(python=environment.python.version, glibc=environment.system.glibc)
        self._reader = MetadataReader(index, downloads, on_progress)
        from_index = [f for f in environment.frameworks if not {"repository", "distribution"} & f.options.keys()]
        self._pages = Pages(index, from_index)
        for pinned in (pinned for framework in from_index for pinned in framework.files):
            self._reader.know(pinned.sha256, pinned.requires)
        self._picked = 0
        self._skipped: set[str] = set()

    def is_known(self, framework: Framework) -> bool:
        """Whether the files of ``framework`` are known now, from its index or from the matrix."""
        return self._pages.is_known(framework)

    def make(
        self,
        frameworks: Sequence[Framework],
        recipe_requirements: ByFramework,
        *,
        pins: Mapping[str, Artifact] | None = None,
        like: Prefix | None = None,
        upgrading: Sequence[Requirement] = (),
    ) -> Prefix:
        """Return the prefix with the packages of ``frameworks`` and of the recipes, and with the tools that install or build
        them.

        ``pins`` maps package names to locked files. Such a file changes only if the bound of a matrix row excludes it. Files of
        ``like``, an earlier prefix, change only if necessary. The projects in ``upgrading`` change whenever a better version is
        offered.
        """
        pins = pins or {}
        for note in self._index.notes:
            self._say(note, log=True)
        recipes = [text for f in self.environment.frameworks for text in recipe_requirements.get(f.name, ())]
        wheels = [wheel.requirement for wheel in self.environment.cuda_wheels()]
        asked = self._read([text for f in frameworks for text in f.requirements] + recipes + wheels)
        added = self._read(self._own.requirements()) if self._own else []
        constraints = self._bounds(frameworks)
        pins = {name: pin for name, pin in pins.items() if _allows(constraints, pin)}
        constraints += [Requirement(f"{pin.name}=={pin.version}") for pin in pins.values()]
        self._say(f"choosing versions of {', '.join(sorted({str(r) for r in [*asked, *added]}))}")
        undated = [f.package for f in frameworks] + [r.name for r in (*upgrading, *self._read(wheels)) if r.specifier]
        undated += self._own.newer if self._own else ()
        keep = _Keep(like.artifacts if like else (), upgrading)
        free = self._pages.elsewhere | set(map(canonicalize_name, undated))
        book = self._with_upgrade_limits(
            lambda later: self._book(undated=free, exempt=keep.filenames, later=later), constraints, keep
        )

        def search(wanted: Sequence[Requirement]) -> list[PackageCandidate]:
            return self._resolve(wanted, constraints, book, keep)

        chosen = choose(asked, (), search, self.environment)
        frameworks_own = frozenset(candidate.project for candidate in chosen)
        if added:
            # The first resolution was without the user's packages. Its result is preferred now, so that the user's packages
            # change as few of the frameworks' packages as possible.
            keep.prefer(chosen)
            chosen = choose(asked, added, search, self.environment)
        backend = backend_of(self.environment.python.version)
        tools = self._tools(
            chosen, list(INSTALLERS) if backend == "pip" else [], _Keep(like.build_artifacts if like else (), upgrading)
        )
        return Prefix(
            name=self._name,
            path=self._path,
            python=self.environment.python,
            frameworks=tuple(f.name for f in frameworks),
            backend=backend,
            artifacts=tuple(
                replace(pins.get(artifact.name, artifact), added=artifact.name not in frameworks_own)
                for artifact in self._artifacts(chosen)
            ),
            build_artifacts=self._artifacts(tools),
        )

    def _bounds(self, present: Sequence[Framework]) -> list[Requirement]:
        """Return the version bounds in the rows of all frameworks of the prefix, even of frameworks that are not in
        ``present``.

        A framework is not present if its index cannot be reached. It is added to this lock later, so no pin may violate its
        row.
        """
        constraints = self._read([text for f in self.environment.frameworks for text in f.constraints])
        absent = [f for f in self.environment.frameworks if f not in present]
        later = self._read([text for f in absent for text in f.requirements])
        return constraints + [Requirement(f"{r.name}{r.specifier}") for r in later if r.specifier]

    def _tools(self, chosen: Sequence[PackageCandidate], installers: list[str], keep: _Keep) -> list[PackageCandidate]:
        """Return the installers and the build tools, only as wheels. The date limit applies to build tools, as it does to the
        packages that they build, but not to installers."""
        wanted = installers
        sources = [c for c in chosen if not c.offer.is_wheel]
        if sources:
            wanted = [*installers, *BUILDERS]
            self._say("built from source: " + ", ".join(f"{c.project} {c.offer.version}" for c in sources), log=True)
        if not wanted:
            return []
        requirements = self._read(wanted)
        for source in sources:
            declared = self._reader.read(source.offer.file, source.offer.version).build_requires
            requirements += [requirement for requirement in declared if self._target.wants(requirement)]
        undated = frozenset(canonicalize_name(r.name) for r in self._read(INSTALLERS))
        book = self._book(undated=undated, exempt=keep.filenames, wheels_only=True)
        try:
            return self._resolve(list(dict.fromkeys(requirements)), [], book, keep)
        except (ConflictError, UnknownNameError) as error:
            raise ConflictError(
                f"No build tools meet the requirements of the source archives: {error.message}",
                code="unsatisfiable",
                hint=error.hint,
                conflicts=error.conflicts,
                details=[f"built from source: {source.offer.file.filename}" for source in sources],
            ) from error

    def _resolve(
        self, requirements: Sequence[Requirement], constraints: Sequence[Requirement], book: OfferBook, keep: _Keep
    ) -> list[PackageCandidate]:
        """Choose the packages. If pins of an earlier lock are kept, two searches are needed. The first one chooses the upgraded
        packages without regard to these pins. The second one chooses all other packages to fit the upgraded ones."""
        self._pages.prefetch(canonicalize_name(r.name) for r in requirements)
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
    ) -> list[PackageCandidate]:
        return resolve(
            requirements,
            constraints=constraints,
            target=self._target,
            book=book,
            reader=self._reader,
            prefetch=self._pages.prefetch,
            on_pick=self._news,
            on_skip=self._skip,
            preferred=preferred,
            ignored=self._ignored,
        )

    def _with_upgrade_limits(
        self, book_of: Callable[[DateLimits], OfferBook], constraints: Sequence[Requirement], keep: _Keep
    ) -> OfferBook:
        """Return the available versions, including versions past the date limit that an upgrade requires. Report the projects
        of the versions past the limit."""
        limits = UpgradeDateLimits(
            book_of, self._reader, self._target, ignored=self._ignored, constraints=[*constraints, *keep.bounds]
        )
        later = limits.of(keep.bounds)
        if later:
            self._say(
                f"{', '.join(map(str, keep.bounds))} requires versions that were published after "
                f"{self.environment.exclude_newer}: {', '.join(sorted(later))}"
            )
        return book_of(later)

    def _book(
        self, *, undated: frozenset[str], exempt: frozenset[str], later: DateLimits = _NONE_LATER, wheels_only: bool = False
    ) -> OfferBook:
        return OfferBook(
            target=self._target,
            pages=self._pages.of,
            skipped=self._malformed,
            exclude_newer=self.environment.exclude_newer,
            undated=undated,
            exempt=exempt,
            later=later,
            wheels_only=wheels_only,
        )

    def _read(self, texts: Iterable[str]) -> list[Requirement]:
        """Parse requirements, and return those that apply to the target, without duplicates. Raises InvalidInputError for
        malformed ones."""
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

    def _artifacts(self, candidates: Sequence[PackageCandidate]) -> tuple[Artifact, ...]:
        files = [candidate.offer.file for candidate in candidates]
        self._say(f"looking up the sizes of {len(files)} files")
        sizes = self._pages.sizes(files)
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

    def _malformed(self, project: str) -> Sequence[str]:
        found = self._pages.skipped(project)
        if found:
            self._skip(f"the page of {project} has {len(found)} malformed entries, such as {found[0]}")
        return found

    def _skip(self, why: str) -> None:
        """Report that a file is left out. Each text is reported only once."""
        if why not in self._skipped:
            self._skipped.add(why)
            self._say(f"left out: {why}")

    def _news(self, candidate: PackageCandidate) -> None:
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


def _allows(constraints: Sequence[Requirement], pin: Artifact) -> bool:
    """Whether a locked file satisfies the version bounds on its project."""
    bounds = [each.specifier for each in constraints if canonicalize_name(each.name) == canonicalize_name(pin.name)]
    return all(bound.contains(pin.version, prereleases=True) for bound in bounds)
