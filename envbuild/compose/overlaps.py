"""Handles paths at which several wheels have a file. The right file is the file of the wheel that an installer installs last.

The layers are ordered by the size of the wheels, so that huge wheels are loaded first. But installers order packages by step
and name. So a wrong file may be in a higher layer than the right file. The lists of files in the layers show which paths two
layers share. If the right file is in a lower layer than a wrong file, the right file is written once more, into a layer on top
of all others. Such files are few.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import posixpath
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from envbuild.compose import estargz
from envbuild.compose.bytecode import source_of
from envbuild.compose.layer import LayerWriter
from envbuild.compose.layer_plan import Wheel, WheelLayer
from envbuild.compose.members import COMPRESSOR, PIECE, Sink, write_piece
from envbuild.compose.model import Layer
from envbuild.compose.store import LayerStore
from envbuild.compose.unpack import DamagedError, unpacked
from envbuild.errors import BuildError

TITLE = "the files that win among packages with the same path"
_RULES = f"overlaps 1, {COMPRESSOR}"
_BLOCK = 512
_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"

Files = Mapping[str, Mapping[str, Any]]  # the list of files of a layer: path in the tar → entry of the list


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """A layer that has been made, with its plan and its list of files."""

    plan: WheelLayer
    layer: Layer
    files: Files


@dataclass(frozen=True, slots=True)
class _FileOfLayer:
    """A file of a layer, to be copied into another layer. ``told`` is the file's entry in the layer's list of files."""

    blob: Path
    told: Mapping[str, Any]

    @property
    def size(self) -> int:
        return int(self.told.get("size", 0))

    @property
    def sha256(self) -> str:
        return ""

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        for piece in self.pieces():
            write_piece(piece, packed, unpacked)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content. At the end, raises :class:`BuildError` (``layer-damaged``) if the hash of the content differs from
        the hash in the list of files."""
        digest = hashlib.sha256()
        try:
            for piece in _content(self.blob, int(self.told.get("offset", 0)), self.size):
                digest.update(piece)
                yield piece
        except DamagedError as error:
            raise _damaged(self.blob, str(self.told["name"])) from error
        if self.size and f"sha256:{digest.hexdigest()}" != self.told["digest"]:
            raise _damaged(self.blob, str(self.told["name"]))


def _damaged(blob: Path, what: str) -> BuildError:
    return BuildError(
        f"{what} in the layer sha256:{blob.name} is damaged.",
        code="layer-damaged",
        hint="Run `envbuild cache verify`, which removes damaged layers. Then run this command again: it makes the removed "
        "layers again.",
    )


def layer_on_top(plans: Sequence[WheelLayer], layers: Sequence[Layer], store: LayerStore) -> Layer | None:
    """Make the layer on top of ``layers``; None if it would be empty. ``plans`` has the plan of each layer, in the same order.

    All plans are of one prefix. Their wheels have ranks in the order of installation. If two wheels have a file at the same
    path, the file of the wheel with the higher rank wins.
    """
    made = [
        _Made(plan=plan, layer=layer, files=_listed(store.blob(layer.digest, layer.size)))
        for plan, layer in zip(plans, layers, strict=True)
    ]
    winners = dict(_winners(made, store))
    if not winners:
        return None
    told = [_RULES, [[path, made[at].files[path]] for path, at in sorted(winners.items())]]
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    files = {path: (store.blob(made[at].layer.digest), made[at].files[path]) for path, at in winners.items()}
    return store.add(key, functools.partial(_write, files=files), about=TITLE)


def _write(stream: BinaryIO, *, files: Mapping[str, tuple[Path, Mapping[str, Any]]]) -> Layer:
    writer = LayerWriter(stream)
    folders = {str(parent) for path in files for parent in _parents(path)}
    for path in sorted({*folders, *files}):
        if path in folders:
            writer.add_folder(f"/{path}")
        else:
            blob, told = files[path]
            writer.add_file(f"/{path}", _FileOfLayer(blob, told), is_executable=bool(told["mode"] & 0o111))
    return writer.close()


