"""How large do the files of the committed locks get on a disk? Measure it, and compare forecasts with images that were built.

    python benchmarks/unpacked_sizes.py                  # measures, and writes images/unpacked-sizes.json
    python benchmarks/unpacked_sizes.py --compare HOME   # compares forecasts with the images in the engine of ENVBUILD_HOME

The directory at the end of each wheel states the size of each file. Only this directory is downloaded: of each wheel of at
least 1 MB, and of one wheel of each other project. Some wheels also get bytecode, which is about as large as the modules.
Files take whole blocks of 4 KiB. The lists of packages of this machine's Debian mirrors state the installed sizes of packages.

The comparison prints, for each image: the size that the engine states; the space that its files take on the disk, if the engine
still has the image; the error of the forecast; and the error if no release in the lock had been measured, but only other
releases of the same projects, as for an image with new releases. If HOME has built only one image, with the private engine, its
last line compares all files of HOME with the forecast. It needs Docker with overlay2, DOCKER_HOST, and root.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath

from packaging.version import Version

from envbuild import files
from envbuild.engine import bootstrap
from envbuild.errors import EnvbuildError
from envbuild.index import remote_file
from envbuild.index.client import Index
from envbuild.model.lock import Artifact, Lock
from envbuild.pipeline import disk_need, unpacked_sizes
from envbuild.pipeline.stored_locks import read_lock
from envbuild.pipeline.unpacked_sizes import UnpackedSizes
from envbuild.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 4096
LARGE = 1_000_000  # a wheel of this size is measured in each release
SIMILAR = 0.05  # a release whose ratio differs by less from an earlier release needs no entry
LARGE_DEB = 300_000  # smaller packages get the ratio of all packages together
BLOCKS_OF_DEBS = 1.03  # Debian states sizes in KiB. Measured: files of the images' steps take 2.5 to 5 % more in whole blocks
BLOCKS_OF_BASE = 1.125  # many small files. Measured: 11.6 to 12.8 % for three releases of Debian
# Debian compiles the modules of Python when it installs them. The size of the bytecode is part of no list.
COMPILED = re.compile(r"(lib)?python[23](\.\d+)?-(stdlib|minimal|distutils|lib2to3)")
BYTECODE_OF_DEBS = 1.9


def locks() -> list[Lock]:
    return [read_lock(path) for path in sorted((ROOT / "images/environments").glob("*/lock.json"))]


def chosen(found: Iterable[Lock]) -> list[Artifact]:
    """The wheels to measure: all large ones, and the newest one of each other project."""
    parts = [(lock, prefix) for lock in found for prefix in lock.prefixes]
    tools = [each for lock, prefix in parts for each in (*lock.tools, prefix.pip) if each is not None]
    wheels = {each.sha256: each for each in (*(each for _, prefix in parts for each in prefix.artifacts), *tools)}
    only = [each for each in wheels.values() if each.filename.endswith(".whl") and each.size]
    newest: dict[str, Artifact] = {}
    for each in sorted(only, key=lambda each: Version(each.version)):
        newest[each.project] = each
    return sorted(
        {each.sha256: each for each in (*(each for each in only if (each.size or 0) >= LARGE), *newest.values())}.values(),
        key=lambda each: each.filename,
    )


def on_disk(archive: zipfile.ZipFile) -> int:
    """The bytes that the files of a wheel take when they are installed and compiled: whole blocks, also for folders."""
    total, folders = 0, set()
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        folders.update(map(str, path.parents))
        blocks = -(-member.file_size // BLOCK)
        total += blocks
        if path.suffix == ".py":
            total += max(1, blocks)
            folders.add(f"{path.parent}/__pycache__")
    return BLOCK * (total + len(folders))


def measured(index: Index, wheel: Artifact) -> float | None:
    """The space on the disk divided by the size of the wheel; None if the index lacks the wheel or cannot send parts."""
    try:
        stream = remote_file.open_remote(index, index.file_of(wheel).url, within_s=120)
        if stream is None:
            return None
        with zipfile.ZipFile(stream) as archive:
            return on_disk(archive) / (wheel.size or 1)
    except (EnvbuildError, OSError, zipfile.BadZipFile) as error:
        print(f"{wheel.filename}: {str(error)[:150]}", file=sys.stderr)
        return None


def by_release(wheels: Collection[Artifact]) -> dict[str, dict[Version, float]]:
    """Return the ratio of each version of each project. If a version has several wheels, it gets the mean of their ratios."""
    index = Index()
    with ThreadPoolExecutor(4) as pool:
        ratios = list(pool.map(lambda wheel: measured(index, wheel), wheels))
    seen: dict[str, dict[Version, list[float]]] = defaultdict(lambda: defaultdict(list))
    for wheel, ratio in zip(wheels, ratios, strict=True):
        if ratio is not None:
            seen[wheel.project][Version(wheel.version)].append(ratio)
    return {project: {version: statistics.mean(of) for version, of in each.items()} for project, each in sorted(seen.items())}


def entries(releases: Mapping[Version, float]) -> dict[str, float]:
    """Return the ratios of a project without those that are about the same as the ratio of the release before."""
    found: dict[str, float] = {}
    for version, ratio in sorted(releases.items()):
        if not found or abs(ratio / list(found.values())[-1] - 1) > SIMILAR:
            found[str(version)] = round(ratio, 2)
    return found


def of_debian(found: Iterable[Lock]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Return two tables: for each suite of Debian, the ratio of each package; and the ratio of the suite's minimal system."""
    with tempfile.TemporaryDirectory() as home:
        workspace = Workspace(root=ROOT, output=ROOT / "images", home=Path(home))
        packages: dict[str, dict[str, int]] = defaultdict(dict)
        base: dict[str, dict[str, int]] = {}
        parts: dict[str, set[str]] = defaultdict(set)
        for lock in found:
            if lock.base.bootstrap is not None:
                suite = lock.base.bootstrap.suite
                parts[suite] |= set(lock.environment.base.components)
                base[suite] = {each.name: each.size for each in lock.base.bootstrap.packages}
                packages[suite] |= {each.name: each.size for each in lock.step_debs()}
        debian, bases = {}, {}
        for suite in sorted(base):
            known = bootstrap.archive(workspace, suite, tuple(sorted(parts[suite]))).unpacked_ratios()
            ratios = {name: known[name] * (BYTECODE_OF_DEBS if COMPILED.fullmatch(name) else 1) for name in packages[suite]}
            debian[suite] = {
                name: round(BLOCKS_OF_DEBS * ratios[name], 2)
                for name, size in sorted(packages[suite].items())
                if size >= LARGE_DEB
            }
            bases[suite] = round(BLOCKS_OF_BASE * weighted(known, base[suite]), 2)
    return debian, bases


