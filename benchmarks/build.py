"""How long does it take until the engine has an image?

The image is composed, or built from its own Dockerfile, or built from a Dockerfile as people write it by hand.

    python benchmarks/build.py [--rounds 3] [--registry | --together [--same-cuda] [--beside WAY]] [NAME…]

In each round, each way makes each image once. The ways take turns, so that other load on the machine affects all ways alike.
All ways begin with the same image of the system and Python. Nothing else is cached: every wheel is downloaded again. The way
`floor` is the minimum that every way needs: it downloads the same files with four connections and writes the unpacked bytes
once. The table shows the median time of each way and the median ratio of this time to the time of composing. The lines below
the table list the phases of composing. They show during which share of the time each phase was active; phases overlap.

With `--registry` each image goes to an empty `docker-registry` (a package of Debian) on loopback. `build --to` writes the
composed image there without a copy in the engine; all other images are built and pushed. Then each image is made and pushed
again without its smallest package. This second build uses the caches that the first build has filled.

With `--together` the images of all NAMEs go to one registry, one after the other. By default these are three images of
TensorFlow, three of PyTorch and two of MXNet. envbuild's caches are empty at first and then kept. The image of a Dockerfile
written by hand is built without a cache, as the Dockerfile says. uv does not support Python 2.7, so pip installs the packages
of images with Python 2.7. The table shows the seconds and the bytes in the registry. With the default NAMEs, this needs about
30 GB of free disk space. With `--same-cuda`, three images of PyTorch have the same CUDA, and so have three of TensorFlow.
`--beside` names the ways to compare with; by default these are pip and uv by hand.

Each line of progress also shows the seconds that all processors were busy. They include the work of other programs on the
machine. This benchmark needs an engine (`envbuild engine up`) and a package index.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loopback_registry import registry

from envbuild import build, build_context, build_preparation, build_secret, render, workspace
from envbuild.compose import bytecode_cache, engine_image, skeleton, wheel_layer
from envbuild.compose.outputs import engine as engine_output
from envbuild.compose.outputs import registry_client
from envbuild.engine import package_check
from envbuild.engine.client import Engine
from envbuild.index.client import Index
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import building, composing, composing_elsewhere, pushing
from envbuild.pipeline.tools import Tools

NAMES = ("opencv-5.0.0.93-cpu-py311-debian12", "tf-2.21.0-cpu-py311-debian12")
EIGHT = (
    "tf-2.21.0-cpu-py311-debian12",
    "tf-2.18.1-cpu-py311-debian12",
    "tf-2.15.1-cpu-py311-debian12",
    "pytorch-2.15.0-cuda13.2-py311-debian12",
    "pytorch-2.11.0-cuda13.0-py311-debian12",
    "pytorch-2.1.2-cuda12.1-py311-debian12",
    "mxnet-1.9.1-cpu-py39-debian11",
    "mxnet-1.6.0-cpu-py27-debian11",
)
SCRATCH = "/dev/shm/envbuild"  # the build secret writes files here that programs of the build read
SAME_CUDA = (
    "tf-2.5.3-cuda11.2-py39-debian11",
    "tf-2.6.5-cuda11.2-py39-debian11",
    "tf-2.8.4-cuda11.2-py39-debian11",
    "pytorch-2.8.0-cuda12.8-py311-debian12",
    "pytorch-2.9.1-cuda12.8-py311-debian12",
    "pytorch-2.10.0-cuda12.8-py311-debian12",
    "mxnet-1.9.1-cpu-py39-debian11",
    "mxnet-1.6.0-cpu-py27-debian11",
)
INSTALL = {
    "pip": "python /tools/pip.whl/pip install --no-cache-dir --no-deps -r /requirements.txt",
    "uv": "/tools/uv pip install --no-cache --no-deps --python /opt/env/bin/python -r /requirements.txt",
}
INSTALL["uv with bytecode"] = INSTALL["uv"] + " --compile-bytecode"

BY_HAND = ("pip by hand", "uv by hand")

DOCKERFILE = """\
FROM {base}
SHELL ["/bin/bash", "-c"]
COPY tools /tools
COPY requirements.txt /requirements.txt
RUN --mount=type=secret,id=envbuild mkdir -p {scratch} && . /run/secrets/envbuild && {install}
"""


@dataclass(kw_only=True)
class Case:
    """One environment, and the base image, build context and tools with which every way begins."""

    tools: Tools
    lock: Lock
    base: str
    context: Path
    image_of_system: Callable[[], object]

    @property
    def engine(self) -> Engine:
        return self.tools.engine


def prepare(tools: Tools, name: str, scratch: Path) -> Case:
    """Make the base image of the system and Python, and a build context with pip and uv for Dockerfiles written by hand."""
    lock = lock_file.read(tools.workspace.lock_file(name))
    rendering = render.render(lock, tools.recipes, tools.templates)
    by_hand = scratch / name
    inputs = replace(tools.build_inputs(lock, rendering), on_progress=ignore_progress)
    real, have = build_preparation.provide_base(lock, tools.engine, tools.workspace, ignore_progress)
    have(lock.step_debs())
    context = build_context.assemble(inputs, folder=scratch / f"{name}.context")
    (context / skeleton.DOCKERFILE).write_text(render.skeleton(lock, tools.recipes, tools.templates))
    base = f"envbuild-benchmark/base:{lock_file.digest(lock)[:12]}"

    def image_of_system() -> None:
        arguments = {"BASE_IMAGE": real.reference, "SOURCE_DATE_EPOCH": str(int(build_preparation.time_of(lock).timestamp()))}
        tools.engine.build(context, tag=base, build_args=arguments, dockerfile=skeleton.DOCKERFILE, target=skeleton.BELOW)

    (by_hand / "tools").mkdir(parents=True)
    if lock.prefixes[0].backend == "uv":
        shutil.copy(context / "tools/uv", by_hand / "tools/uv")
    pip = lock.prefixes[0].pip
    assert pip is not None
    shutil.copy(tools.index.fetch_artifact(pip, tools.workspace.downloads), by_hand / "tools/pip.whl")
    return Case(tools=tools, lock=lock, base=base, context=by_hand, image_of_system=image_of_system)


def by_hand(case: Case, way: str) -> list[str]:
    install = INSTALL["pip" if case.lock.prefixes[0].backend == "pip" else way]  # uv does not support old Pythons
    (case.context / "Dockerfile").write_text(DOCKERFILE.format(base=case.base, install=install, scratch=SCRATCH))
    lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}" for each in case.lock.prefixes[0].artifacts]
    (case.context / "requirements.txt").write_text("\n".join(lines) + "\n")
    tag = f"envbuild-benchmark/{way.replace(' ', '-')}:latest"
    secrets = build_secret.joined(case.tools.index.build_secrets())
    case.engine.build(case.context, tag=tag, secrets=secrets)
    return [tag]


def ours(case: Case, *, compose: bool, place: str = "") -> list[str]:
    tools = case.tools
    rendering = render.render(case.lock, tools.recipes, tools.templates)
    if compose and place:
        composing_elsewhere.build_to(tools, case.lock, rendering, place)
        return []
    make_image = composing.composer(tools, case.lock) if compose else None
    inputs = replace(tools.build_inputs(case.lock, rendering), on_progress=ignore_progress)
    made = build.build(tools.engine, inputs, compose=make_image)
    return list(made.tags)


def floor(case: Case) -> list[str]:
    """Download the wheels, and write their unpacked contents once."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        wheels = sorted(case.lock.prefixes[0].artifacts, key=lambda each: -(each.size or 0))
        for wheel in pool.map(lambda each: case.tools.index.fetch_artifact(each, Path(folder)), wheels):
            with zipfile.ZipFile(wheel) as archive, Path(folder, "unpacked").open("ab") as out:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        shutil.copyfileobj(member, out, 1 << 20)
    return []


