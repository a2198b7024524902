"""A layer that one thread reads while another thread still writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from envbuild.compose.members import Buffer
from envbuild.compose.model import Layer

_PIECE = 1 << 20


class AbandonedError(Exception):
    """The writer stopped before the layer was complete."""


class GrowingLayer:
    """The file of a layer that is being written. ``layer`` is set when the whole file is written.

    The file may have no name yet. This object opens the file a second time, for reading, and closes it at the end of the
    ``with`` block.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """``stream`` is the file to read. Raises OSError if this system cannot open a file by its descriptor."""
        self.layer: Layer | None = None
        self._file = Path(f"/proc/self/fd/{stream.fileno()}").open("rb", buffering=0)  # noqa: SIM115 - `__exit__` closes it
        self._size = 0
        self._has_ended = False
        self._news = threading.Condition()

    def __enter__(self) -> GrowingLayer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def grow(self, size: int) -> None:
        """Record that the writer has written ``size`` bytes so far."""
        with self._news:
            self._size = size
            self._news.notify_all()

    def end(self, layer: Layer | None) -> None:
        """Record that the file is complete. If ``layer`` is None, record that the file will never be complete. A second call
        changes nothing."""
        with self._news:
            if not self._has_ended:
                self.layer, self._has_ended = layer, True
                self._news.notify_all()

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes from the beginning, and wait for bytes that are not written yet. Raises :class:`AbandonedError`."""
        done, is_last = 0, False
        while not is_last:
            with self._news:
                while self._size == done and not self._has_ended:
                    self._news.wait()
                size, is_last = self._size, self._has_ended
                if is_last and self.layer is None:
                    raise AbandonedError
            while done < size:
                self._file.seek(done)
                piece = self._file.read(min(_PIECE, size - done))
                if not piece:  # another process has truncated the file
                    raise AbandonedError
                done += len(piece)
                yield piece


class Followed:
    """A stream for the writer of a layer. ``growing`` can read all bytes that were written to it so far."""

    def __init__(self, stream: BinaryIO, growing: GrowingLayer) -> None:
        self._stream = stream
        self._growing = growing
        self._size = 0

    def write(self, data: Buffer) -> int:
        """Write ``data`` to the file, and wake the readers that wait for it."""
        self._stream.write(data)
        self._stream.flush()
        self._size += memoryview(data).nbytes
        self._growing.grow(self._size)
        return len(data)

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._size


def follow(stream: BinaryIO, watch: Callable[[GrowingLayer], object]) -> tuple[BinaryIO, GrowingLayer] | None:
    """Call ``watch`` with a :class:`GrowingLayer`, which can read the bytes that are already written to ``stream``. Return a
    stream for the writer, and the :class:`GrowingLayer`.

    If this system has no /proc, do not call ``watch``, and return None.
    """
    try:
        growing = GrowingLayer(stream)
    except OSError:
        return None
    watch(growing)
    return cast(BinaryIO, Followed(stream, growing)), growing
