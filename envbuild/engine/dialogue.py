"""Talks to a program in a container: sends requests to its standard input, and reads answers from its standard output."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker import DockerClient

_PIECE = 1 << 18
_OUTPUT = 1  # the number that stands for standard output in the header of a frame
_TAIL = 4000  # bytes of standard error that are kept


class EndedError(Exception):
    """The program has ended, or the connection is broken. The message is the end of the program's standard error."""


class Dialogue:
    """A program that runs in a container and answers requests.

    The program must wait for its first input before it writes. If its output arrived together with the engine's own answer, the
    Docker SDK would lose the output.
    """

    def __init__(self, client: DockerClient, container: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start ``argv`` as root in ``container``."""
        api: Any = client.api
        made = api.exec_create(container, list(argv), stdin=True, user="0", environment=dict(env))
        self._channel: Any = api.exec_start(made["Id"], socket=True)
        self._socket: Any = getattr(self._channel, "_sock", self._channel)
        self._unread = bytearray()
        self._left = 0  # bytes of the current frame that are not yet read
        self._is_output = False
        self._errors = b""

    def send(self, data: bytes) -> None:
        """Send ``data``. Raises :class:`EndedError`."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._ended() from error

    def receive(self, size: int) -> bytearray:
        """Wait for ``size`` bytes, and return them. Raises :class:`EndedError`."""
        found = bytearray()
        while len(found) < size:
            if not self._left:
                kind, self._left = struct.unpack(">BxxxI", self._read(8))
                self._is_output = kind == _OUTPUT
                continue
            piece = self._read(min(self._left, size - len(found)) if self._is_output else self._left)
            self._left -= len(piece)
            if self._is_output:
                found += piece
            else:
                self._errors = (self._errors + piece)[-_TAIL:]
        return found

    def rest(self, seconds: float) -> bytes:
        """Return the output until the program ends, or until it has written nothing for this number of seconds."""
        self._socket.settimeout(seconds)
        found = bytearray()
        with contextlib.suppress(EndedError):
            while True:
                found += self.receive(1)
        return bytes(found)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._channel.close()

    def _read(self, size: int) -> bytearray:
        """Read exactly ``size`` bytes from the connection."""
        while len(self._unread) < size:
            try:
                piece: bytes = self._socket.recv(max(_PIECE, size - len(self._unread)))
            except OSError as error:
                raise self._ended() from error
            if not piece:
                raise self._ended()
            self._unread += piece
        found = self._unread[:size]
        del self._unread[:size]
        return found

    def _ended(self) -> EndedError:
        return EndedError(self._errors.decode(errors="replace"))
