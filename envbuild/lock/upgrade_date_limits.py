"""Find the packages that `lock --upgrade` may choose past the environment's date limit, and the later limit of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envbuild.errors import UnknownNameError
from envbuild.lock.available_versions import OfferBook, VersionOffer, cutoff
from envbuild.lock.metadata import MetadataReader, UnusableFileError
from envbuild.lock.resolver import allowed
from envbuild.lock.target import Target

# Maps some projects to their own date limits. A limit is the first moment (ISO, UTC) that is too new, or empty for no limit.
DateLimits = Mapping[str, str]


class _Step(NamedTuple):
    """A version that the search will probably choose. ``day`` is the upload day of the upgraded package for which this version
    is needed."""

    offer: VersionOffer
    extras: frozenset[str]
    day: str


class UpgradeDateLimits:
    """Finds the packages that an upgrade past the date limit requires, and that must themselves be newer than this limit."""

    def __init__(
        self,
        book_of: Callable[[DateLimits], OfferBook],
        reader: MetadataReader,
        target: Target,
        *,
        ignored: Collection[str],
        constraints: Iterable[Requirement],
    ) -> None:
        self._book_of = book_of
        self._reader = reader
        self._target = target
        self._ignored = ignored
        self._bounds: dict[str, SpecifierSet] = {}
        for each in constraints:
            name = canonicalize_name(each.name)
            self._bounds[name] = self._bounds.get(name, SpecifierSet()) & each.specifier

    def of(self, upgrading: Sequence[Requirement]) -> dict[str, str]:
        """Return the projects that have no fitting version within the date limit, as a mapping from each project to its own
        limit. This limit is the first moment after the upload day of the upgraded package that requires the project, or empty
        for no limit.

        Projects with a fitting version keep the usual limit. For each package, only the requirements of its most likely version
        are followed. The search that follows may choose another version, within these limits.
        """
        later: dict[str, str] = {}
        book = self._book_of(later)
        steps = [step for each in upgrading if each.specifier and (step := self._first(book, each))]
        while steps:
            step = steps.pop()
            for required in self._requires(step):
                name = canonicalize_name(required.name)
                if name in later or self._fitting(book, required):
                    continue
                for moment in (cutoff(step.day), ""):
                    later[name] = moment
                    if found := self._first(self._book_of(later), required):
                        steps.append(found._replace(day=step.day))
                        break
                else:
                    del later[name]  # no version fits: the search will report the reason
        return later

    def _first(self, book: OfferBook, wanted: Requirement) -> _Step | None:
        for offer in self._fitting(book, wanted):
            step = _Step(offer, frozenset(map(canonicalize_name, wanted.extras)), offer.file.uploaded[:10])
            try:
                self._requires(step)
            except UnusableFileError:
                continue
            return step
        return None

    def _fitting(self, book: OfferBook, wanted: Requirement) -> list[VersionOffer]:
        name = canonicalize_name(wanted.name)
        try:
            return allowed(book.of(name), wanted.specifier & self._bounds.get(name, SpecifierSet()))
        except UnknownNameError:
            return []

    def _requires(self, step: _Step) -> list[Requirement]:
        declared = self._reader.read(step.offer.file, step.offer.version).requires
        followed = [each for each in declared if canonicalize_name(each.name) not in self._ignored]
        try:
            return [each for each in followed if self._target.wants(each, step.extras)]
        except InvalidRequirement as error:
            raise UnusableFileError(str(error)) from error
