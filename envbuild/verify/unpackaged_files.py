"""Checks files that belong to no package: an unpacked Python or CUDA, and files that were compiled outside of any package.

The build step that installs such files writes a list of them, with their sha256, into the image below
``/opt/envbuild/installed``. This list is compared with the files in the image's layers. No program of the image runs for this
comparison, because the interpreter itself may have been changed.

The build checked the unpacked archives by the hashes in the lock. So this comparison proves that no later step changed the
files. Each file must have the listed hash, and there must be no other files. A later step that replaced both a file and its
list would write both a second time, into another layer. So no listed file and no list may occur in two layers.

The comparison does not prove that envbuild's own step installed the files: an image from another Dockerfile, or with only one
layer, may contain any list.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from envbuild.model.lock import Lock
from envbuild.verify.findings import Findings

if TYPE_CHECKING:
    from envbuild.engine.model import LayerFile

FOLDER = "/opt/envbuild/installed"
_PIECE = 4 << 20
_GONE, _REPLACED = ".wh.", ".wh..wh..opq"  # https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
_BYTECODE = re.compile(r"(?P<folder>.*)/__pycache__/(?P<name>[^/]+?)\.[^./]+(\.opt-\d)?\.pyc")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileList:
    """One list: the sha256 of each file, and the target of each link. If ``folder`` is set, this folder must contain nothing
    else."""

    folder: str
    files: Mapping[str, str]
    links: Mapping[str, str]

    def __contains__(self, path: str) -> bool:
        return path in self.files or path in self.links

    def __len__(self) -> int:
        return len(self.files) + len(self.links)


def candidates(lock: Lock) -> dict[str, str]:
    """The lists that the image of ``lock`` may contain, as a mapping from the name of a list to its folder. The folder is empty
    if the lock does not name it."""
    environment = lock.environment
    pythons = [prefix.python for prefix in lock.prefixes if prefix.python.is_fetched]
    found = {f"python-{each.version}": str(PurePosixPath(each.executable).parent.parent) for each in pythons}
    if environment.base.files:
        found["cuda"] = f"/usr/local/cuda-{environment.cuda}"
    if any(prefix.pip for prefix in lock.prefixes):
        found["overlay"] = "/opt/envbuild/overlay"
    return found | {framework.name: "" for framework in environment.frameworks if framework.options.get("repository")}


def expected(lock: Lock, distributions: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The lists that the image must contain, in the form of :func:`candidates`. If a framework is built from a repository and
    is an installed Python package, it has no list.

    ``distributions`` maps the path of each prefix to the canonical names of the Python packages that are installed in this
    prefix.
    """
    from packaging.utils import canonicalize_name

    packaged = {
        framework.name
        for prefix in lock.prefixes
        for framework in lock.environment.frameworks
        if framework.name in prefix.frameworks and canonicalize_name(framework.package) in distributions.get(prefix.path, ())
    }
    return {name: folder for name, folder in candidates(lock).items() if name not in packaged}


