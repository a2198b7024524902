"""The files of an image as a container sees them: all layers merged, and symbolic links followed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from envbuild.linkcheck.model import ElfFacts, LayerFacts

_PACKAGES = ("/site-packages/", "/dist-packages/")
_MOST_LINKS = 40  # links that are followed in one path, the same limit as in Linux


class Tree:
    """The merged files of all layers. Paths are absolute. :meth:`real` follows links."""

    def __init__(self, layers: Iterable[LayerFacts]) -> None:
        """``layers`` are in order, the lowest first."""
        self._links: dict[str, str] = {}
        self._files: dict[str, ElfFacts | None] = {}
        self._folders: set[str] = {"/"}
        self.texts: dict[str, str] = {}
        for layer in layers:
            self._lay(layer)
        self._real_folders: dict[str, str | None] = {}

    def _lay(self, layer: LayerFacts) -> None:
        if gone := {*layer.removed, *layer.opaque}:
            self._remove(gone, layer.opaque)
        for path in layer.folders:
            if path in self._links or path in self._files:
                self._forget(path)
            self._folders.add(path)
        for path, target in layer.links.items():
            if path in self._folders:
                self._remove({path}, ())
            self._forget(path)
            self._links[path] = target
        for path in layer.files:
            self._forget(path)
            self._files[path] = layer.objects.get(path)
        self.texts |= layer.texts

    def _forget(self, path: str) -> None:
        self._links.pop(path, None)
        self._files.pop(path, None)
        self.texts.pop(path, None)

    def _remove(self, gone: set[str], emptied: Iterable[str]) -> None:
        """Remove the paths ``gone`` and everything below them. Of the folders ``emptied``, only the content is removed."""
        kept = set(emptied)

        def is_gone(path: str) -> bool:
            while path != "/":
                if path in gone and path not in kept:
                    return True
                path = posixpath.dirname(path)
                if path in gone:
                    return True
            return "/" in gone

        for path in [each for each in (*self._files, *self._links, *self.texts) if is_gone(each)]:
            self._forget(path)
        self._folders -= {each for each in self._folders if each != "/" and is_gone(each)}

    def objects(self) -> Iterator[tuple[str, ElfFacts]]:
        """All ELF files, sorted by path."""
        for path in sorted(self._files):
            facts = self._files[path]
            if facts is not None:
                yield path, facts

    def paths(self) -> Iterator[str]:
        """The paths of all files and links, in any order."""
        yield from self._files
        yield from self._links

    def real(self, path: str) -> str | None:
        """The path of the file to which ``path`` leads; None if it leads to no file.

        A relative path leads to no file, because its meaning depends on the folder in which a program is started.
        """
        return self._follow(_normal(path), 0) if path.startswith("/") else None

    def facts(self, real: str) -> ElfFacts | None:
        """The facts of the ELF file at ``real``, a path without links."""
        return self._files.get(real)

    def _follow(self, path: str, depth: int) -> str | None:
        if depth > _MOST_LINKS:
            return None
        parent, base = posixpath.split(path)
        if parent != "/":
            folder = self._folder(parent, depth)
            if folder is None:
                return None
            path = posixpath.join(folder, base)
        if path in self._links:
            return self._follow(_normal(posixpath.join(posixpath.dirname(path), self._links[path])), depth + 1)
        return path if path in self._files else None

    def _folder(self, path: str, depth: int) -> str | None:
        """The path of a folder with all links resolved; None if the links form a cycle.

        A loop follows the folders from the top, because recursion could exceed Python's limit.
        """
        below: list[str] = []
        while path != "/" and path not in self._real_folders:
            below.append(path)
            path = posixpath.dirname(path)
        found = "/" if path == "/" else self._real_folders[path]
        if below and depth > _MOST_LINKS:
            return None
        for path in reversed(below):
            if found is not None:
                folder, found = found, posixpath.join(found, posixpath.basename(path))
                if found in self._links:
                    found = self._folder(_normal(posixpath.join(folder, self._links[found])), depth + 1)
            self._real_folders[path] = found
        return found

    def folder(self, path: str) -> str | None:
        """The path of a folder with all links resolved; None for a relative path, as in :meth:`real`."""
        return self._folder(_normal(path), 0) if path.startswith("/") else None


def _normal(path: str) -> str:
    """An absolute path without ``.`` and ``..``. ``normpath`` alone would keep two slashes at the start."""
    return "/" + posixpath.normpath(path).lstrip("/")


def folder_of_packages(path: str) -> str:
    """The site-packages or dist-packages folder that contains this file, with a slash at its end; empty if there is none."""
    for name in _PACKAGES:
        before, mark, _ = path.partition(name)
        if mark:
            return before + mark
    return ""
