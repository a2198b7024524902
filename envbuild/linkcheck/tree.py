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
        self._other_processors: set[str] = set()
        self.texts: dict[str, str] = {}
        for layer in layers:
            self._lay(layer)
        self._real_folders: dict[str, str | None] = {}
        self._targets: dict[str, str | None] = {}

    def _lay(self, layer: LayerFacts) -> None:
        if gone := {*layer.removed, *layer.opaque}:
            self._remove(gone, layer.opaque)
        if replaced := {path for path in (*layer.links, *layer.files) if path in self._folders}:
            self._remove(replaced, ())
        for path in layer.folders:
            if path in self._links or path in self._files:
                self._forget(path)
            self._add_folder(path)
        for path, target in layer.links.items():
            self._forget(path)
            self._links[path] = target
            self._add_folder(posixpath.dirname(path))
        for path in layer.files:
            self._forget(path)
            self._files[path] = layer.objects.get(path)
            self._add_folder(posixpath.dirname(path))
        self._other_processors.update(layer.other_processors)
        self.texts |= layer.texts

    def _add_folder(self, path: str) -> None:
        """Add a folder and its parents, because a layer may contain files without an entry for their folder."""
        while path not in self._folders:
            self._folders.add(path)
            path = posixpath.dirname(path)

    def _forget(self, path: str) -> None:
        self._links.pop(path, None)
        self._files.pop(path, None)
        self._other_processors.discard(path)
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
        found = self.target(path)
        return found if found in self._files else None

    def is_folder(self, path: str) -> bool:
        """Whether ``path`` leads to a folder. A relative path leads to none, as in :meth:`real`."""
        return self.target(path) in self._folders

    def target(self, path: str) -> str | None:
        """The path to which ``path`` leads, with all links resolved, whether something is there or not. None if the links
        form a cycle, and for a relative path."""
        if not path.startswith("/"):
            return None
        parent, base = posixpath.split(path)
        folder = self.folder(parent)
        return self._walk(folder, base, 0) if folder is not None else None

    def is_loop(self, path: str) -> bool:
        """Whether ``path`` is a link that leads back to itself. The folder of the path must exist."""
        parent, base = posixpath.split(path)
        folder, seen = self.folder(parent), set[str]()
        while folder is not None:
            at = posixpath.join(folder, base)
            if at not in self._links:
                return False
            if at in seen:
                return True
            seen.add(at)
            parent, base = posixpath.split(posixpath.join(folder, self._links[at]))
            folder = self.folder(parent)
        return False

    def facts(self, real: str) -> ElfFacts | None:
        """The facts of the ELF file at ``real``, a path without links."""
        return self._files.get(real)

    def is_for_other_processor(self, real: str) -> bool:
        """Whether the file at ``real``, a path without links, is an ELF file for another processor."""
        return real in self._other_processors

    def folder(self, path: str) -> str | None:
        """The path of a folder with all links resolved; None for a relative path, as in :meth:`real`."""
        if not path.startswith("/"):
            return None
        if path not in self._real_folders:
            self._real_folders[path] = self._walk("/", path, 0)
        return self._real_folders[path]

    def _walk(self, at: str, path: str, depth: int) -> str | None:
        """The path to which ``path`` leads from the folder ``at``, with all links resolved; None if the links form a cycle.

        As in Linux, ``..`` after a link to a folder leads to the parent of the folder itself, and not back to the link. A loop
        follows the folders from the top, because recursion could exceed Python's limit.
        """
        if path.startswith("/"):
            at = "/"
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if name != "..":
                found = self._enter(posixpath.join(at, name), depth)
            else:
                found = posixpath.dirname(at) if at in self._folders else None
            if found is None:
                return None
            at = found
        return at

    def _enter(self, path: str, depth: int) -> str | None:
        """Follow the link at ``path``. If no link is there, return ``path``."""
        if path not in self._links:
            return path
        if path not in self._targets:
            if depth > _MOST_LINKS:
                return None
            self._targets[path] = self._walk(posixpath.dirname(path), self._links[path], depth + 1)
        return self._targets[path]


def folder_of_packages(path: str) -> str:
    """The site-packages or dist-packages folder that contains this file, with a slash at its end; empty if there is none."""
    for name in _PACKAGES:
        before, mark, _ = path.partition(name)
        if mark:
            return before + mark
    return ""
