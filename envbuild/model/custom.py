"""What a user's own recipe adds to an environment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """A user's file that is copied into the image. If both paths end with ``/``, the contents of a folder are copied.

    ``source`` is relative to the recipe.
    """

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program that an image can start. The program needs the requirements in ``pip`` (PEP 508), the packages in ``apt``, and
    the ports in ``ports``."""

    name: str
    pip: tuple[str, ...]
    apt: tuple[str, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Custom:
    """The additions that a user's own recipe asks for.

    ``request`` has the words of the request from which the environment was resolved. ``pip`` are requirements (PEP 508). The
    packages of the projects in ``newer`` may be newer than the environment's date limit. The packages in ``apt_build`` are
    present only while source packages are built. ``user`` is the name of the image's user; it is empty for the default user.
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
        """The requirements that are locked with the frameworks: first the user's, then the services' requirements."""
        return tuple(dict.fromkeys([*self.pip, *(text for service in self.services for text in service.pip)]))

    def system_packages(self) -> tuple[str, ...]:
        """The packages that apt installs: first the user's packages, then the services' packages."""
        return tuple(dict.fromkeys([*self.apt, *(name for service in self.services for name in service.apt)]))
