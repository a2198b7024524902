"""The toy environment, rendered and built with the guest as every other one, and images with a planted fault made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import engine_toy

from envbuild import build, codec, recipes
from envbuild.engine import bases
from envbuild.engine.client import Engine
from envbuild.image_inputs import BuildInputs
from envbuild.index.client import Index
from envbuild.model.environment import PrefixPlan
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.progress import ignore_progress
from envbuild.render import render
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[2]

# The guest's NumPy adapter, which also checks that loopback is the only network interface.
ADAPTER = """
from .numpy_ import Adapter as Sound


class Adapter(Sound):
    def setup(self, ctx):
        with open('/proc/net/dev') as stream:
            links = [line.split(':')[0].strip() for line in stream if ':' in line]
        if links != ['lo']:
            raise RuntimeError('there is a network: %s' % links)
        super(Adapter, self).setup(ctx)
"""


@dataclass(frozen=True)
class Toy:
    lock: Lock
    image: str
    base: str
    tag: str


def side_by_side(lock: Lock) -> Lock:
    """The same packages in two prefixes: one for the toy framework, one for a framework of another recipe."""
    (toy,), (env,) = lock.environment.frameworks, lock.prefixes
    first = replace(env, name="first", path="/opt/envs/first")
    second = replace(env, name="second", path="/opt/envs/second", frameworks=("other",))
    environment = replace(
        lock.environment,
        name="toy-stack-debian12",
        frameworks=(toy, replace(toy, name="other", recipe="other")),
        prefixes=tuple(PrefixPlan(name=p.name, python=p.python, frameworks=p.frameworks) for p in (first, second)),
    )
    return replace(lock, environment=environment, prefixes=(first, second))


def make(
    engine: Engine,
    shared: Workspace,
    folder: Path,
    change: Callable[[Lock], Lock] = lambda lock: lock,
    *,
    index: Index | None = None,
    check: Callable[[Lock, str, str], None] = lambda _lock, _image, _base: None,
) -> Toy:
    """Build the toy environment with its lock as ``change`` returns it. A second build comes from the build cache.

    ``check`` gets the lock, the image and its base before a tag moves.
    """
    index = index or Index()
    workspace = engine_toy.workspace_with_recipe(folder / "root", folder / "home", shared)
    for name in ("toy", "other"):
        recipe = workspace.recipes / name
        recipe.mkdir(exist_ok=True)
        (recipe / "smoke.py").write_text(ADAPTER, encoding="utf-8")
        (recipe / "install.j2").write_text("", encoding="utf-8")
    base = bases.pin(engine_toy.environment(), engine, workspace, ignore_progress)
    assert isinstance(base, BaseLock), base
    made = {"toy": engine_toy.RECIPE, "other": replace(engine_toy.RECIPE, name="other", env={"PYTHONPATH": "/opt/other"})}
    lock = engine_toy.with_packages(change(engine_toy.lock(base, index)), workspace, made, recipes.templates(workspace))
    rendering = render(lock, made, recipes.templates(workspace))
    tag = f"envbuild-test-{folder.name}"
    inputs = BuildInputs(workspace=workspace, lock=lock, recipes=made, rendering=rendering, index=index)
    record = build.build(engine, inputs, repository=tag, check=lambda image, base: check(lock, image, base))
    return Toy(lock=lock, image=record.image, base=record.base.image, tag=record.tags[0])


def derive(engine: Engine, toy: Toy, folder: Path, *lines: str, files: dict[str, str] | None = None) -> str:
    """Build an image from the toy's image with the Dockerfile lines ``lines``, run as root; return its id. ``files`` can be
    copied.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    text = "\n".join(
        [f"FROM {toy.tag}", "USER 0", *lines, ""]
        if "USER" in " ".join(lines)
        else [f"FROM {toy.tag}", "USER 0", *lines, "USER 1000", ""]
    )
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    tag = f"{toy.tag.partition(':')[0]}:{folder.name.lower()}"
    return engine.build(folder, tag=tag).id


def remove(engine: Engine, toy: Toy) -> None:
    """Remove the toy's image and all images that were made from it."""
    repository = toy.tag.partition(":")[0]
    for image in engine.client.images.list(repository):
        for tag in image.tags:
            engine.remove_image(tag)


def for_gpus(lock: Lock) -> Lock:
    """The same environment, declared to be for CUDA 13.0, which the framework takes from the image."""
    environment = replace(
        lock.environment,
        name="toy-1-cuda13.0-py311-debian12",
        frameworks=tuple(replace(framework, cuda_libraries="system") for framework in lock.environment.frameworks),
        cuda="13.0",
        driver_min="580.65.06",
    )
    return replace(lock, environment=environment)


def text_of(lock: Lock) -> str:
    return codec.dumps(lock)
