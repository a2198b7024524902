"""Estimates the disk space that the builds of environments take, from the file sizes in their locks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import BuildError, InvalidInputError
from envbuild.model.lock import Artifact, Lock
from envbuild.pipeline import composing
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unpacked_sizes import UnpackedSizes

if TYPE_CHECKING:
    from envbuild.engine.model import EngineInfo

_SMOKE = 9_000_000  # measured: the smoke test and the lock, which are in the build context and in the image
_ARCHIVED = 0.9  # measured: the size of the archive of a base, divided by the disk space of its unpacked files


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskNeed:
    """The bytes that builds need: ``stored`` in the cache folder; in the engine ``images``, and ``kept``.

    ``downloads`` are the bytes to download. Not all of them are stored: an engine unpacks wheels while they arrive. ``kept`` is
    what BuildKit keeps of the largest build: its context, and its wheels (:mod:`envbuild.engine.download_cache`). A file that
    several environments share counts once. ``unknown`` is the number of environments whose lock lacks some sizes, for example
    the size of a pulled base.
    """

    downloads: int
    stored: int
    images: int
    unknown: int
    kept: int = 0

    @property
    def total(self) -> int:
        """The number of bytes on all disks together."""
        return self.stored + self.images + self.kept

    def to_json(self) -> dict[str, int]:
        """Return the object ``disk`` of JSON answers."""
        return {
            "downloads": self.downloads,
            "stored": self.stored,
            "images": self.images,
            "kept": self.kept,
            "total": self.total,
            "unknown": self.unknown,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A folder (``place``), and the free and the needed bytes of its file system.

    Folders with the same ``device`` are on the same file system.
    """

    place: str
    device: int
    free: int
    needed: int


def estimate(
    locks: Iterable[Lock],
    held: Iterable[str],
    unpacked: UnpackedSizes,
    *,
    composed: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
    in_containerd: bool = False,
) -> DiskNeed:
    """Estimate the disk space that the images of ``locks`` need. ``held`` are the names of files that need no download.

    ``composed`` are the names of the environments whose images the composer makes. The same wheel in two such images is one
    layer, and the cache folder has the wheel and the layer. ``sizes`` maps the name of an environment to the measured size of
    its image in bytes. Such a size counts if it is larger than the estimate. For example, a lock does not say how large a
    pulled base is. An engine states slightly smaller sizes than the files take on the disk, so the measured size of other
    images is not used.
    ``in_containerd`` is true if the engine is Docker with containerd's image store, which keeps more copies of each layer.
    """
    have = frozenset(held)
    downloads: dict[str, int] = {}
    stored: dict[str, float] = {}
    images: dict[str, float] = {}
    unknown, kept = 0, 0.0
    for lock in locks:
        name = lock.environment.name
        is_composed = name in composed
        measured = (sizes or {}).get(name)
        unknown += measured is None and _lacks_sizes(lock)
        for tool in _tools(lock):
            stored[tool.sha256] = tool.size or 0
        stored[name] = _context(lock, unpacked)
        for artifact in (each for prefix in lock.prefixes for each in prefix.artifacts if each.filename not in have):
            downloads[artifact.sha256] = artifact.size or 0
            stored[artifact.sha256] = 2 * (artifact.size or 0) if is_composed else stored.get(artifact.sha256, 0)
        for package in (each for each in lock.debs() if f"{each.sha256}.deb" not in have):
            downloads[package.sha256] = package.size
            stored[package.sha256] = package.size
        base = _base(lock, unpacked)
        images |= base
        stored |= {f"base {package}": _ARCHIVED * size for package, size in base.items()}  # kept for the next engine
        own = _steps(lock, unpacked)
        if in_containerd:
            images |= {f"compressed {key}": _ARCHIVED * size for key, size in base.items()}
            images |= {f"of the builder {key}": size for key, size in base.items()}
            copies = _copies_in_containerd(lock, own, is_composed=is_composed)
            images |= {key if is_composed else f"{name} {key}": each for key, each in copies.items()}
        if not is_composed:
            kept = max(kept, _kept(lock, own) + _context(lock, unpacked))
        if measured is not None and measured - sum(base.values()) > sum(own.values()):
            images[name] = measured - sum(base.values())
        else:
            images |= {key if is_composed else f"{name} {key}": each for key, each in own.items()}
    return DiskNeed(
        downloads=sum(downloads.values()),
        stored=round(sum(stored.values())),
        images=round(sum(images.values())),
        unknown=unknown,
        kept=round(kept),
    )


