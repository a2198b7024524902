"""A slow or broken link to a server: a TCP proxy on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_PIECE = 4096


@dataclass(kw_only=True)
class Link:
    """``speed`` is in bytes a second, for all connections together. It limits what clients send.

    After clients have sent ``quiet_after`` bytes, nothing passes for ``quiet_s`` seconds. New connections are still accepted.
    """

    host: str = ""
    speed: float = float("inf")
    quiet_after: float = float("inf")
    quiet_s: float = float("inf")
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def _pass(self, size: int) -> None:
        """Wait until ``size`` more bytes may pass. Meanwhile, other connections wait, too."""
        with self._lock:
            self._is_over.wait(size / self.speed)
            self.sent += size
            if self.sent >= self.quiet_after:
                self._is_over.wait(None if self.quiet_s == float("inf") else self.quiet_s)
                self.quiet_after = float("inf")

    def _forward(self, source: socket.socket, target: socket.socket, *, limited: bool) -> None:
        with contextlib.suppress(OSError):
            while not self._is_over.is_set() and (piece := source.recv(_PIECE)):
                if limited:
                    self._pass(len(piece))
                target.sendall(piece)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def slow_link(to: str, link: Link) -> Iterator[Link]:
    """Run the link to the server at ``to`` (``HOST:PORT``) until the block ends. Sets the address of the link."""
    host, _, port = to.partition(":")
    with contextlib.ExitStack() as opened, socket.socket() as listening:
        # Otherwise, the operating system would take megabytes from the client at once.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        link.host = f"127.0.0.1:{listening.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = opened.enter_context(listening.accept()[0])
                    server = opened.enter_context(socket.create_connection((host, int(port))))
                    for pair, limited in (((client, server), True), ((server, client), False)):
                        threading.Thread(target=link._forward, args=pair, kwargs={"limited": limited}, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield link
        finally:
            link._is_over.set()
            listening.shutdown(socket.SHUT_RDWR)
            time.sleep(0.05)