COMPOSED, FLOOR = "envbuild, composed", "floor"
WAYS: dict[str, Callable[[Case], list[str]]] = {
    COMPOSED: lambda case: ours(case, compose=True),
    "envbuild, Dockerfile": lambda case: ours(case, compose=False),
    "pip by hand": lambda case: by_hand(case, "pip"),
    "uv by hand": lambda case: by_hand(case, "uv"),
    "uv by hand, with bytecode": lambda case: by_hand(case, "uv with bytecode"),
    FLOOR: floor,
}


def publish(case: Case, way: str, host: str) -> list[str]:
    """Make the image and push it to the registry ``host``.

    ``build --to`` pushes a composed image. envbuild pushes the image of its own Dockerfile from the layer store, and the engine
    pushes the images of Dockerfiles written by hand.
    """
    if way == COMPOSED:
        return ours(case, compose=True, place=f"{host}/benchmark")
    tags = WAYS[way](case)
    if way.startswith(build.REPOSITORY):
        record = building.last_built(case.tools, case.lock.environment.name)
        pushing.push(case.tools, record, f"{host}/benchmark", None)
    elif tags:
        target = f"{host}/{tags[0]}"
        case.engine.tag(tags[0], target)
        docker = [case.engine.cli.path, "--host", case.engine.endpoint, "push", "--quiet", target]
        subprocess.run(docker, check=True, stdout=subprocess.DEVNULL)
        tags.append(target)
    return tags


