"""Choose one version of every package for the target, from the offered files, with resolvelib (which pip uses, too)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import resolvelib
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from resolvelib.resolvers import RequirementInformation

from envbuild.errors import Conflict, ConflictError, UnknownNameError
from envbuild.lock.available_versions import OfferBook, Offers, VersionOffer, version_of
from envbuild.lock.metadata import Metadata, MetadataReader, UnusableFileError
from envbuild.lock.target import Target

_MAX_ROUNDS = 20_000
# The maximum number of unusable files in one search. Each unusable file makes the search start again. An index with more of
# them is considered broken.
_MOST_UNUSABLE = 500


@dataclass(frozen=True, slots=True)
class _Key:
    project: str
    extras: frozenset[str]


@dataclass(frozen=True, slots=True)
class PackageCandidate:
    """One version of a project, with the extras that are requested from it."""

    project: str
    extras: frozenset[str]
    offer: VersionOffer


_Information = RequirementInformation[Requirement, PackageCandidate]


class _Provider(resolvelib.AbstractProvider[Requirement, PackageCandidate, _Key]):
    def __init__(
        self,
        *,
        target: Target,
        book: OfferBook,
        reader: MetadataReader,
        constraints: Mapping[str, SpecifierSet],
        preferred: Mapping[str, str],
        ignored: frozenset[str],
        prefetch: Callable[[Iterable[str]], None],
        on_pick: Callable[[PackageCandidate], None],
        on_skip: Callable[[str], None],
        roots: frozenset[str],
    ) -> None:
        self._target = target
        self._book = book
        self._reader = reader
        self._constraints = constraints
        self._preferred = preferred
        self._ignored = ignored
        self._prefetch = prefetch
        self._on_pick = on_pick
        self._on_skip = on_skip
        self._roots = roots
        self.unusable: dict[str, str] = {}

    def identify(self, requirement_or_candidate: Requirement | PackageCandidate) -> _Key:
        """Return the project with its extras. ``x[a]`` is resolved separately from ``x``, and depends on the same version of
        ``x``."""
        if isinstance(requirement_or_candidate, PackageCandidate):
            return _Key(requirement_or_candidate.project, requirement_or_candidate.extras)
        return _key(requirement_or_candidate)

    def get_preference(
        self,
        identifier: _Key,
        resolutions: Mapping[_Key, PackageCandidate],  # noqa: ARG002 - resolvelib passes all arguments by name
        candidates: Mapping[_Key, Iterator[PackageCandidate]],  # noqa: ARG002
        information: Mapping[_Key, Iterator[_Information]],
        backtrack_causes: Sequence[_Information],
    ) -> Any:
        """Return the sort key for the order in which projects are tried. First come projects that caused a conflict, then
        directly required projects, then projects with an exact pin, then projects with an upper bound, and then all others.
        Projects of the same kind are sorted by name."""
        asked = list(information[identifier])
        bounds = [specifier for found in asked for specifier in found.requirement.specifier]
        return (
            not any(self.identify(cause.requirement) == identifier for cause in backtrack_causes),
            all(found.parent is not None for found in asked),
            not any(bound.operator in ("==", "===") and not bound.version.endswith(".*") for bound in bounds),
            not any(bound.operator in ("<", "<=", "~=", "==") for bound in bounds),
            identifier.project,
            sorted(identifier.extras),
        )

    def find_matches(
        self,
        identifier: _Key,
        requirements: Mapping[_Key, Iterator[Requirement]],
        incompatibilities: Mapping[_Key, Iterator[PackageCandidate]],
    ) -> list[PackageCandidate]:
        """Return the versions that all requirements and constraints allow. The version with the preferred file comes first. The
        other versions follow, best first."""
        bounds = self._constraints.get(identifier.project, SpecifierSet())
        offers = self.offers(identifier.project)
        for requirement in requirements[identifier]:
            bounds &= requirement.specifier
        refused = {candidate.offer.version for candidate in incompatibilities[identifier]}
        preferred = self._preferred.get(identifier.project)
        fitting = [
            PackageCandidate(identifier.project, identifier.extras, offer)
            for offer in allowed(offers, bounds)
            if offer.version not in refused and offer.file.filename not in self.unusable
        ]
        return sorted(fitting, key=lambda candidate: candidate.offer.file.filename != preferred)

    def offers(self, project: str) -> Offers:
        """Return the offers of ``project``. If no index has the project, the offers are empty. But if the environment itself
        requires this project, the error of the index is raised."""
        try:
            return self._book.of(project)
        except UnknownNameError:
            if project in self._roots:
                raise
            return Offers(project=project, best_first=(), refused={"exist: no index has such a project": 0})

    def is_satisfied_by(self, requirement: Requirement, candidate: PackageCandidate) -> bool:
        """Whether the version fits. Pre-releases are accepted here, because :meth:`find_matches` has decided whether they are
        allowed."""
        return requirement.specifier.contains(candidate.offer.version, prereleases=True)

    def get_dependencies(self, candidate: PackageCandidate) -> list[Requirement]:
        """Return the declared dependencies that apply to the target, without ignored projects."""
        self._on_pick(candidate)
        declared = [r for r in self._metadata(candidate.offer).requires if canonicalize_name(r.name) not in self._ignored]
        try:
            wanted = [r for r in declared if self._target.wants(r, candidate.extras)]
        except InvalidRequirement as error:
            raise self._leave_out(candidate.offer, f"{candidate.offer.file.filename}: {error}") from error
        if remote := next((r for r in wanted if r.url), None):
            why = f"it requires {remote.name} from a fixed address, which no index offers"
            raise self._leave_out(candidate.offer, f"{candidate.offer.file.filename}: {why}")
        if candidate.extras:
            wanted.append(Requirement(f"{candidate.project}=={candidate.offer.version}"))
        self._prefetch(sorted({canonicalize_name(r.name) for r in wanted}))
        return wanted

    def _metadata(self, offer: VersionOffer) -> Metadata:
        try:
            metadata = self._reader.read(offer.file, offer.version)
            if not self._target.accepts_python(metadata.requires_python):
                raise UnusableFileError(f"{offer.file.filename}: it does not support Python {self._target.python}")
        except UnusableFileError as error:
            raise self._leave_out(offer, str(error)) from error
        return metadata

    def _leave_out(self, offer: VersionOffer, why: str) -> Exception:
        """Record that the file of ``offer`` is unusable, and return the error to raise. The error makes the search start again
        without this file. After too many unusable files, the error ends the search."""
        self.unusable[offer.file.filename] = why
        self._on_skip(why)
        if len(self.unusable) > _MOST_UNUSABLE:
            return ConflictError(
                f"More than {_MOST_UNUSABLE} files cannot be used; the last: {why}.",
                code="unsatisfiable",
                hint="The package index offers malformed files. Use another index, or limit the versions of the package "
                "in the matrix row.",
            )
        return UnusableFileError(why)


def resolve(
    requirements: Sequence[Requirement],
    *,
    constraints: Sequence[Requirement],
    target: Target,
    book: OfferBook,
    reader: MetadataReader,
    prefetch: Callable[[Iterable[str]], None],
    on_pick: Callable[[PackageCandidate], None],
    on_skip: Callable[[str], None] = lambda _: None,
    preferred: Mapping[str, str] | None = None,
    ignored: frozenset[str] = frozenset(),
) -> list[PackageCandidate]:
    """Return one candidate for each project, sorted by name. Together, the candidates satisfy ``requirements`` within
    ``constraints``.

    ``preferred`` maps projects to file names. Such a file is chosen even if the project has a better file. Requirements on the
    projects in ``ignored`` are not followed. The same pages and metadata give the same result. Raises :class:`ConflictError`
    (``unsatisfiable``) with the conflicting requirements.
    """
    bounds: dict[str, SpecifierSet] = {}
    for constraint in constraints:
        name = canonicalize_name(constraint.name)
        bounds[name] = bounds.get(name, SpecifierSet()) & constraint.specifier
    provider = _Provider(
        target=target,
        book=book,
        reader=reader,
        constraints=bounds,
        preferred=preferred or {},
        ignored=ignored,
        prefetch=prefetch,
        on_pick=on_pick,
        on_skip=on_skip,
        roots=frozenset(canonicalize_name(requirement.name) for requirement in requirements),
    )
    while True:
        resolver: resolvelib.Resolver[Requirement, PackageCandidate, _Key]
        resolver = resolvelib.Resolver(provider, resolvelib.BaseReporter())
        try:
            result = resolver.resolve(requirements, max_rounds=_MAX_ROUNDS)
        except UnusableFileError:
            continue  # the provider now leaves that file out, and still has the metadata of all others
        except resolvelib.ResolutionImpossible as error:
            raise _unsatisfiable(list(error.causes), provider, bounds) from error
        except resolvelib.ResolutionTooDeep as error:
            raise ConflictError(
                f"No compatible versions of the packages were found within {_MAX_ROUNDS} steps.",
                code="unsatisfiable",
                hint="To guide the search, add a constraint to the matrix row for the packages with many versions.",
            ) from error
        chosen = {candidate.project: candidate for candidate in result.mapping.values() if not candidate.extras}
        return [chosen[project] for project in sorted(chosen)]


def allowed(offers: Offers, bounds: SpecifierSet) -> list[VersionOffer]:
    """Return the offers within ``bounds``, in order. Pre-releases are included only if a bound names one, or if there is no
    other offer (PEP 440). Yanked files are included only for an exact pin (PEP 592)."""
    pinned = any(bound.operator in ("==", "===") and not bound.version.endswith(".*") for bound in bounds)
    fitting = [
        offer
        for offer in offers.best_first
        if bounds.contains(offer.version, prereleases=True) and (pinned or not offer.file.yanked)
    ]
    final = [offer for offer in fitting if not offer.version.is_prerelease]
    return final if final and not bounds.prereleases else fitting


def _key(requirement: Requirement) -> _Key:
    return _Key(canonicalize_name(requirement.name), frozenset(canonicalize_name(e) for e in requirement.extras))


def _unsatisfiable(causes: Sequence[_Information], provider: _Provider, bounds: Mapping[str, SpecifierSet]) -> ConflictError:
    conflicts = []
    for project in sorted({canonicalize_name(cause.requirement.name) for cause in causes}):
        for cause in causes:
            if canonicalize_name(cause.requirement.name) == project:
                conflicts.append(_conflict(cause))
        if project in bounds:
            conflicts.append(
                Conflict(row="constraints", reason=f"allow {project}{bounds[project]}", source=f"pkg:pypi/{project}")
            )
        conflicts.append(_what_there_is(provider.offers(project), provider.unusable))
    unique = list(dict.fromkeys(conflicts))
    clash = ", ".join(sorted({canonicalize_name(cause.requirement.name) for cause in causes}))
    return ConflictError(
        f"No versions of the packages are compatible: {clash}.",
        code="unsatisfiable",
        hint="To change this, edit the constraints or the date in the matrix row. The lines above show which requirements "
        "conflict.",
        conflicts=unique,
    )


def _conflict(cause: _Information) -> Conflict:
    wanted = f"{cause.requirement.name}{cause.requirement.specifier}"
    if cause.parent is None:
        return Conflict(
            row="requirements", reason=f"ask for {wanted}", source=f"pkg:pypi/{canonicalize_name(cause.requirement.name)}"
        )
    parent = f"{cause.parent.project}@{cause.parent.offer.version}"
    return Conflict(
        row=f"{cause.parent.project} {cause.parent.offer.version}", reason=f"requires {wanted}", source=f"pkg:pypi/{parent}"
    )


def _what_there_is(offers: Offers, unusable: Mapping[str, str]) -> Conflict:
    versions = [str(offer.version) for offer in offers.best_first]
    shown = ", ".join(versions[:8]) + (" …" if len(versions) > 8 else "")
    left_out = [f"{count or 'no'} files {why}" for why, count in sorted(offers.refused.items())]
    left_out += [why for name, why in sorted(unusable.items()) if version_of(name, offers.project)]
    return Conflict(
        row=offers.project,
        reason=(f"offers {shown}" if versions else "has no suitable version")
        + (f" ({'; '.join(left_out)})" if left_out else ""),
        source=f"pkg:pypi/{offers.project}",
    )
