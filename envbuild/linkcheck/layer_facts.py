"""Read the facts of one layer from its tar file, and store them under the layer's diff id."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import posixpath
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

from envbuild import files
from envbuild.errors import VerifyError
from envbuild.linkcheck import elf_facts
from envbuild.linkcheck.elf_facts import Wanted
from envbuild.linkcheck.model import ElfFacts, LayerFacts

_FORMAT = 9  # increase this number when other facts are read, so that stored facts are ignored
_PIECE = 1 << 20
_TEXTS = ("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/os-release", "/usr/lib/os-release")
_LARGEST_TEXT, _LARGEST_KEPT = 4 << 20, 1 << 30
_MOST_FILES = 2_000_000
_LARGEST_IN_MEMORY = 64 << 20
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


class LayerFactStore:
    """Stores the facts of layers in a folder, one file for each layer and set of patterns. Facts for other patterns are in
    other files."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        patterns = "\0".join(str(each.pattern) for each in wanted)
        self._folder = folder
        self._rules = hashlib.sha256(f"{_FORMAT}\0{patterns}".encode()).hexdigest()[:12]

    def find(self, diff_id: str) -> LayerFacts | None:
        """The stored facts of the layer; None if no readable facts are stored."""
        try:
            packed = files.read_bytes(self._file(diff_id), _LARGEST_KEPT)
            told = json.loads(zlib.decompress(packed))
            told["objects"] = {path: _elf(each) for path, each in told["objects"].items()}
            return LayerFacts(**told)
        except (OSError, ValueError, TypeError, AttributeError, LookupError, zlib.error):
            return None

    def has(self, diff_id: str) -> bool:
        """Whether facts of the layer are stored."""
        return self._file(diff_id).exists()

    def keep(self, diff_id: str, facts: LayerFacts) -> None:
        """Store the facts of a layer."""
        told = asdict(facts)
        told["objects"] = {path: _short(each) for path, each in told["objects"].items()}
        with contextlib.suppress(OSError):  # if the cache folder is full or read-only, this only costs time later
            files.write_atomic(self._file(diff_id), zlib.compress(json.dumps(told).encode(), 3))

    def _file(self, diff_id: str) -> Path:
        return self._folder / f"{diff_id.removeprefix('sha256:')}-{self._rules}.json.z"


def _elf(told: dict[str, Any]) -> ElfFacts:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    if "versions" in values:
        values["versions"] = {name: tuple(each) for name, each in told["versions"].items()}
    return ElfFacts(**values)


_EMPTY = ElfFacts()


def _short(told: dict[str, Any]) -> dict[str, Any]:
    return {each.name: told[each.name] for each in fields(ElfFacts) if told[each.name] != getattr(_EMPTY, each.name)}


def read(
    pieces: Iterable[bytes], wanted: Wanted, name: str, on_file: Callable[[int], None], *, folder: Path | None = None
) -> LayerFacts:
    """Return the facts of a layer of the image ``name``. ``pieces`` are the bytes of the layer's tar file. They are read to the
    end.

    ``on_file`` is called with the size of each file. An ELF file of more than 64 MB becomes a temporary file in ``folder``;
    smaller files stay in memory. Raises :class:`VerifyError` (``layer-damaged``) if the bytes are not a tar file.
    """
    facts = LayerFacts()
    stream = io.BufferedReader(_Pieces(pieces), _PIECE)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE) as tar:
            for count, member in enumerate(tar):
                if count >= _MOST_FILES:
                    raise tarfile.ReadError(f"it has more than {_MOST_FILES} files")
                on_file(member.size)
                _add(facts, tar, member, wanted, folder)
                tar.members = []  # type: ignore[attr-defined]  # because tarfile would keep every member in memory
        for _ in elf_facts.pieces(stream, _PIECE):  # the sender may wait until all bytes are read
            pass
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise VerifyError(
            f"A layer of {name} cannot be read: {str(error)[:200] or type(error).__name__}.",
            code="layer-damaged",
            hint="Build or pull the image again.",
        ) from error
    return facts


def _add(facts: LayerFacts, tar: tarfile.TarFile, member: tarfile.TarInfo, wanted: Wanted, folder: Path | None) -> None:
    path = _normal(member.name)
    parent, base = posixpath.split(path)
    if base == _OPAQUE:
        facts.opaque.append(parent)
    elif base.startswith(_WHITEOUT):
        facts.removed.append(posixpath.join(parent, base.removeprefix(_WHITEOUT)))
    elif member.isdir():
        facts.folders.append(path)
    elif member.issym():
        facts.links[path] = member.linkname
    elif member.islnk():
        _alias(facts, path, _normal(member.linkname))
    elif member.isfile():
        facts.files.append(path)
        facts.objects.pop(path, None)  # of two files with one name, the second one counts
        _content(facts, tar, member, wanted, folder)


def _normal(name: str) -> str:
    """The absolute path of a name in a tar file. Some tools write names that begin with a slash."""
    return "/" + posixpath.normpath("/" + name).lstrip("/")


def _alias(facts: LayerFacts, path: str, target: str) -> None:
    """Give a hard link the facts of its target, which is a file in the same layer."""
    facts.files.append(path)
    if target in facts.objects:
        facts.objects[path] = facts.objects[target]
    if target in facts.other_processors:
        facts.other_processors.append(path)
    if target in facts.links:
        facts.links[path] = facts.links[target]
        facts.files.pop()


def _content(facts: LayerFacts, tar: tarfile.TarFile, member: tarfile.TarInfo, wanted: Wanted, folder: Path | None) -> None:
    path = _normal(member.name)
    is_text = path in _TEXTS or path.startswith("/etc/ld.so.conf")
    if member.size < 64 and not is_text:
        return
    content = tar.extractfile(member)
    if content is None:
        return
    if is_text:
        facts.texts[path] = content.read(_LARGEST_TEXT).decode("latin-1")
        return
    head = content.read(64)
    if not elf_facts.is_candidate(head):
        if elf_facts.is_for_other_processor(head):
            facts.other_processors.append(path)
        return
    with _seekable(head, content, member.size, folder) as stream:
        found = elf_facts.read(stream, member.size, wanted, posixpath.basename(path))
    if found is not None:
        facts.objects[path] = found


@contextlib.contextmanager
def _seekable(head: bytes, content: IO[bytes], size: int, folder: Path | None) -> Iterator[IO[bytes]]:
    """Yield the content of a file, in memory or as a temporary file. The temporary file has no name, so even a kill leaves
    nothing."""
    if size <= _LARGEST_IN_MEMORY:
        yield io.BytesIO(head + content.read())
        return
    with tempfile.TemporaryFile(dir=folder) as out:
        out.write(head)
        for piece in elf_facts.pieces(content, _PIECE):
            out.write(piece)
        out.flush()
        out.seek(0)
        yield out


class _Pieces(io.RawIOBase):
    """Turns pieces of bytes into a stream."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
