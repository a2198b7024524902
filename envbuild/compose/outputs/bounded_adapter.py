"""The HTTP adapter of the registry client. It refuses answers that are too large to be held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from envbuild.errors import PublishError

LARGEST = 4 << 20  # bytes; registries have the same limit for manifests


class BoundedAdapter(HTTPAdapter):
    """Limits the size of manifests, tokens, errors and redirects. Blobs are read as streams and have no such limit."""

    def send(self, request: Any, stream: bool = False, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request as the base class does, and limit the size of the answer."""
        answer = super().send(request, stream, *args, **kwargs)
        if not (stream and answer.status_code in (200, 206)):
            answer.raw = _Bounded(answer.raw, request.url)
        return answer


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