def _lacks_sizes(lock: Lock) -> bool:
    """Whether the lock does not state the size of some part of the image. Examples are a pulled base, and a framework that is
    built from its git repository."""
    artifacts = (artifact for prefix in lock.prefixes for artifact in prefix.artifacts)
    return lock.base.bootstrap is None or bool(lock.sources) or any(artifact.size is None for artifact in artifacts)


def _base(lock: Lock, unpacked: UnpackedSizes) -> dict[str, float]:
    """The unpacked size of each package of a bootstrapped base, by the sha256 of the package."""
    base = lock.base.bootstrap
    return {package.sha256: unpacked.of_base(package, base.suite) for package in base.packages} if base else {}


def _steps(lock: Lock, unpacked: UnpackedSizes) -> dict[str, float]:
    """The unpacked size of each file that is installed on the base, by the sha256 of the file."""
    suite, with_cuda = lock.environment.system.codename, lock.environment.cuda is not None
    found = {"smoke": float(_SMOKE)}
    found |= {package.sha256: unpacked.of_package(package, suite) for package in lock.step_debs()}
    for prefix in lock.prefixes:
        found |= {each.sha256: unpacked.of_artifact(each, with_cuda=with_cuda) for each in prefix.artifacts}
    return found


def _copies_in_containerd(lock: Lock, own: Mapping[str, float], *, is_composed: bool) -> dict[str, float]:
    """Return the sizes in bytes of the further copies of each installed file that Docker keeps with containerd's image store.

    This store keeps a compressed copy of each layer, which is about as large as the wheels and packages that were installed.
    The builder keeps another unpacked copy of each layer that it makes. If the image is composed, the builder makes only the
    layers of Debian packages. It then also keeps the packages themselves, and compressed copies of their layers.
    """
    packages = {package.sha256: float(package.size) for package in lock.step_debs()}
    artifacts = {each.sha256: float(each.size or 0) for prefix in lock.prefixes for each in prefix.artifacts}
    found = {f"compressed {key}": size for key, size in (packages | artifacts).items()}
    found |= {f"of the builder {key}": size for key, size in own.items() if not is_composed or key in packages}
    if is_composed:
        found |= {f"for the builder {key}": 2 * size for key, size in packages.items()}
    return found


def _kept(lock: Lock, unpacked: Mapping[str, float]) -> float:
    """The bytes that BuildKit keeps of a build in addition to the image: the Debian packages in the context, and the wheels. uv
    unpacks wheels before it installs them, and pip does not."""
    wheels = (
        unpacked[each.sha256] if prefix.backend == "uv" else each.size or 0
        for prefix in lock.prefixes
        for each in prefix.artifacts
    )
    return sum(package.size for package in lock.step_debs()) + sum(wheels)


def _tools(lock: Lock) -> list[Artifact]:
    """The programs that install the packages of the lock."""
    return [*lock.tools, *(prefix.pip for prefix in lock.prefixes if prefix.pip is not None)]


def _context(lock: Lock, unpacked: UnpackedSizes) -> float:
    """The bytes of a build context without its Debian packages, which are links to the downloaded files."""
    pips = sum(prefix.pip.size or 0 for prefix in lock.prefixes if prefix.pip is not None)  # the image gets the wheel itself
    return _SMOKE + pips + sum(unpacked.of_artifact(tool, with_cuda=False) for tool in lock.tools)


def require_space(disks: Sequence[Disk], name: str = "") -> None:
    """Raise :class:`BuildError` (``no-space``) if a disk has less free space than is needed on it.

    ``name`` is the environment if only one is built.
    """
    by_device: dict[int, list[Disk]] = {}
    for disk in disks:
        by_device.setdefault(disk.device, []).append(disk)
    for same in by_device.values():
        needed, free = sum(disk.needed for disk in same), min(disk.free for disk in same)
        if needed > free:
            fewer = "" if name else "Build fewer environments at a time (--match). Or "
            raise BuildError(
                f"{f'The build of {name} needs' if name else 'These environments need'} about {needed / 1000000000.0:.1f} GB "
                f"in {' and '.join(disk.place for disk in same)}, but only {free / 1000000000.0:.1f} GB are free on the file "
                f"system mounted at {files.mount_point(Path(same[0].place))}. Nothing was {'built' if name else 'started'}.",
                code="no-space",
                hint=f"{fewer}{'free' if fewer else 'Free'} some space (`docker system prune`, `envbuild cache prune`), or set "
                "ENVBUILD_HOME to a folder on a larger disk.",
            )


