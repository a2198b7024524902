"""What a user's own recipe adds to an environment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """A user's file for the image or, if both paths end with ``/``, the contents of a folder. ``source`` is relative to the
    recipe."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program that an image can start, and what the program needs: requirements (PEP 508), apt packages, ports."""

    name: str
    pip: tuple[str, ...]
    apt: tuple[str, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Custom:
    """The additions that a user's own recipe asks for. ``request`` has the words of the request from which the environment was
    resolved, one word per entry.

    ``pip`` are requirements (PEP 508); those of the projects in ``newer`` may be newer than the environment's date limit.
    ``apt_build`` packages are present only while source packages are built. ``user`` is the name of the image's user; it is
    empty for the default user.
    """

    request: tuple[str, ...]
    pip: tuple[str, ...]
    newer: tuple[str, ...]
    apt: tuple[str, ...]
    files: tuple[CopiedFile, ...]
    user: str
    ports: tuple[int, ...]
    services: tuple[Service, ...]
    apt_build: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})

    def requirements(self) -> tuple[str, ...]:
        """The requirements that are locked with the frameworks: first those of the user, then those of the services."""
        return tuple(dict.fromkeys([*self.pip, *(text for service in self.services for text in service.pip)]))

    def system_packages(self) -> tuple[str, ...]:
        """The packages that apt installs: first those of the user, then those of the services."""
        return tuple(dict.fromkeys([*self.apt, *(name for service in self.services for name in service.apt)]))
