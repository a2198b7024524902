"""The lock: an environment, the pins of its files, and a list of everything that could not be pinned."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from envbuild.model.environment import Environment, Python


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """One pinned file.

    ``index`` is ``default`` or the base URL of an index. ``project`` is the project's name as in the address of the project's
    page on the index. ``size`` is in bytes.

    ``added`` is true if only a user's recipe needs the file; it is then installed after the frameworks, in a separate layer.
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
    """One set of packages that are installed together at ``path``. ``build_artifacts`` are the locked tools that build the
    prefix's sdists.

    ``pip`` is not one of these tools: pip stays in the image, for users who add packages.
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
        """Every file that is pinned for the prefix."""
        return (*self.artifacts, *self.build_artifacts, *((self.pip,) if self.pip is not None else ()))

    @property
    def installed(self) -> tuple[Artifact, ...]:
        """Every Python package that the image gets: those of the prefix, and pip for users who add packages."""
        return (*self.artifacts, *((self.pip,) if self.pip is not None else ()))


_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.+-]*) (?P<version>[A-Za-z0-9.+:~-]+) (?P<architecture>[a-z0-9-]+) (?P<size>[1-9][0-9]{0,11}) "
    r"(?P<path>[a-z0-9-]+(/(?!\.)[A-Za-z0-9.+~_-]+)+\.deb) sha256:(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceArchive:
    """The tar file of one revision of a git repository. ``sha256`` is the hash of the file that :mod:`envbuild.git_sources`
    writes."""

    repository: str
    revision: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianPackage:
    """One .deb file, as a signed package index describes it. ``size`` is in bytes.

    ``path`` is the archive's name, followed by the path on every mirror of the archive, such as
    ``debian/pool/main/b/bash/bash_5_amd64.deb``. In JSON, a package with a path is one line of text. A package without a path,
    from an older lock, is an object.
    """

    name: str
    version: str
    sha256: str
    architecture: str = field(default="", metadata={"left_out_if_default": True})
    size: int = field(default=0, metadata={"left_out_if_default": True})
    path: str = field(default="", metadata={"left_out_if_default": True})

    @property
    def filename(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def to_line(self) -> str | None:
        """The package as a line of a lock; None if the package has no path."""
        line = f"{self.name} {self.version} {self.architecture} {self.size} {self.path} sha256:{self.sha256}"
        return line if self.path else None

    @classmethod
    def from_line(cls, line: str) -> DebianPackage:
        """Read a package from a line; raises :class:`ValueError` for any other text."""
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError("a package: name, version, architecture, size, path, sha256")
        return cls(
            name=found["name"],
            version=found["version"],
            sha256=found["sha256"],
            architecture=found["architecture"],
            size=int(found["size"]),
            path=found["path"],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrap:
    """A base that mmdebstrap makes from pinned packages, instead of a pulled image."""

    suite: str
    architecture: str
    variant: str
    packages: tuple[DebianPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseLock:
    """How the base is pinned.

    ``digest`` (``sha256:…``) pins a pulled base. The package list in ``bootstrap`` pins a bootstrapped base.
    ``archive`` are the apt sources that a pulled base gets if its own sources no longer answer. ``build_digest`` is the digest
    that pins the field ``build_image`` of the environment's base.
    """

    image: str
    digest: str | None
    bootstrap: Bootstrap | None
    archive: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    build_digest: str | None = field(default=None, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class AptPlan:
    """One step of a Dockerfile that installs Debian packages. ``asked`` are the packages that the step names.

    ``name`` is the step's folder in the build context. ``before`` are the earlier steps, in order, whose packages are already
    installed when this step runs. With ``build_only``, the step's packages do not stay in the image.
    """

    name: str
    before: tuple[str, ...]
    asked: tuple[str, ...]
    build_only: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AptStep:
    """A step with its ``packages``: every .deb file that the step installs, including dependencies, sorted by name."""

    name: str
    asked: tuple[str, ...]
    build_only: bool = field(default=False, metadata={"left_out_if_default": True})
    packages: tuple[DebianPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AptLock:
    """Everything that apt installs on a bootstrapped base, step by step.

    ``snapshots`` are the addresses of snapshots of the archives at the time of locking. Builds use the snapshots for packages
    that mirrors no longer have. ``unchecked`` lists the checks of package indices that apt skipped because of the locking
    machine's configuration.
    """

    snapshots: tuple[str, ...]
    steps: tuple[AptStep, ...]
    unchecked: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})

    def step(self, name: str) -> AptStep | None:
        """Return the step of this name, or None."""
        return next((step for step in self.steps if step.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Something that the lock could not pin, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """A decision and its pins. Only a lock with an empty ``missing`` counts as locked.

    ``tools`` are wheels of programs that install packages during the build and do not stay in the image, such as uv.
    ``sources`` are the archives of frameworks that are built from a repository, if their hash is known.
    ``apt`` is None if the base is not bootstrapped, or if its packages could not be pinned.
    """

    environment: Environment
    base: BaseLock
    prefixes: tuple[Prefix, ...]
    missing: tuple[Missing, ...]
    tools: tuple[Artifact, ...] = field(default=(), metadata={"left_out_if_default": True})
    sources: tuple[SourceArchive, ...] = field(default=(), metadata={"left_out_if_default": True})
    apt: AptLock | None = field(default=None, metadata={"left_out_if_default": True})

    def debs(self) -> tuple[DebianPackage, ...]:
        """Every .deb file that a build uses, each once: first the files of the base, then the files of the steps."""
        held = (*(self.base.bootstrap.packages if self.base.bootstrap else ()), *self.step_debs())
        return tuple({package.sha256: package for package in held if package.path}.values())

    def step_debs(self) -> tuple[DebianPackage, ...]:
        """Every .deb file of the steps, each once, for builds on a base that already exists."""
        held = (package for step in (self.apt.steps if self.apt else ()) for package in step.packages)
        return tuple({package.sha256: package for package in held}.values())

    def image_packages(self) -> tuple[DebianPackage, ...]:
        """The distribution's packages that the lock pins in the image, sorted by name. If several steps install a package, the
        last step counts, because its version may be newer."""
        held = {package.name: package for package in (self.base.bootstrap.packages if self.base.bootstrap else ())}
        for step in self.apt.steps if self.apt else ():
            held |= {} if step.build_only else {package.name: package for package in step.packages}
        return tuple(held[name] for name in sorted(held))