class Phases:
    """Measure how long each phase was active. A phase is active while at least one thread executes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.noted: dict[str, float] = {}

    def note(self) -> None:
        """Copy the seconds that were measured so far to ``noted``."""
        self.noted = dict(self.seconds)

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Count the time in calls of ``owner.name`` as time of ``phase``."""
        watched = getattr(owner, name)

        @functools.wraps(watched)
        def counted(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                if not self._inside.setdefault(phase, 0):
                    self._began[phase] = time.monotonic()
                self._inside[phase] += 1
            try:
                return watched(*arguments, **options)
            finally:
                with self._lock:
                    self._inside[phase] -= 1
                    if not self._inside[phase]:
                        took = time.monotonic() - self._began[phase]
                        self.seconds[phase] = self.seconds.get(phase, 0.0) + took

        setattr(owner, name, counted)


def watch_phases() -> Phases:
    phases = Phases()
    phases.watch(build_preparation, "assemble_without_guest", "build context")
    phases.watch(build_preparation, "add_guest", "smoke test and descriptions for the build context")
    phases.watch(Engine, "build", "the engine builds the skeleton")
    phases.watch(engine_image, "keep_layers", "the engine saves the skeleton's layers")
    phases.watch(Index, "fetch_artifact", "download")
    phases.watch(bytecode_cache, "keep", "bytecode")
    phases.watch(wheel_layer, "write", "convert wheels to layers")
    phases.watch(engine_output, "send", "load into the engine")
    phases.watch(registry_client.Client, "upload", "send layers to the registry")
    phases.watch(registry_client.Client, "upload_unfinished", "send layers to the registry while they are written")
    phases.watch(package_check, "require_pinned", "check Debian packages in the image")
    return phases


def busy() -> float:
    """The seconds that the processors of this machine were busy since its start, all added up."""
    user, nice, system, _idle, _waiting, irq, softirq = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def begin(case: Case) -> None:
    """Empty the builder's cache, and make the base image that every way begins with."""
    docker = [case.engine.cli.path, "--host", case.engine.endpoint, "builder", "prune", "--all", "--force"]
    subprocess.run(docker, check=True, stdout=subprocess.DEVNULL)
    case.image_of_system()
    os.sync()


def forget(case: Case) -> None:
    """Remove earlier images, and empty all caches."""
    record = build.read_record(case.tools.workspace, case.lock.environment.name)
    for tag in record.tags if record else ():
        case.engine.remove_image(tag)
    for folder in (case.tools.workspace.layers, case.tools.workspace.built_wheels):
        shutil.rmtree(folder, ignore_errors=True)
    pinned = {each.filename for each in case.lock.prefixes[0].artifacts}
    for file in case.tools.workspace.downloads.iterdir():
        if file.name in pinned:
            file.unlink()


def remove(engine: Engine, tags: Sequence[str]) -> None:
    """Remove the images with these tags and their other names, such as those for `docker push`."""
    for image in {found.id for tag in tags if (found := engine.image(tag))}:
        engine.remove_image(image)


def without_one(case: Case) -> Case:
    """Return the same case without the smallest package of its lock."""
    prefix, *others = case.lock.prefixes
    smallest = min(prefix.artifacts, key=lambda each: each.size or 0)
    left = tuple(each for each in prefix.artifacts if each != smallest)
    return replace(case, lock=replace(case.lock, prefixes=(replace(prefix, artifacts=left), *others)))


def measure(case: Case, way: str, host: str, phases: Phases) -> dict[str, float]:
    """Measure the seconds until the image is in the engine.

    If a registry ``host`` is given, measure the seconds until the image is in the registry. Then also measure the seconds until
    the image without one package is in the registry.
    """
    forget(case)
    begin(case)
    phases.seconds.clear()
    tags: list[str] = []
    try:
        began, work = time.monotonic(), busy()
        tags += publish(case, way, host) if host else WAYS[way](case)
        took = {"registry" if host else "engine": time.monotonic() - began}
        work = busy() - work
        phases.note()
        if host and way != FLOOR:
            began = time.monotonic()
            tags += publish(without_one(case), way, host)
            took["one less"] = time.monotonic() - began
    finally:
        remove(case.engine, tags)
    print(f"  {case.lock.environment.name}, {way}: {told(took)} (busy {work:.1f} s)", file=sys.stderr, flush=True)
    return took


def together(cases: Sequence[Case], way: str, scratch: Path) -> tuple[float, int]:
    """Make all images and push them to one registry, one after the other. Return the seconds, and the bytes in the registry."""
    total = 0.0
    for case in cases:
        forget(case)
    with registry(scratch) as place:
        for case in cases:
            begin(case)
            began, work = time.monotonic(), busy()
            tags = publish(case, way, place.host)
            took, work = time.monotonic() - began, busy() - work
            total += took
            remove(case.engine, tags)
            name = case.lock.environment.name
            stored = place.size()
            print(f"  {name}, {way}: {took:.1f} s, {stored / 1e6:.0f} MB (busy {work:.1f} s)", file=sys.stderr, flush=True)
    for case in cases:  # not earlier: Docker 20.10 would lose layers of a base that the next base shares
        forget(case)
        case.engine.remove_image(case.base)
    return total, stored


def measure_together(cases: Sequence[Case], beside: Sequence[str], scratch: Path) -> None:
    """Print the seconds and bytes of each way.

    For each way with Dockerfiles written by hand, also print the seconds and bytes of composing as shares of that way's.
    """
    ours_s, ours_bytes = together(cases, COMPOSED, scratch)
    print(f"\n{len(cases)} environments in one registry\n{'seconds':>9} {'share':>6} {'MB':>7} {'share':>6}")
    print(f"{ours_s:9.1f} {'':6} {ours_bytes / 1e6:7.0f} {'':6}   {COMPOSED}", flush=True)
    for way in beside:
        seconds, size = together(cases, way, scratch)
        shares = ours_s / seconds, ours_bytes / size
        print(f"{seconds:9.1f} {shares[0]:6.0%} {size / 1e6:7.0f} {shares[1]:6.0%}   {way}", flush=True)


def told(took: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items())


def table(rows: dict[str, list[dict[str, float]]]) -> None:
    """Print the median time of each way, and the median ratio of this time to the time of composing in the same round."""
    for goal in rows[COMPOSED][0]:
        print(f"\n{'seconds':>9} {'ratio':>6}   until it is in the {goal}" if goal != "one less" else "\none package less")
        for way, rounds in rows.items():
            taken = [each[goal] for each in rounds if goal in each]
            if taken:
                pairs = zip(taken, (each[goal] for each in rows[COMPOSED]), strict=True)
                ratio = statistics.median(mine / other for mine, other in pairs)
                print(f"{statistics.median(taken):9.1f} {ratio:6.2f}   {way}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--registry", action="store_true")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--same-cuda", action="store_true")
    parser.add_argument("--beside", action="append", choices=BY_HAND, metavar="WAY")
    options = parser.parse_args()
    tools = Tools(workspace.find())
    about: Any = tools.engine.info
    phases = watch_phases()
    print(f"{about.name}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds")
    with tempfile.TemporaryDirectory() as scratch:
        if options.together:
            names = options.names or (SAME_CUDA if options.same_cuda else EIGHT)
            cases = [prepare(tools, name, Path(scratch)) for name in names]
            measure_together(cases, options.beside or BY_HAND, Path(scratch))
            return 0
        for name in options.names or NAMES:
            case = prepare(tools, name, Path(scratch))
            rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            shares: dict[str, list[float]] = {}
            for _ in range(options.rounds):
                for way in WAYS:
                    with registry(Path(scratch)) if options.registry else contextlib.nullcontext() as place:
                        rows[way].append(measure(case, way, place.host if place else "", phases))
                    if way == COMPOSED:
                        for phase, seconds in phases.noted.items():
                            shares.setdefault(phase, []).append(seconds / next(iter(rows[way][-1].values())))
            print(f"\n{name}")
            table(rows)
            for phase, found in sorted(shares.items(), key=lambda each: -statistics.median(each[1])):
                print(f"{statistics.median(found):9.0%}          {phase}")
            tools.engine.remove_image(case.base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