def _parents(path: str) -> Iterator[str]:
    above = path.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def _winners(made: Sequence[_Made], store: LayerStore) -> Iterator[tuple[str, int]]:
    """Yield the paths at which a file of a lower layer must win, each with the index of that layer in ``made``."""
    holders: dict[str, list[int]] = {}
    for number, each in enumerate(made):
        for path in each.files:
            holders.setdefault(path, []).append(number)
    ranks = _Ranks(made, store)
    for path, numbers in holders.items():
        if len({(str(made[at].files[path].get("digest")), made[at].files[path]["mode"]) for at in numbers}) > 1:
            winner = max(numbers, key=lambda at: ranks.of(at, path))
            if winner != numbers[-1]:
                yield path, winner


class _Ranks:
    """Finds the wheel of a file in a layer, and the rank of this wheel in the order of installation."""

    def __init__(self, made: Sequence[_Made], store: LayerStore) -> None:
        self._made = made
        self._store = store
        self._records: dict[Wheel, Collection[str]] = {}

    def of(self, number: int, path: str) -> int:
        """The rank of the wheel that installed the file at ``path`` in layer ``number``."""
        wheels = self._made[number].plan.wheels
        if len(wheels) > 1:
            wanted = {path, source_of(path)} if path.endswith(".pyc") else {path}
            wheels = tuple(wheel for wheel in wheels if wanted & set(self._record(wheel, number))) or wheels
        return max(wheel.rank for wheel in wheels)

    def _record(self, wheel: Wheel, number: int) -> Collection[str]:
        """The paths in the RECORD of the installed wheel."""
        if wheel not in self._records:
            self._records[wheel] = frozenset(self._read_record(wheel, self._made[number].plan))
        return self._records[wheel]

    def _read_record(self, wheel: Wheel, plan: WheelLayer) -> Iterator[str]:
        name, version = (re.sub(r"[-_.]+", "-", part).lower() for part in wheel.filename.split("-")[:2])
        site = f"{plan.prefix.path}/lib/python{plan.prefix.python.version}/site-packages".lstrip("/")
        for each in self._made:
            if each.plan.prefix != plan.prefix or wheel not in each.plan.wheels:
                continue
            for path, told in each.files.items():
                folder, _, file = path.removeprefix(f"{site}/").partition("/")
                own = re.sub(r"[-_.]+", "-", folder.removesuffix(".dist-info")).lower()
                if file == "RECORD" and folder.endswith(".dist-info") and own == f"{name}-{version}":
                    blob = self._store.blob(each.layer.digest)
                    text = b"".join(_FileOfLayer(blob, told).pieces()).decode()
                    rows = csv.reader(io.StringIO(text, newline=""))
                    yield from (posixpath.normpath(f"{site}/{row[0]}") for row in rows if row)


def _listed(blob: Path) -> Files:
    """Read the list of files of a layer. Raises :class:`BuildError` (``layer-damaged``)."""
    try:
        with blob.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(end - estargz.FOOTER_SIZE)
            begin = estargz.offset_in(stream.read())
            if not 0 <= begin < end:
                raise ValueError("the list begins outside the layer")
            stream.seek(begin)
            tar = zlib.decompress(stream.read(end - estargz.FOOTER_SIZE - begin), wbits=31)
        size = int(tar[124:135], 8)
        entries = json.loads(tar[_BLOCK : _BLOCK + size])["entries"]
    except (zlib.error, ValueError, LookupError) as error:
        raise _damaged(blob, "The list of files") from error
    return {entry["name"]: entry for entry in entries if entry["type"] == "reg" and entry["name"] != estargz.LANDMARK}


def _content(blob: Path, offset: int, size: int) -> Iterator[bytes]:
    """Yield, in pieces, the content of the file whose first gzip member begins at ``offset`` in ``blob``."""

    def packed() -> Iterator[bytes]:
        with blob.open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(PIECE):
                yield piece

    left = size
    pieces = unpacked(packed(), _GZIP)
    while left:
        piece = next(pieces, b"")[:left]
        if not piece:
            return
        left -= len(piece)
        yield piece
