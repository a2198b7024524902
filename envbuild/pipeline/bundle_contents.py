"""Lists the files that a build of a lock needs, and finds files that a bundle lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envbuild import procs
from envbuild.engine import bootstrap
from envbuild.errors import EnvbuildError
from envbuild.model.lock import Lock
from envbuild.pipeline import fetching, incomplete_locks
from envbuild.pipeline.bundle_folder import BundledEnvironment, BundledFile, BundleFolder, BundleManifest, Kind, is_sha256
from envbuild.workspace import Workspace

NO_BASE = (
    "its base must be made from Debian packages, but mmdebstrap is not installed, and the bundle does not contain the "
    "base as a file"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """One file that a build needs."""

    name: str
    kind: Kind
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lack:
    """A needed file that cannot be used. Its ``fault`` is ``missing``, ``damaged``, or ``not a plain file``."""

    name: str
    kind: Kind
    sha256: str
    fault: str

    def __str__(self) -> str:
        return f"{self.name} is {self.fault} ({self.sha256})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The result of the check for one environment of a bundle.

    ``lacks`` are missing or damaged files that this machine needs for a build. ``unused_lacks`` are missing or damaged files
    that this machine does not need. Only the tar file of the base can be such a file, because this machine may be able to make
    the base itself. ``error`` is another reason why the environment cannot be built. It is empty if there is no such reason.
    """

    name: str
    files: int
    size: int
    lacks: tuple[Lack, ...]
    unused_lacks: tuple[Lack, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether this machine can build the environment from the bundle."""
        return not self.lacks and not self.error


def needed(lock: Lock) -> tuple[Needed, ...]:
    """Return every file that a build of ``lock`` uses, except the base's tar file, which can be made from Debian packages."""
    found = [Needed(name=pin.filename, kind=_kind(pin), sha256=pin.sha256) for pin in fetching.pins(lock)]
    found += [
        Needed(name=f"{each.repository.rstrip('/').rpartition('/')[2]}.tar", kind="source", sha256=each.sha256)
        for each in lock.sources
    ]
    return tuple({each.sha256: each for each in found}.values())


def _kind(pin: fetching.Pin) -> Kind:
    return "Debian package" if pin.deb is not None else "python package" if pin.artifact is not None else "fetched file"


def obstacles(lock: Lock) -> Iterator[str]:
    """Yield each reason why the files that ``lock`` pins are not enough for a build.

    An environment can be bundled if there is no such reason.
    """
    environment = lock.environment
    yield from (f"{gap.what} is not pinned: {gap.why}" for gap in lock.missing)
    yield from (f"{each.name} has no pinned file" for each in incomplete_locks.unpinned_frameworks(lock))
    if lock.base.bootstrap is None:
        yield f"its base {lock.base.image} is pulled, but only bases that are made from Debian packages can be bundled"
    elif lock.apt is None:
        yield "the Debian packages that its build installs are not pinned"
    if environment.base.build_image:
        yield f"its build pulls the image {environment.base.build_image}"
    yield from (f"its build installs packages from the repository {each.url}" for each in environment.base.repositories)
    pinned = {(each.repository, each.revision) for each in lock.sources}
    for framework in environment.frameworks:
        options = framework.options
        if "repository" in options and (options["repository"], options["revision"]) not in pinned:
            yield f"the source of {framework.name} at {options['repository']} has no known hash"
    yield from (f"{each.filename} has no sha256" for each in fetching.pins(lock) if not is_sha256(each.sha256))


def lacks(
    bundle: BundleFolder, wanted: tuple[Needed, ...], on_file: Callable[[Needed], Callable[[int], None]]
) -> Iterator[Lack]:
    """Read every file of ``wanted``, and yield those that are missing or damaged.

    ``on_file`` gets a file and returns a function. While this file is read, the function gets the size in bytes of each piece.
    """
    for each in wanted:
        if fault := bundle.fault(each.sha256, on_file(each)):
            yield Lack(name=each.name, kind=each.kind, sha256=each.sha256, fault=fault)


def check(
    workspace: Workspace, bundle: BundleFolder, on_bytes: Callable[[int], None] = lambda _count: None
) -> tuple[BundleManifest, tuple[Checked, ...]]:
    """Read the files that the environments of the bundle need. Return the manifest, and the result for each environment.

    A file that several environments need is read only once. ``workspace`` is the workspace of the machine that will build.
    Raises the errors of :meth:`BundleFolder.manifest`.
    """
    manifest = bundle.manifest()
    sizes = {file.sha256: file.size for file in manifest.files}
    seen: dict[str, Lack | None] = {}

    def look(each: Needed) -> Lack | None:
        if each.sha256 not in seen:
            fault = bundle.fault(each.sha256, on_bytes)
            seen[each.sha256] = Lack(name=each.name, kind=each.kind, sha256=each.sha256, fault=fault) if fault else None
        return seen[each.sha256]

    found = []
    for environment in manifest.environments:
        wanted, error, unused = own(environment, manifest), "", ""
        try:
            lock = bundle.lock(environment)
            wanted += needed(lock)
            error = "; ".join(obstacles(lock))
            if not needs_base_file(workspace, lock, environment.base):
                unused = environment.base
            elif not environment.base:
                error = "; ".join(filter(None, [error, NO_BASE]))
        except EnvbuildError as broken:
            error = broken.message
        missing = [lack for each in wanted if (lack := look(each)) is not None]
        made = Checked(
            name=environment.name,
            files=len(wanted),
            size=sum(sizes.get(each.sha256, 0) for each in wanted),
            lacks=tuple(lack for lack in missing if lack.sha256 != unused),
            unused_lacks=tuple(lack for lack in missing if lack.sha256 == unused),
            error=error,
        )
        found.append(made)
    return manifest, tuple(found)


def needs_base_file(workspace: Workspace, lock: Lock, base: str) -> bool:
    """Whether a build of ``lock`` needs the tar file of the base.

    ``base`` is the sha256 of this file in the bundle. It is empty if the bundle does not have the file. The file is not needed
    if mmdebstrap can make the base from the pinned packages, or if the base is in the cache folder. A cached base from another
    bundle is not used, because its contents come from the maker of that bundle.
    """
    planned = lock.base.bootstrap
    if planned is None or procs.find("mmdebstrap") is not None:
        return False
    held = bootstrap.cached(workspace, planned)
    return held is None or not bootstrap.is_whole(held) or (held.adopted and held.archive_sha256 != base)


def own(environment: BundledEnvironment, manifest: BundleManifest) -> tuple[Needed, ...]:
    """Return the files of ``environment`` that its lock does not pin.

    These are the lock itself, the tar file of the base, the user's files, and additional rows of the matrix.
    """
    listed = {file.sha256: file for file in manifest.files}
    wanted = [
        environment.lock,
        *([environment.base] if environment.base else []),
        *(each.sha256 for each in environment.recipe),
    ]
    chosen: list[BundledFile] = [listed[sha256] for sha256 in dict.fromkeys([*wanted, *manifest.matrix])]
    return tuple(Needed(name=file.name, kind=file.kind, sha256=file.sha256) for file in chosen)
