"""The HTTP adapter of the index client. It reports the socket of each request, and drops long bodies of redirects and
refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from envbuild.index.limits import REFUSAL_BYTES

_POOL = 16


class SocketReportingAdapter(HTTPAdapter):
    """Calls ``on_socket`` with the socket of each request before anything is sent, even before the TLS handshake."""

    def __init__(self, on_socket: Callable[[Any], object]) -> None:
        self._on_socket = on_socket
        super().__init__(max_retries=0, pool_maxsize=_POOL)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the same pool as `requests` makes, but with connections that report their sockets."""
        super().init_poolmanager(*args, **kwargs)
        self._tell(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Make a pool of connections through a proxy. These connections report their sockets, too."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):  # SOCKS proxies use other connection classes
            self._tell(manager)
        return manager

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request. Drop the body of a redirect or refusal if the body is long: `requests` would read it without a
        limit."""
        answer = super().send(*args, **kwargs)
        length = answer.headers.get("Content-Length", "")
        short = length.isdigit() and len(length) < 10 and int(length) <= REFUSAL_BYTES
        if (answer.is_redirect or answer.status_code in (401, 407)) and not short:
            answer.raw.close()
            answer._content = b""
            answer._content_consumed = True  # type: ignore[attr-defined]  # `content` checks this flag before it reads
        return answer

    def _tell(self, manager: Any) -> None:
        on_socket = self._on_socket

        # urllib3 makes its connections from these classes: https://urllib3.readthedocs.io/en/stable/advanced-usage.html
        def telling(base: Any) -> Any:
            class Telling(base):  # type: ignore[misc]
                def _new_conn(self) -> Any:
                    connection = super()._new_conn()
                    on_socket(connection)
                    return connection

                def request(self, *args: Any, **kwargs: Any) -> None:
                    if self.sock is not None:
                        on_socket(self.sock)
                    super().request(*args, **kwargs)

            return Telling

        plain = type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": telling(HTTPConnection)})
        secure = type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": telling(HTTPSConnection)})
        manager.pool_classes_by_scheme = {"http": plain, "https": secure}
