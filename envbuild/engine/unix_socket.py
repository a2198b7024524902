"""Send one GET request to an engine at a unix socket, without the docker SDK. To import the SDK would take longer than a whole
run that finds nothing to do.

http.client is not used either, because it imports the email package, which is also slow.
"""

from __future__ import annotations

import socket

SCHEME = "unix://"


def get(endpoint: str, target: str, timeout_s: float) -> tuple[int, bytes]:
    """Send a GET request for ``target`` to the engine at ``unix://PATH``. Return the HTTP status and the body.

    Raises :class:`OSError` if there is no answer.
    """
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(timeout_s)
        channel.connect(endpoint.removeprefix(SCHEME))
        # With HTTP/1.0, the body is not divided into chunks, and the answer ends when the connection ends.
        channel.sendall(f"GET {target} HTTP/1.0\r\nHost: engine\r\n\r\n".encode())
        answer = b"".join(iter(lambda: channel.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise OSError("the program that listens there does not use HTTP")
    return int(words[1]), body


def ping(endpoint: str, timeout_s: float) -> None:
    """Raise :class:`OSError` unless an engine at ``unix://PATH`` answers."""
    status, _ = get(endpoint, "/_ping", timeout_s)
    if status != 200:
        raise OSError(f"the program that listens there answers with status {status}")
