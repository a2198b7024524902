"""The files that each project of an environment offers: on its index, or pinned by the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.lock.target import read_requirement
from envbuild.model import Framework, PinnedFile

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile

DEFAULT_INDEX = "default"


class Pages:
    """Asks the host's own index for all but the frameworks that have one of their own.

    With such a framework comes what is installed with it in an exact version: another index may have that version of another
    build. A file that the matrix pins has the hash that stands there, whatever index has it; where its index cannot be asked,
    the pinned files are all that is offered.
    """

    def __init__(self, index: Index, frameworks: Sequence[Framework]) -> None:
        self._index = index
        self._elsewhere = {
            project: framework
            for framework in frameworks
            if framework.index != DEFAULT_INDEX
            for project in (*_pinned_beside(framework), canonicalize_name(framework.package))
        }
        self._made: dict[str, list[IndexFile]] = {}

    @property
    def elsewhere(self) -> frozenset[str]:
        """The projects that are asked for on an index of their own: what stands there was published for what it serves."""
        return frozenset(self._elsewhere)

    def is_known(self, framework: Framework) -> bool:
        """Whether files of ``framework`` can be known now; what the host's own index says against it comes when it is asked."""
        if framework.index == DEFAULT_INDEX:
            return True
        project = canonicalize_name(framework.package)
        try:
            self._index.project_files(framework.package, framework.index)
        except BuildError as error:
            if error.code != "index-unreachable":
                raise
            self._made[project] = [_page_entry(framework, pinned) for pinned in framework.files]
            return bool(framework.files)
        return True

    def of(self, project: str) -> list[IndexFile]:
        """Every file that is offered of ``project``. Raises what the index raises, and what :func:`_checked` does."""
        if project in self._made:
            return self._made[project]
        framework = self._elsewhere.get(project)
        if framework is None:
            return self._index.project_files(project)
        try:
            return [_checked(file, framework) for file in self._index.project_files(project, framework.index)]
        except UnknownNameError:
            if project == canonicalize_name(framework.package):
                raise
            return self._index.project_files(project)

    def skipped(self, project: str) -> Sequence[str]:
        """What of the page of ``project`` is malformed and was left out, a line each; :meth:`of` has been asked."""
        framework = self._elsewhere.get(project)
        return (*self._index.skipped(project), *(self._index.skipped(project, framework.index) if framework else ()))

    def prefetch(self, projects: Iterable[str]) -> None:
        """Start asking for several projects at once."""
        for project in projects:
            if project not in self._made:
                framework = self._elsewhere.get(project)
                self._index.prefetch([project], framework.index if framework else DEFAULT_INDEX)

    def sizes(self, files: Sequence[IndexFile]) -> list[int | None]:
        """The size of each in bytes; None if nobody who can be asked knows."""
        asked = [file for file in files if file.project not in self._made]
        known = iter(self._index.sizes(asked))
        return [next(known) if file.project not in self._made else None for file in files]


def _pinned_beside(framework: Framework) -> Iterator[str]:
    for text in framework.requirements:
        requirement = read_requirement(text)
        if any(bound.operator == "==" and not bound.version.endswith(".*") for bound in requirement.specifier):
            yield canonicalize_name(requirement.name)


def _page_entry(framework: Framework, pinned: PinnedFile) -> IndexFile:
    from envbuild.index.project_pages import IndexFile

    url = f"{framework.index.rstrip('/')}/{pinned.filename}"
    project = canonicalize_name(framework.package)
    return IndexFile.pinned(url, pinned.filename, pinned.sha256, index=framework.index, project=project)


def _checked(file: IndexFile, framework: Framework) -> IndexFile:
    """``file`` with the hash that the matrix pins. Raises :class:`BuildError` (``artifact-changed``) if it has another."""
    pinned = next((each for each in framework.files if each.filename == file.filename), None)
    if pinned is None or file.sha256 == pinned.sha256:
        return file
    if file.sha256:
        raise BuildError(
            f"{file.filename} is another file on {framework.index} than the one that the matrix pins: "
            f"sha256 {file.sha256}, not {pinned.sha256} as {pinned.source} says.",
            code="artifact-changed",
            hint="It was replaced there, or never was what that document says: find out which before you trust either.",
        )
    return replace(file, sha256=pinned.sha256)
