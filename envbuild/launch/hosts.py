"""Read texts such as ``a:4,b:4``, which name the hosts of a run and the number of devices of each host."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envbuild.errors import UsageError

_NAMED = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(?::(\d{1,5}))?")
_COUNTED = re.compile(r"(\d{1,5})x(\d{1,5})")
_HINT = "Write a:4,b:4 for four devices on each of a and b, or 2x4 for any two hosts with four each."


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A host of a run, and the number of its devices. ``name`` is empty for a host that the launcher chooses."""

    name: str
    slots: int


def read_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts that ``text`` names or counts. Raises :class:`UsageError` for other texts."""
    counted = _COUNTED.fullmatch(text.strip())
    if counted:
        if not int(counted[1]) * int(counted[2]):
            raise _malformed(f"--hosts: {text} has no devices.")
        return tuple(Host(name="", slots=int(counted[2])) for _ in range(int(counted[1])))
    found: list[Host] = []
    for part in text.split(","):
        match = _NAMED.fullmatch(part.strip())
        if match is None:
            raise _malformed(f"--hosts: {part.strip()!r} is not HOST or HOST:DEVICES.")
        slots = int(match[3] or 1)
        if slots < 1:
            raise _malformed(f"--hosts: {match[1]} has no devices.")
        if any(host.name == match[1] for host in found):
            raise _malformed(f"--hosts names {match[1]} twice.")
        found.append(Host(name=match[1], slots=slots))
    return tuple(found)


def _malformed(message: str) -> UsageError:
    return UsageError(message, code="malformed-hosts", hint=_HINT)
