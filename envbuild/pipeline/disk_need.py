"""Estimates the disk space that the builds of environments take, from the file sizes in their locks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import BuildError, InvalidInputError
from envbuild.model.lock import Lock
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.engine.model import EngineInfo

# The size of unpacked wheels, divided by the size of the wheel files. Measured: 2.9 to 4.8 for CPU, and 1.8 for an image that
# is mostly CUDA libraries. So the estimate for a CPU image can be too high by more than a third, or too low by a sixth.
_UNPACKED = 4.0
_UNPACKED_CUDA = 2.0
# The same ratio for Debian packages. Measured: 3.6 for the base of Debian 12, 3.3 for the base of Debian 11, and 4.2 for
# graphics libraries.
_UNPACKED_BASE = 3.5
_UNPACKED_DEBS = 4.2


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskNeed:
    """The bytes that builds need: ``downloads`` in the cache folder; in the engine ``images``, and ``kept`` for the unpacked
    wheels that BuildKit keeps of the largest build (:mod:`envbuild.engine.download_cache`).

    A file that several environments share counts once. ``unknown`` is the number of environments whose lock lacks some sizes,
    for example the size of a pulled base.
    """

    downloads: int
    images: int
    unknown: int
    kept: int = 0

    @property
    def total(self) -> int:
        """The number of bytes of all files together."""
        return self.downloads + self.images + self.kept


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
    locks: Iterable[Lock], held: Iterable[str], *, shares_layers: bool, sizes: Mapping[str, int] | None = None
) -> DiskNeed:
    """Estimate the disk space that the images of ``locks`` need. ``held`` are the names of files that need no download.

    ``shares_layers`` is true if the composer makes the images. Then the same wheel in two images is one layer. ``sizes`` maps
    the name of an environment to the measured size of its image in bytes. A measured size replaces the estimate for the image.
    The base is still estimated on its own, because several images can share it.
    """
    have = frozenset(held)
    downloads: dict[str, int] = {}
    unpacked: dict[str, float] = {}
    unknown, kept = 0, 0.0
    for lock in locks:
        factor = _UNPACKED if lock.environment.cuda is None else _UNPACKED_CUDA
        wheels = [artifact for prefix in lock.prefixes for artifact in prefix.artifacts]
        unknown += lock.base.bootstrap is None or any(artifact.size is None for artifact in wheels)
        own: dict[str, float] = {}
        for artifact in wheels:
            if artifact.filename not in have:
                downloads[artifact.sha256] = artifact.size or 0
            key = artifact.sha256 if shares_layers else f"{lock.environment.name} {artifact.sha256}"
            own[key] = factor * (artifact.size or 0)
        if not shares_layers:
            kept = max(kept, sum(own.values()))
        based = lock.base.bootstrap.packages if lock.base.bootstrap else ()
        for package in lock.debs():
            if f"{package.sha256}.deb" not in have:
                downloads[package.sha256] = package.size
        for package in based:
            unpacked[package.sha256] = _UNPACKED_BASE * package.size
        for package in lock.step_debs():
            own[f"{lock.environment.name} {package.sha256}"] = _UNPACKED_DEBS * package.size
        size = (sizes or {}).get(lock.environment.name)
        if size is not None:
            own = {lock.environment.name: max(0.0, size - sum(_UNPACKED_BASE * package.size for package in based))}
        unpacked |= own
    return DiskNeed(downloads=sum(downloads.values()), images=round(sum(unpacked.values())), unknown=unknown, kept=round(kept))


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
    need = estimate([locked.lock], held, shares_layers=is_composed)
    require_space(disks(tools.workspace.home, tools.engine.info, need), name)


def need_of(tools: Tools, names: Sequence[str], *, shares_layers: bool, anew: bool = False) -> DiskNeed:
    """Estimate the disk space for building ``names``. An environment with no lock or a damaged lock counts as unknown.

    An environment counts as zero if the engine has an image that the chosen builder made from the current lock. Only the last
    layers of such an image can change, for example because of another smoke test. With ``anew``, all images are built again, so
    they all count.
    """
    locked = [_lock_of(tools, name) for name in names if anew or not _has_image(tools, name, is_composed=shares_layers)]
    locks = [lock for lock in locked if lock]
    held = [*_downloaded(tools), *(_in_layers(tools, locks) if shares_layers else ())]
    need = estimate(locks, held, shares_layers=shares_layers)
    without = sum(lock is None for lock in locked)
    return replace(need, unknown=need.unknown + without)


def _downloaded(tools: Tools) -> list[str]:
    folder = tools.workspace.downloads
    return [path.name for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


def _in_layers(tools: Tools, locks: Sequence[Lock]) -> set[str]:
    """Return the file names of the wheels that the composer does not download, because its store has all their layers."""
    if not tools.workspace.layers.is_dir():
        return set()
    from envbuild import render
    from envbuild.compose.downloads import to_fetch
    from envbuild.pipeline.composing import store_of

    store = store_of(tools)

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
    found = [Disk(place=str(home), device=device, free=free, needed=need.downloads)]
    if engine.free_bytes is not None:
        root = Path(engine.data_root)
        found.append(
            Disk(place=engine.data_root, device=root.stat().st_dev, free=engine.free_bytes, needed=need.images + need.kept)
        )
    return found
