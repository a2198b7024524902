"""An environment with every file pinned, and what could not be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from envbuild.model.environment import Environment, Python


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """One pinned file. ``index`` is ``default`` or an index's base URL; ``project`` is its page there. ``size`` in bytes.

    ``added``: only what a user's own recipe asks for needs it, so it is installed above the frameworks, in a layer of its own.
    """

    name: str
    version: str
    filename: str
    sha256: str
    index: str
    project: str
    size: int | None
    added: bool = field(default=False, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """One set of packages installed together at ``path``. ``build_artifacts`` are the locked tools that build its sdists.

    ``pip`` is not installed among them: it comes with the image for what its users add, above the locked packages.
    """

    name: str
    path: str
    python: Python
    frameworks: tuple[str, ...]
    backend: Literal["uv", "pip"]
    artifacts: tuple[Artifact, ...]
    build_artifacts: tuple[Artifact, ...]
    pip: Artifact | None = field(default=None, metadata={"left_out_if_default": True})

    @property
    def files(self) -> tuple[Artifact, ...]:
        """Every file that is pinned for it."""
        return (*self.artifacts, *self.build_artifacts, *((self.pip,) if self.pip is not None else ()))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceArchive:
    """The tar of one revision of a repository: its ``sha256`` is that of the file that :mod:`envbuild.sources` makes of it."""

    repository: str
    revision: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianPackage:
    """A package of a bootstrapped base, as the mirror's own index describes it."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrap:
    """A base made by mmdebstrap instead of pulled."""

    suite: str
    architecture: str
    variant: str
    packages: tuple[DebianPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseLock:
    """How the base is pinned: a pulled one by ``digest`` (``sha256:…``), a bootstrapped one by its package list.

    ``archive``: the apt sources that a pulled one gets where its own no longer answer. ``build_digest`` pins ``build_image``.
    """

    image: str
    digest: str | None
    bootstrap: Bootstrap | None
    archive: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    build_digest: str | None = field(default=None, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Something that could not be pinned, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Decision and pins. Only a lock whose ``missing`` is empty counts as locked.

    ``tools`` are wheels of programs that install packages during the build and do not stay in the image, such as uv.
    ``sources`` are the archives of frameworks that are built from a repository, where their hash is known.
    """

    environment: Environment
    base: BaseLock
    prefixes: tuple[Prefix, ...]
    missing: tuple[Missing, ...]
    tools: tuple[Artifact, ...] = field(default=(), metadata={"left_out_if_default": True})
    sources: tuple[SourceArchive, ...] = field(default=(), metadata={"left_out_if_default": True})
