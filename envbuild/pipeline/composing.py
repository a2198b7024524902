"""Makes an image with the composer instead of the engine's builder, and loads it into the engine or writes it elsewhere."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from envbuild.errors import BuildError
from envbuild.model.lock import Lock
from envbuild.model.progress import as_news
from envbuild.pipeline import base_alternatives
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build_preparation import Ingredients
    from envbuild.compose.composer import Composed
    from envbuild.compose.downloads import Downloads
    from envbuild.compose.layer_jobs import OnBegin
    from envbuild.compose.model import Layer
    from envbuild.compose.store import LayerStore
    from envbuild.engine.model import BuiltImage

T = TypeVar("T")
# The switch interval in seconds: how long one Python thread may run while other threads wait for the interpreter lock (GIL).
# Unpacking and hashing run without this lock, but their threads need it for a moment after each piece. With the default of
# 5 ms, they would wait too long.
_SWITCH_S = 0.0005
# Python searches for unused objects each time that it has made so many new ones (`gc.set_threshold`). A composition makes and
# keeps several objects for each of tens of thousands of files. With the default of 700, it would search often and find nothing.
_COLLECT_AFTER = 100_000


def composer(tools: Tools, lock: Lock) -> _Composition:
    """Return a callable object that composes the image of ``lock`` from layers of its wheels, and loads it into the engine.

    Raises :class:`BuildError` (``not-composable``) at once if a step of the Dockerfile needs the installed wheels.
    """
    from envbuild import render
    from envbuild.compose.downloads import Downloads

    dockerfile = render.skeleton(lock, tools.recipes, tools.templates)
    store = store_of(tools)
    order = render.install_order(lock, tools.recipes)
    downloads = Downloads(
        lock=lock,
        store=store,
        order=order,
        fetch=lambda artifact, tell: tools.index.fetch_artifact(artifact, tools.workspace.downloads, tell),
        on_progress=tools.on_progress,
    )
    return _Composition(tools=tools, lock=lock, dockerfile=dockerfile, store=store, downloads=downloads)


def is_possible(tools: Tools, lock: Lock) -> bool:
    """Whether the image of ``lock`` can be composed. It can, if no step of its Dockerfile needs the installed wheels."""
    from envbuild import render

    try:
        render.skeleton(lock, tools.recipes, tools.templates)
    except BuildError as error:
        if error.code != "not-composable":
            raise
        return False
    return True


def store_of(tools: Tools) -> LayerStore:
    """Return the layer store of the cache folder. If the store waits for another process, it reports this as progress."""
    from envbuild.compose.store import LayerStore

    return LayerStore(tools.workspace.layers, as_news("build", tools.on_progress))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Composition:
    tools: Tools
    lock: Lock
    dockerfile: str
    store: LayerStore
    downloads: Downloads

    @property
    def installs(self) -> bool:
        """Whether a step of the skeleton installs packages. Such a step builds wheels from source packages."""
        return "source=tools" in self.dockerfile

    def begin(self) -> None:
        self.downloads.begin()

    def __call__(self, ingredients: Ingredients) -> BuiltImage:
        return _compose(self, ingredients)


def _compose(plan: _Composition, ingredients: Ingredients) -> BuiltImage:
    from envbuild.compose import engine_image
    from envbuild.compose.outputs import engine as engine_output
    from envbuild.compose.outputs.preload import Preload
    from envbuild.engine.model import BuiltImage

    began = time.monotonic()
    tools, store, engine = plan.tools, plan.store, plan.tools.engine
    recall = functools.partial(engine_image.recall, tools.workspace.composed_images)
    has_below = engine.image_store == "docker"  # other stores need the layers that the engine built itself, too
    with (
        store.in_use(),
        Preload(engine, store, tools.on_progress, recall) as preload,
        _composed(plan, ingredients, on_layer=preload.add, is_ordered=True, has_below=has_below) as composed,
    ):
        image = engine_output.load(engine, composed.image, store, [ingredients.tag], tools.on_progress, recall=preload.recall)
        engine_image.remember(tools.workspace.composed_images, composed.image, image)
    return BuiltImage(id=image, seconds=time.monotonic() - began, steps=composed.layers, cached=composed.layers - composed.made)


def compose_elsewhere(
    tools: Tools,
    lock: Lock,
    rendering: Mapping[str, str],
    place: Callable[[Composed, LayerStore], T],
    *,
    on_layer: Callable[[Layer], None] = lambda _layer: None,
    on_begin: OnBegin | None = None,
) -> T:
    """Compose the image of ``lock``, pass it to ``place``, and return the result of ``place``.

    ``on_layer`` is called for each layer as soon as the layer is in the store. ``on_begin`` is called for each layer of a huge
    wheel as soon as the file of this layer is begun. If the base or the system packages of the skeleton are not those of the
    lock, raises :class:`BuildError` and does not call ``place``. The image is not loaded into the engine, so it is not
    verified.
    """
    from envbuild import build

    plan = composer(tools, lock)

    def compose(ingredients: Ingredients, check: Callable[[str], None]) -> T:
        with (
            plan.store.in_use(),
            _composed(plan, ingredients, on_layer=on_layer, on_begin=on_begin, check=check) as composed,
        ):
            return place(composed, plan.store)

    def supply() -> Mapping[str, Path]:
        return tools.offline.supply(tools, lock, wheels=False) if tools.offline else {}

    with base_alternatives.with_alternatives(lambda: tools.matrix, lock.environment):
        inputs = replace(tools.build_inputs(lock, rendering), installs=plan.installs)
        return build.compose_elsewhere(tools.engine, inputs, begin=plan.begin, compose=compose, supply=supply)


@contextlib.contextmanager
def _composed(
    plan: _Composition,
    ingredients: Ingredients,
    *,
    on_layer: Callable[[Layer], None],
    on_begin: OnBegin | None = None,
    check: Callable[[str], None] = lambda _skeleton: None,
    is_ordered: bool = False,
    has_below: bool = False,
) -> Iterator[Composed]:
    """Compose the image, and yield it. The engine keeps the image of the skeleton until the ``with`` block ends."""
    from envbuild import build_preparation, files, wrong_records
    from envbuild.compose import recorded_layers, skeleton
    from envbuild.compose.composer import Composer
    from envbuild.index.thread_pool import DaemonPool, result_of

    tools, engine = plan.tools, plan.tools.engine
    files.write_atomic(ingredients.context / skeleton.DOCKERFILE, plan.dockerfile)
    tags: list[str] = []
    guest = DaemonPool(1).submit(ingredients.add_guest)  # meanwhile, the engine builds the stages below the wheels

    def build_stage(stage: str) -> BuiltImage:
        if not stage:
            result_of(guest)
        tags.append(f"{ingredients.tag}-{stage or 'skeleton'}")
        return engine.build(
            ingredients.context,
            tag=tags[-1],
            secrets=ingredients.secrets,
            build_args=ingredients.build_args,
            on_progress=tools.on_progress,
            no_cache=ingredients.no_cache,
            dockerfile=skeleton.DOCKERFILE,
            target=stage,
        )

    try:
        with _for_many_threads():
            composed = Composer(
                engine=engine,
                store=plan.store,
                lock=plan.lock,
                build=build_stage,
                downloads=plan.downloads,
                wheels=tools.workspace.built_wheels,
                order=plan.downloads.order,
                created=build_preparation.time_of(plan.lock).strftime("%Y-%m-%dT%H:%M:%SZ"),
                on_progress=tools.on_progress,
                wrong_records=wrong_records.load(tools.workspace.images),
                recorded=recorded_layers.load(tools.workspace.images),
                on_layer=on_layer,
                on_begin=on_begin,
                check=check,
                is_ordered=is_ordered,
                has_below=has_below,
            ).compose()
        yield composed
    finally:
        wait([guest])
        for tag in tags:
            engine.remove_unused(tag)


@contextlib.contextmanager
def _for_many_threads() -> Iterator[None]:
    """Set up the interpreter for threads that mostly unpack, hash and compress, until the block ends."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(_COLLECT_AFTER)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
