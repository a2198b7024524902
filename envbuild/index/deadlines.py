"""Run an exchange with a server (a request and its answer) in a thread, and abort it at the end of its time limit."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from envbuild.index import limits

T = TypeVar("T")
_TICK_S = 0.25


class TookTooLongError(Exception):
    """The time limit of an exchange has passed."""


class BrokenOffError(Exception):
    """A download ended before the file was complete."""


class Watch:
    """The state of an exchange, for the thread that waits for it: how many bytes have arrived, and a way to abort it."""

    def __init__(self) -> None:
        self.count = 0
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self.stopped = False

    def attach(self, connection: Any) -> None:
        """Remember the current socket. The descriptor is duplicated, so that it stays valid when the original is closed."""
        with self._guard:
            self._drop()
            with contextlib.suppress(OSError, ValueError):
                self._socket = socket.socket(fileno=os.dup(connection.fileno()))
            if self.stopped:
                self._break()

    def stop(self) -> None:
        """Shut the connection down, so that the thread that reads from it stops."""
        with self._guard:
            self.stopped = True
            self._break()

    def close(self) -> None:
        """Close the duplicated descriptor of the socket."""
        with self._guard:
            self._drop()

    def _break(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Mine(threading.local):
    watch: Watch | None = None


_MINE = _Mine()


def note_socket(connection: Any) -> None:
    """Report the socket that the exchange of this thread uses. The waiting thread can then shut this socket down."""
    if _MINE.watch is not None:
        _MINE.watch.attach(connection)


def watched(exchange: Callable[[Watch], T], clock: Clock) -> T:
    """Run ``exchange`` in a thread, and abort it at the end of its time limit. Ctrl-C does not wait for the exchange."""
    watch, done = Watch(), threading.Event()
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        _MINE.watch = watch
        try:
            result.append(exchange(watch))
        except BaseException as error:  # raised again in the waiting thread
            failure.append(error)
        finally:
            watch.close()
            done.set()

    threading.Thread(target=work, name="index-exchange", daemon=True).start()
    try:
        while not done.wait(_TICK_S):
            clock.tick(watch)
    except BaseException:
        watch.stop()
        raise
    if failure:
        raise failure[0]
    return result[0]


class Clock:
    """Checks a running exchange: whether its time limit has passed, and whether it is too slow. Also shows messages during a
    wait."""

    def __init__(self, host: str, what: str, end: float, say: Callable[[str], None], *, endless: bool) -> None:
        self._host, self._what, self._say, self._end = host, what, say, end
        # An endless exchange is a download. It may continue while bytes arrive. Until its first byte arrives, it has the same
        # time limit as other exchanges.
        self._endless = endless
        self._began = self._window = time.monotonic()
        self._count = 0
        self._seen = (0, self._began)
        self._next_word = self._began + limits.QUIET_S

    def tick(self, watch: Watch) -> None:
        """Check the exchange now. Raises :class:`TookTooLongError` if the exchange must end."""
        now = time.monotonic()
        if watch.count != self._seen[0]:
            self._seen = (watch.count, now)
        if now >= self._end and not (self._endless and watch.count):
            raise TookTooLongError(f"no complete answer within {now - self._began:.0f} s")
        if now - self._window >= limits.SLOW_S:
            if self._endless and watch.count - self._count < limits.SLOWEST_BYTES_S * limits.SLOW_S:
                raise TookTooLongError(f"it sent only {watch.count - self._count} bytes in {now - self._window:.0f} s")
            self._window, self._count = now, watch.count
        quiet_since = self._seen[1] if self._endless else self._began
        if now >= self._next_word and now - quiet_since >= limits.QUIET_S:
            self._next_word = now + limits.REMIND_S
            left = f", at most {self._end - now:.0f} s more" if now < self._end else ""
            self._say(f"waiting for {self._host}: {self._what} ({now - self._began:.0f} s{left})")
