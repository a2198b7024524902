"""The HTTP adapter of the registry client. It refuses answers that are too large to be held in memory, and waits for registries
that read slowly."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from envbuild.errors import PublishError

LARGEST = 4 << 20  # bytes; registries have the same limit for manifests
_WRITE_S = 300  # seconds. A registry may stop reading a layer for so long, for example while its disk is busy.


class BoundedAdapter(HTTPAdapter):
    """Limits the size of manifests, tokens, errors and redirects. Blobs are read as streams and have no such limit.

    The time limit for connecting does not apply to sending. Otherwise a layer could not be sent over a slow link.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pool of connections as the base class does, with connections that wait longer."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the same pool for connections through a proxy."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(self, request: Any, stream: bool = False, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request as the base class does, and limit the size of the answer."""
        answer = super().send(request, stream, *args, **kwargs)
        if not (stream and answer.status_code in (200, 206)):
            answer.raw = _Bounded(answer.raw, request.url)
        return answer


class _Patient:
    """A connection that waits up to :data:`_WRITE_S` seconds until the registry reads the next piece of a request."""

    sock: socket.socket | None

    def send(self, data: Any) -> None:
        """Send a piece of a request. Without this method, `urllib3` would use the time limit for connecting."""
        if self.sock is not None:
            self.sock.settimeout(_WRITE_S)
        super().send(data)  # type: ignore[misc]


class _Connection(_Patient, HTTPConnection):
    pass


class _TlsConnection(_Patient, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


class _Bounded:
    """The body of an answer. At most :data:`LARGEST` bytes of it are read."""

    def __init__(self, raw: Any, url: str) -> None:
        self._raw = raw
        self._url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """Yield the body in pieces, unpacked."""
        size = 0
        for piece in self._raw.stream(*args, **kwargs):
            size += len(piece)
            if size > LARGEST:
                self._raw.close()
                raise PublishError(
                    f"The answer of {self._url.partition('?')[0]} is longer than {LARGEST >> 20} MiB, but no document of "
                    "a registry is that long.",
                    code="unknown-format",
                    hint="Check that the name of the registry is right.",
                )
            yield piece
