"""Writes wheels as a layer: the installed files with bytecode, sorted by path, and all their parent folders."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.layer import LayerWriter
from envbuild.compose.members import COMPRESSOR, Content, InMemory, OnDisk
from envbuild.compose.model import InstallPlace, Layer
from envbuild.compose.wheel import Entry, read_entries
from envbuild.compose.wheel_zip import WheelZip
from envbuild.errors import BuildError
from envbuild.wrong_records import WrongRecord

# A part of every layer's key. Increase the number after each change that gives different bytes for the same wheel.
RULES = f"3, {COMPRESSOR}"

Bytecode = Mapping[str, bytes | Path | Content]  # absolute path in the image → content


class OpenWheels:
    """Opens each wheel once, and reads its metadata once, for all functions that need the wheel. Threads may share this
    object. ``wrong_records`` are the known errors in the RECORD of any wheel."""

    def __init__(self, wrong_records: Sequence[WrongRecord] = ()) -> None:
        self._wrong_records = wrong_records
        self._guard = threading.Lock()
        self._guards: dict[tuple[Path, InstallPlace, bool], threading.Lock] = {}
        self._entries: dict[tuple[Path, InstallPlace, bool], list[Entry]] = {}
        self._open = ExitStack()

    def __enter__(self) -> OpenWheels:
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def entries(self, file: Path, place: InstallPlace, *, is_requested: bool) -> list[Entry]:
        """The files and folders that the installation of the wheel makes; see :func:`read_entries`."""
        key = file, place, is_requested
        with self._guard:
            own = self._guards.setdefault(key, threading.Lock())
        with own:
            if key not in self._entries:
                wheel = WheelZip(file)
                with self._guard:
                    self._open.enter_context(wheel)
                self._entries[key] = read_entries(wheel, place, is_requested=is_requested, wrong_records=self._wrong_records)
        return self._entries[key]


def write(
    stream: BinaryIO,
    wheels: Sequence[tuple[Path, bool]],
    place: InstallPlace,
    bytecode: Bytecode,
    opened: OpenWheels | None = None,
    *,
    recorded: Layer | None = None,
) -> Layer:
    """Write one layer of all ``wheels``. Each wheel comes with a boolean, which is true if a user requested the package by
    name. If two wheels have a file at the same path, the later wheel's file stays.

    ``bytecode`` replaces files of wheels at the same paths. Without wheels, the layer holds bytecode only. Wheels in ``opened``
    stay open for other callers. The same arguments give the same bytes. Raises :class:`BuildError` (``bad-wheel``) if a wheel
    cannot be installed; the bytes in ``stream`` are then not a valid layer.

    ``recorded`` describes the layer that is expected, so that the wheels need not be unpacked; see :class:`LayerWriter`. If
    another layer was written, raises :class:`OtherLayerError`.
    """
    with ExitStack() as stack:
        found: dict[str, Entry] = {}
        known = opened or stack.enter_context(OpenWheels())
        for file, is_requested in wheels:
            for entry in known.entries(file, place, is_requested=is_requested):
                _add(found, entry, file.name)
        for path, content in bytecode.items():
            found[path] = Entry(path, _content(content))
        _add_parents(found, ", ".join(file.name for file, _ in wheels))
        writer = LayerWriter(stream, recorded)
        for path in sorted(found):
            entry = found[path]
            if entry.content is None:
                writer.add_folder(path)
            else:
                writer.add_file(path, entry.content, is_executable=entry.is_executable)
        return writer.close()


def sources(wheel: Path, place: InstallPlace, opened: OpenWheels | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the Python sources of ``wheel``, sorted by path: the absolute path in the image, and the content."""
    with ExitStack() as stack:
        known = opened or stack.enter_context(OpenWheels())
        for entry in sorted(known.entries(wheel, place, is_requested=True), key=lambda entry: entry.path):
            if entry.content is not None and entry.path.endswith(".py"):
                content = bytearray()
                entry.content.copy(lambda _: None, content.extend)
                yield entry.path, bytes(content)


def _content(content: bytes | Path | Content) -> Content:
    if isinstance(content, bytes):
        return InMemory(content)
    return OnDisk.of(content) if isinstance(content, Path) else content


def _add(found: dict[str, Entry], entry: Entry, name: str) -> None:
    before = found.get(entry.path)
    if before is not None and (before.content is None) != (entry.content is None):
        raise _clash(entry.path, name)
    found[entry.path] = entry


def _add_parents(found: dict[str, Entry], names: str) -> None:
    """Add the parent folders of all entries, because Docker 20.10 would make missing ones with mode 0600."""
    for path in list(found):
        above = path.rpartition("/")[0]
        while above:
            entry = found.get(above)
            if entry is not None:
                if entry.content is not None:
                    raise _clash(above, names)
                break  # this entry is in `found`, so the loop adds its own parent folders, too
            found[above] = Entry(above, None)
            above = above.rpartition("/")[0]


def _clash(path: str, names: str) -> BuildError:
    return BuildError(
        f"{path} would be both a file and a folder ({names}).",
        code="bad-wheel",
        hint="These packages cannot be installed together: leave one of them out.",
    )