def weighted(ratios: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    return sum(ratios[name] * size for name, size in sizes.items()) / sum(sizes.values())


def built(home: Path) -> list[tuple[Lock, int, int | None, bool]]:
    """Return the committed locks whose images were built in the cache folder ``home``.

    With each lock come the size of its image as the engine stated it, the space of the image on the disk (None if the engine no
    longer has it), and whether the composer made it.
    """
    found = []
    for record in sorted((home / "builds").glob("*.json")):
        told = json.loads(record.read_text())
        path = ROOT / "images/environments" / told["name"] / "lock.json"
        if path.exists() and files.sha256_of(path) == told["lock"]:
            found.append((read_lock(path), int(told["size"]), space_of(told["image"]), told["builder"] == "compose"))
    return found


def space_of(image: str) -> int | None:
    """Return the bytes that all layers of an image take on the disk; None if the engine does not have the image.

    This needs root, and an engine with overlay2.
    """
    form = "{{.GraphDriver.Data.UpperDir}}:{{.GraphDriver.Data.LowerDir}}"
    told = subprocess.run(["docker", "inspect", "--format", form, image], capture_output=True, text=True, check=False)
    if told.returncode:
        return None
    folders = [each for each in told.stdout.strip().split(":") if each.startswith("/")]
    return blocks_of(*folders)


def blocks_of(*folders: str) -> int:
    summed = subprocess.run(["du", "-scx", "--block-size=1", *folders], capture_output=True, text=True, check=True)
    return int(summed.stdout.splitlines()[-1].split()[0])


def without(sizes: UnpackedSizes, lock: Lock, others: Mapping[str, Collection[str]]) -> UnpackedSizes:
    """``sizes`` as they would be if no release in ``lock`` had been measured. ``others`` are the versions of each project."""
    left = dict(sizes.wheels)
    for each in (each for prefix in lock.prefixes for each in prefix.artifacts if each.project in left):
        rest = tuple(step for step in left[each.project] if step[0] != Version(each.version))
        if rest or set(others[each.project]) == {each.version}:
            left[each.project] = rest
    return replace(sizes, wheels={project: steps for project, steps in left.items() if steps})


def compare(home: Path) -> int:
    """Print the errors of the forecasts."""
    sizes = unpacked_sizes.load(ROOT / "images/unpacked-sizes.json")
    versions: dict[str, set[str]] = defaultdict(set)
    for lock in locks():
        for each in (each for prefix in lock.prefixes for each in prefix.artifacts):
            versions[each.project].add(each.version)
    print("  stated  on disk    error  as new  image")
    largest = [0.0, 0.0]
    found = built(home)
    for lock, stated, space, _ in found:
        errors = []
        for each in (sizes, without(sizes, lock, versions)):
            forecast = disk_need.estimate([lock], (), each)
            errors.append(forecast.images / (space or stated) - 1)
        shown = f"{space / 1e6:8.0f}" if space else f"{'-':>8}"
        print(f"{stated / 1e6:8.0f} {shown} {errors[0]:+8.1%} {errors[1]:+7.1%}  {lock.environment.name}")
        if space:
            largest = [max(known, abs(error)) for known, error in zip(largest, errors, strict=True)]
    print(f"largest error of images on disk: {largest[0]:.1%}; as new: {largest[1]:.1%}")
    if len(found) == 1:
        ((lock, _, _, is_composed),) = found
        composed = [lock.environment.name] if is_composed else ()
        whole, forecast = blocks_of(str(home)), disk_need.estimate([lock], (), sizes, composed=composed).total
        error = forecast / whole - 1
        print(f"{home}, with its engine, takes {whole / 1e6:.0f} MB; forecast {forecast / 1e6:.0f} MB ({error:+.1%})")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", type=Path, metavar="HOME")
    options = parser.parse_args()
    if options.compare:
        return compare(options.compare)
    found = locks()
    wheels = chosen(found)
    releases = by_release(wheels)
    debian, bases = of_debian(found)
    found_ratios = {project: entries(of) for project, of in releases.items()}
    document = {"schema": 1, "bases": bases, "debian": debian, "wheels": found_ratios}
    files.write_atomic(ROOT / "images/unpacked-sizes.json", json.dumps(document, indent=1) + "\n")
    print(f"{len(wheels)} wheels of {len(releases)} projects, {sum(map(len, debian.values()))} Debian packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
