"""Whether this process may use the network. ``--offline`` forbids the network. Code that needs the network asks this module
first."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterator
from typing import Any

from envbuild.errors import BuildError

# Python's audit events for network use, and the index of the argument with the address. If the address is a tuple, its first
# item is the host.
_ADDRESS = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
    "socket.getnameinfo": 0,
}


class _State:
    forbidden = False
    is_watched = False


def is_forbidden() -> bool:
    """Whether the network must not be used."""
    return _State.forbidden


def require(purpose: str) -> None:
    """Raise :class:`BuildError` (``offline``) if the network must not be used. The error message begins with ``purpose``."""
    if _State.forbidden:
        raise BuildError(
            f"{purpose} needs the network, which --offline forbids.",
            code="offline",
            hint="`envbuild doctor --offline FOLDER` says whether the bundle is complete.",
        )


@contextlib.contextmanager
def forbidden() -> Iterator[None]:
    """Forbid the network inside the block, for all threads.

    Code that needs the network calls :func:`require`, whose error says why the network was needed. As a safeguard, an audit
    hook of Python refuses this process's connections to other machines and its queries to name servers.
    """
    if not _State.is_watched:  # add the hook only once: an audit hook cannot be removed
        sys.addaudithook(_refuse)
        _State.is_watched = True
    before, _State.forbidden = _State.forbidden, True
    try:
        yield
    finally:
        _State.forbidden = before


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    place = _ADDRESS.get(event) if _State.forbidden else None
    if place is None:
        return
    if place and arguments[0].family not in (socket.AF_INET, socket.AF_INET6):
        return
    address = arguments[place]
    host = address[0] if isinstance(address, tuple) else address
    if host is not None and not _is_here(host):
        require(f"A connection to {_text(host)}")


def _is_here(host: object) -> bool:
    text = _text(host)
    if text in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _text(host: object) -> str:
    return host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)
