"""How long it takes until a registry on loopback has an image: composed and pushed, and by Dockerfiles written by hand.

    python benchmarks/registry.py [--rounds 3] [NAME…]

Each round does two things in each way, in turn. `new`: nothing is cached, the registry is empty. `changed`: after that, one
small package is dropped from the list, and the image is built and pushed again with the caches of the engine and of envbuild as
they are. The composed image is pushed by envbuild, the others by docker. Needs an engine (`envbuild engine up`), a package
index, and Debian's docker-registry.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from build import DOCKERFILE, INSTALL, NAMES, SCRATCH, Case, forget, prepare

from envbuild import build, build_secret, render, workspace
from envbuild.compose import engine_image
from envbuild.compose.outputs import registry
from envbuild.compose.store import LayerStore
from envbuild.model import Lock
from envbuild.pipeline import composing
from envbuild.pipeline.tools import Tools

WAYS = ("envbuild, composed", "pip by hand", "uv by hand")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """An empty registry; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "config.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}"
    config.write_text(f"version: 0.1\nlog: {{level: error}}\n{storage}\nhttp: {{addr: {host}}}\n")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(["docker-registry", "serve", str(config)], **quiet)  # type: ignore[call-overload]
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(tuple(host.split(":")), 1):
                break
            time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait()


def without_one(lock: Lock) -> Lock:
    """The lock without its smallest wheel: what else changes with one small package is the same."""
    first = lock.prefixes[0]
    smallest = min(first.artifacts, key=lambda each: each.size or 0)
    fewer = tuple(each for each in first.artifacts if each != smallest)
    return dataclasses.replace(lock, prefixes=(dataclasses.replace(first, artifacts=fewer), *lock.prefixes[1:]))


def composed(case: Case, lock: Lock, host: str) -> None:
    tools = case.tools
    rendering = render.render(lock, tools.recipes, tools.templates)
    make_image = composing.composer(tools, lock)
    made = build.build(tools.engine, tools.workspace, lock, tools.recipes, rendering, tools.index, compose=make_image)
    store = LayerStore(tools.workspace.layers)
    known = engine_image.recall(tools.workspace.composed_images, made.image)
    image = engine_image.complete(lambda: tools.engine, made.image, known, store)
    registry.push(image, store, f"{host}/benchmark", registry.Tags(moving=["latest"]), lambda _news: None)


def by_hand(case: Case, lock: Lock, host: str, way: str) -> None:
    lines = [f"{each.name}=={each.version} --hash=sha256:{each.sha256}" for each in lock.prefixes[0].artifacts]
    (case.context / "requirements.txt").write_text("\n".join(lines) + "\n")
    (case.context / "Dockerfile").write_text(DOCKERFILE.format(base=case.base, install=INSTALL[way], scratch=SCRATCH))
    tag = f"{host}/benchmark:latest"
    case.engine.build(case.context, tag=tag, secrets=build_secret.joined(case.tools.index.build_secrets()))
    argv = [case.engine.cli.path, "--host", case.engine.endpoint, "push", "--quiet", tag]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def measured(case: Case, way: str) -> Iterator[tuple[str, float]]:
    """The seconds of both things in one way."""
    forget(case)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as host:
        for what, lock in (("new", case.lock), ("changed", without_one(case.lock))):
            began = time.monotonic()
            if way == WAYS[0]:
                composed(case, lock, host)
            else:
                by_hand(case, lock, host, way.partition(" ")[0])
            yield what, time.monotonic() - began
        images: Any = case.engine.client.api.images(name=f"{host}/benchmark")
        for each in images:
            case.engine.remove_image(each["Id"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tools = Tools(workspace.find())
    told: Any = tools.engine.info
    print(f"{told.name}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {options.rounds} interleaved rounds")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names:
            case = prepare(tools, name, Path(scratch))
            seconds: dict[tuple[str, str], list[float]] = {}
            for _ in range(options.rounds):
                for way in WAYS:
                    for what, taken in measured(case, way):
                        seconds.setdefault((what, way), []).append(taken)
                        print(f"  {name}, {what}, {way}: {taken:.1f} s", file=sys.stderr, flush=True)
            print(f"\n{name}\n{'seconds':>9} {'ratio':>6}   until the registry has it")
            for (what, way), taken_by in seconds.items():
                ratios = [other / mine for mine, other in zip(seconds[what, WAYS[0]], taken_by, strict=True)]
                print(f"{statistics.median(taken_by):9.1f} {statistics.median(ratios):6.2f}   {what}: {way}")
            tools.engine.remove_image(case.base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
