"""How long it takes until the engine has an image: composed, by its Dockerfile, and by Dockerfiles that people write by hand.

    python benchmarks/build.py [--rounds 3] [NAME…]

Each round makes each image once in each way, in turn, so that other load meets all of them alike. All ways begin with the same
image of the system and Python, and nothing else is cached: every wheel is downloaded again. `floor` is the least that any way
needs: it downloads the same files with four connections, and writes the unpacked bytes once. The table shows medians, and how
many times as long as composing each way takes. Needs an engine (`envbuild engine up`) and a package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import build, build_context, build_secret, render, workspace
from envbuild.compose import skeleton
from envbuild.engine.client import Engine
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.pipeline import composing
from envbuild.pipeline.tools import Tools

NAMES = ("opencv-5.0.0.93-cpu-py311-debian12", "tf-2.21.0-cpu-py311-debian12")
SCRATCH = "/dev/shm/envbuild"  # where the secret of a build writes what programs read from files
INSTALL = {
    "pip": "python /tools/pip.whl/pip install --no-cache-dir --no-deps -r /requirements.txt",
    "uv": "/tools/uv pip install --no-cache --no-deps --python /opt/env/bin/python -r /requirements.txt",
}
DOCKERFILE = """\
FROM {base}
SHELL ["/bin/bash", "-c"]
COPY tools /tools
COPY requirements.txt /requirements.txt
RUN --mount=type=secret,id=envbuild mkdir -p {scratch} && . /run/secrets/envbuild && {install}
"""


@dataclass(kw_only=True)
class Case:
    """One environment, with what every way of making its image begins with."""

    tools: Tools
    lock: Lock
    base: str
    context: Path
    image_of_system: Callable[[], object]

    @property
    def engine(self) -> Engine:
        return self.tools.engine


def prepare(tools: Tools, name: str, scratch: Path) -> Case:
    """The image of the system and Python, and a context with the tools of builds."""
    lock = lock_file.read(tools.workspace.lock_file(name))
    rendering = render.render(lock, tools.recipes, tools.templates)
    by_hand = scratch / name
    context = build_context.assemble(
        tools.workspace, lock, tools.recipes, rendering, tools.index, lambda _news: None, folder=scratch / f"{name}.context"
    )
    (context / skeleton.DOCKERFILE).write_text(render.skeleton(lock, tools.recipes, tools.templates))
    real, _ = build.provide_base(lock, tools.engine, tools.workspace, lambda _news: None)
    base = f"envbuild-benchmark/base:{lock_file.digest(lock)[:12]}"

    def image_of_system() -> None:
        arguments = {"BASE_IMAGE": real.reference, "SOURCE_DATE_EPOCH": str(int(build.time_of(lock).timestamp()))}
        tools.engine.build(context, tag=base, build_args=arguments, dockerfile=skeleton.DOCKERFILE, target=skeleton.BELOW)

    (by_hand / "tools").mkdir(parents=True)
    shutil.copy(context / "tools/uv", by_hand / "tools/uv")
    pip = lock.prefixes[0].pip
    assert pip is not None
    shutil.copy(tools.index.fetch_artifact(pip, tools.workspace.downloads), by_hand / "tools/pip.whl")
    lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}" for each in lock.prefixes[0].artifacts]
    (by_hand / "requirements.txt").write_text("\n".join(lines) + "\n")
    return Case(tools=tools, lock=lock, base=base, context=by_hand, image_of_system=image_of_system)


def by_hand(case: Case, way: str) -> None:
    (case.context / "Dockerfile").write_text(DOCKERFILE.format(base=case.base, install=INSTALL[way], scratch=SCRATCH))
    tag = f"envbuild-benchmark/{way}:latest"
    secrets = build_secret.joined(case.tools.index.build_secrets())
    case.engine.build(case.context, tag=tag, secrets=secrets, no_cache=True)
    case.engine.remove_image(tag)


def ours(case: Case, *, compose: bool) -> None:
    tools = case.tools
    rendering = render.render(case.lock, tools.recipes, tools.templates)
    make_image = composing.composer(tools, case.lock) if compose else None
    made = build.build(tools.engine, tools.workspace, case.lock, tools.recipes, rendering, tools.index, compose=make_image)
    for tag in made.tags:
        tools.engine.remove_image(tag)


def floor(case: Case) -> None:
    """Download the wheels, and write what is in them once."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        wheels = sorted(case.lock.prefixes[0].artifacts, key=lambda each: -(each.size or 0))
        for wheel in pool.map(lambda each: case.tools.index.fetch_artifact(each, Path(folder)), wheels):
            with zipfile.ZipFile(wheel) as archive, Path(folder, "unpacked").open("ab") as out:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        shutil.copyfileobj(member, out, 1 << 20)


WAYS: dict[str, Callable[[Case], None]] = {
    "envbuild, composed": lambda case: ours(case, compose=True),
    "envbuild, Dockerfile": lambda case: ours(case, compose=False),
    "pip by hand": lambda case: by_hand(case, "pip"),
    "uv by hand": lambda case: by_hand(case, "uv"),
    "floor": floor,
}


def forget(case: Case) -> None:
    """Empty all caches, and make the image that every way begins with."""
    docker = [case.engine.cli.path, "--host", case.engine.endpoint, "builder", "prune", "--all", "--force"]
    subprocess.run(docker, check=True, stdout=subprocess.DEVNULL)
    for folder in (case.tools.workspace.layers, case.tools.workspace.built_wheels):
        shutil.rmtree(folder, ignore_errors=True)
    pinned = {each.filename for each in case.lock.prefixes[0].artifacts}
    for file in case.tools.workspace.downloads.iterdir():
        if file.name in pinned:
            file.unlink()
    case.image_of_system()
    os.sync()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tools = Tools(workspace.find())
    told: Any = tools.engine.info
    print(f"{told.name}, {os.cpu_count()} CPUs; medians of {options.rounds} interleaved rounds")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names:
            case = prepare(tools, name, Path(scratch))
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way, make in WAYS.items():
                    forget(case)
                    began = time.monotonic()
                    make(case)
                    seconds[way].append(time.monotonic() - began)
                    print(f"  {name}, {way}: {seconds[way][-1]:.1f} s", file=sys.stderr, flush=True)
            print(f"\n{name}\n{'seconds':>9} {'ratio':>6}   way")
            for way, taken in seconds.items():
                ratios = [mine / other for mine, other in zip(taken, seconds["envbuild, composed"], strict=True)]
                print(f"{statistics.median(taken):9.1f} {statistics.median(ratios):6.2f}   {way}")
            tools.engine.remove_image(case.base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
