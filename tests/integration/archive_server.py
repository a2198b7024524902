"""A web server on loopback that stands in for a mirror, a snapshot archive or a package index. Tests can remove and change its
files."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass
class ArchiveServer:
    """The files and the requests of the server.

    ``files`` are the contents by path. For a path in ``stalled`` the server sends half of the bytes and then nothing. ``asked``
    lists the requested paths.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    stalled: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, archive: ArchiveServer, *args: object) -> None:
        self._archive = archive
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = unquote(self.path).lstrip("/")
        self._archive.asked.append(path)
        content = self._archive.files.get(path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if path.endswith("/"):  # a page of a package index; installers refuse a page without a type
            self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if path not in self._archive.stalled:
            self.wfile.write(content)
            return
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        threading.Event().wait(60)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextlib.contextmanager
def serve(port: int = 0) -> Iterator[ArchiveServer]:
    """Run a server without files until the block ends. With port 0, the system chooses a free one."""
    archive = ArchiveServer()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(_Handler, archive))
    server.daemon_threads = True
    archive.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield archive
    finally:
        server.shutdown()
        server.server_close()