def require_space_of(tools: Tools, locked: Locked, *, is_composed: bool, anew: bool = False) -> None:
    """Raise :class:`BuildError` (``no-space``) if there is too little space to build the image of one lock.

    First, files that earlier builds downloaded are removed from the engine if its disk is nearly full. Nothing is done in a
    process that a batch started, because the batch has checked all its builds together, and other builds are running. Call
    this only if something has to be built.
    """
    name = locked.lock.environment.name
    if tools.space_is_checked:
        return
    if not anew and _has_image(tools, name, is_composed=is_composed):
        return
    tools.engine.make_room(tools.on_progress)
    held = [*_downloaded(tools), *(_in_layers(tools, [locked.lock]) if is_composed else ())]
    need = estimate(
        [locked.lock],
        held,
        tools.unpacked_sizes,
        composed=[name] if is_composed else (),
        in_containerd=tools.engine.image_store == "containerd",
    )
    require_space(disks(tools.workspace.home, tools.engine.info, need), name)


def need_of(tools: Tools, names: Sequence[str], *, is_composed: Callable[[Lock], bool], anew: bool = False) -> DiskNeed:
    """Estimate the disk space for building ``names``. An environment with no lock or a damaged lock counts as unknown.

    ``is_composed`` says whether the composer makes the image of a lock. An environment counts as zero if the engine has an
    image that the same builder made from the current lock. Only the last layers of such an image can change, for example
    because of another smoke test. With ``anew``, all images are built again, so they all count.
    """
    found = [_lock_of(tools, name) for name in names]
    ways = {lock.environment.name: (lock, is_composed(lock)) for lock in found if lock}
    to_build = {name: way for name, way in ways.items() if anew or not _has_image(tools, name, is_composed=way[1])}
    locks, to_compose = [lock for lock, _ in to_build.values()], [lock for lock, composed in to_build.values() if composed]
    need = estimate(
        locks,
        [*_downloaded(tools), *_in_layers(tools, to_compose)],
        tools.unpacked_sizes,
        composed=[lock.environment.name for lock in to_compose],
        in_containerd=bool(locks) and tools.engine.image_store == "containerd",
    )
    return replace(need, unknown=need.unknown + found.count(None))


def _downloaded(tools: Tools) -> list[str]:
    folder = tools.workspace.downloads
    return [path.name for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _in_layers(tools: Tools, locks: Sequence[Lock]) -> set[str]:
    """Return the file names of the wheels that the composer does not download, because its store has all their layers."""
    if not locks or not tools.workspace.layers.is_dir():
        return set()
    from envbuild import render
    from envbuild.compose.downloads import to_fetch

    store = composing.store_of(tools)

    def is_stored(key: str) -> bool:
        layer = store.known(key)
        return layer is not None and store.has(layer)

    names, fetched = set(), set()
    for lock in locks:
        if all(each.recipe in tools.recipes for each in lock.environment.frameworks):
            order = render.install_order(lock, tools.recipes)
            fetched |= {each.filename for prefix in lock.prefixes for each in to_fetch(lock, prefix, order, is_stored)}
            names |= {each.filename for prefix in lock.prefixes for each in prefix.artifacts if each.filename.endswith(".whl")}
    return names - fetched


def _has_image(tools: Tools, name: str, *, is_composed: bool) -> bool:
    from envbuild import build

    record, path = build.read_record(tools.workspace, name), tools.workspace.lock_file(name)
    if record is None or not path.is_file() or record.lock != files.sha256_of(path):
        return False
    return (record.builder == "compose") == is_composed and tools.engine.image(record.image) is not None


def _lock_of(tools: Tools, name: str) -> Lock | None:
    try:
        locked = read_locked(tools, name)
    except InvalidInputError:  # the child process for this environment reports the error
        return None
    return locked.lock if locked else None


def disks(home: Path, engine: EngineInfo, need: DiskNeed) -> list[Disk]:
    """Return the disk of the cache folder, and the disk of the engine's data if this machine can see it."""
    there = next(place for place in (home, *home.parents) if place.exists())
    device, free = there.stat().st_dev, shutil.disk_usage(there).free
    found = [Disk(place=str(home), device=device, free=free, needed=need.stored)]
    if engine.free_bytes is not None:
        root = Path(engine.data_root)
        found.append(
            Disk(place=engine.data_root, device=root.stat().st_dev, free=engine.free_bytes, needed=need.images + need.kept)
        )
    return found
