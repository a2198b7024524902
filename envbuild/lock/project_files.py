"""Find the files of each project of an environment: on an index, or pinned in the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.lock.target import read_requirement
from envbuild.model.environment import Framework, PinnedFile

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile

DEFAULT_INDEX = "default"


class Pages:
    """Queries package indexes for files. Files of a framework with a special index come from this index. All other files come
    from the indexes in pip's configuration.

    If a framework with a special index requires an exact version of a package, this package comes from the special index, too.
    Other indexes may have a different build of the same version. A file that the matrix pins must have the pinned hash on any
    index. If a special index cannot be reached, only the pinned files of the framework are offered.
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
        """The projects that come from the special index of a framework. The lock's date limit does not apply to their files."""
        return frozenset(self._elsewhere)

    def is_known(self, framework: Framework) -> bool:
        """Whether files of ``framework`` are known now. For a framework without a special index, the result is true without a
        query. If the configured index cannot be reached, a later query raises the error."""
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
        """Return all files that are offered for ``project``. Raises the errors of the index and of :func:`_checked`."""
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
        """Return a line for each malformed entry on the page of ``project``. Call :meth:`of` first."""
        framework = self._elsewhere.get(project)
        return (*self._index.skipped(project), *(self._index.skipped(project, framework.index) if framework else ()))

    def prefetch(self, projects: Iterable[str]) -> None:
        """Start to query several projects in parallel."""
        for project in projects:
            if project not in self._made:
                framework = self._elsewhere.get(project)
                self._index.prefetch([project], framework.index if framework else DEFAULT_INDEX)

    def sizes(self, files: Sequence[IndexFile]) -> list[int | None]:
        """Return the size of each file in bytes, or None if it is unknown."""
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
    """Return ``file`` with the matrix's hash. Raises :class:`BuildError` (``artifact-changed``) if the index states another
    hash."""
    pinned = next((each for each in framework.files if each.filename == file.filename), None)
    if pinned is None or file.sha256 == pinned.sha256:
        return file
    if file.sha256:
        raise BuildError(
            f"{file.filename} on {framework.index} is a different file than the pinned one: its sha256 is {file.sha256}, "
            f"but {pinned.source} says {pinned.sha256}.",
            code="artifact-changed",
            hint="Either the index replaced the file, or the document was always wrong. Find out which before you trust "
            "either.",
        )
    return replace(file, sha256=pinned.sha256)