def parse(content: bytes) -> FileList:
    """Parse a list, which has lines ``SHA256  PATH``, ``link TARGET  PATH`` and ``folder PATH``."""
    folder, files, links = "", dict[str, str](), dict[str, str]()
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        about, _, path = line.partition("  ")
        word, _, rest = about.partition(" ")
        if path and word == "link":
            links[path] = rest
        elif path:
            files[path] = word
        elif word == "folder":
            folder = rest
    return FileList(folder=folder, files=files, links=links)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What one layer has at a listed path. ``what`` is the sha256 of a file or the target of a link; it is None if it was not
    read."""

    layer: str
    kind: str
    what: str | None


class Layers:
    """Receives every entry of every layer, and compares the entries with the lists of the image."""

    def __init__(self, lists: Mapping[str, FileList]) -> None:
        self._lists = lists
        self._seen: dict[str, list[_Seen]] = {}
        self._strangers: list[tuple[str, str]] = []
        self._watched = {f"{FOLDER}/{name}" for name in lists}.union(*({*each.files, *each.links} for each in lists.values()))
        self._folders = tuple(f"{each.folder}/" for each in lists.values() if each.folder)
        # An entry that removes a folder is beside this folder, or beside one of its parents.
        self._above = {str(parent) for path in self._folders for parent in (PurePosixPath(path), *PurePosixPath(path).parents)}

    def __bool__(self) -> bool:
        return bool(self._lists)

    def see(self, entry: LayerFile) -> None:
        """Receive one entry of one layer."""
        folder, _, name = entry.path.rpartition("/")
        taken = f"{folder}/{name.removeprefix(_GONE)}"
        if name.startswith(_GONE) and name != _REPLACED and (taken in self._watched or taken in self._above):
            self._seen.setdefault(taken, []).append(_Seen(layer=entry.layer, kind="gone", what=""))
        elif entry.path in self._watched:
            self._seen.setdefault(entry.path, []).append(_Seen(layer=entry.layer, kind=entry.kind, what=self._read(entry)))
        elif entry.kind != "folder" and entry.path.startswith(self._folders):
            self._strangers.append((entry.path, entry.layer))

    def _read(self, entry: LayerFile) -> str | None:
        if entry.kind != "file":
            return entry.target
        calculated = hashlib.sha256()
        with entry.open() as stream:
            for piece in iter(functools.partial(stream.read, _PIECE), b""):
                calculated.update(piece)
        return calculated.hexdigest()

    def compare(self, found: Findings) -> None:
        """Report every difference between the lists and the layers."""
        for name, one in self._lists.items():
            about: dict[str, list[dict[str, str]]] = {}
            for path in (f"{FOLDER}/{name}", *one.files, *one.links):
                if difference := self._difference(path, one):
                    about.setdefault(difference, []).append({"path": path, "of": name})
            for difference, items in about.items():
                found.files(difference, items, one.folder or name)
            self._compare_folder(name, one, found)
            found.count("listed_files", len(one))

    def _difference(self, path: str, one: FileList) -> str:
        seen = self._seen.get(path, [])
        # In the older format of `docker save`, the layers are sorted by their ids, not by the steps of the build. So the order
        # is unknown, and entries are counted: a file that was removed as often as it was written is missing.
        removed = sum(each.kind == "gone" for each in seen)
        if len(seen) <= 2 * removed:
            return "missing"
        if len(seen) > 1:
            return "was overwritten by a later step"
        (it,) = seen
        if it.kind == "hardlink":  # its content is that of another file in the same layer
            it = next((other for other in self._seen.get(it.what or "", []) if other.layer == it.layer), it)
        wanted = {"link": one.links, "file": one.files}.get(it.kind, {}).get(path)
        same = path not in one or (wanted is not None and it.what in (wanted, None))
        return "" if same else "modified since it was installed"

    def _compare_folder(self, name: str, one: FileList, found: Findings) -> None:
        if not one.folder:
            return
        own = {seen.layer for seen in self._seen.get(f"{FOLDER}/{name}", [])}
        for parent in (one.folder, *map(str, PurePosixPath(one.folder).parents)):
            if any(seen.layer not in own for seen in self._seen.get(parent, [])):
                found.wrong(parent, "was removed by a later step")
        others = [
            {"path": path}
            for path, layer in self._strangers
            if path.startswith(f"{one.folder}/")
            and not (path.endswith(f"/{_REPLACED}") and layer in own)
            and not _is_bytecode_of(path, one)
        ]
        found.files("was not there after the installation", others, one.folder)


def _is_bytecode_of(path: str, one: FileList) -> bool:
    """Whether ``path`` is the bytecode of a listed source. Python itself writes bytecode, so only the source is compared."""
    match = _BYTECODE.fullmatch(path)
    return match is not None and f"{match['folder']}/{match['name']}.py" in one


def compare_presence(wanted: Mapping[str, str], lists: Mapping[str, FileList], found: Findings) -> None:
    """Check that every required list exists, and that it is about the folder that the lock names."""
    for name, folder in wanted.items():
        where = f"{FOLDER}/{name}"
        if name not in lists:
            found.wrong(where, "missing, so the installed files are not known")
        elif not len(lists[name]):
            found.wrong(where, "lists no files")
        elif folder and lists[name].folder != folder:
            found.wrong(where, f"is about another folder than {folder}")
