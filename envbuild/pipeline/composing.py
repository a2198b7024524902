"""Has the composer make an image in place of the engine's builder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.model import as_news
from envbuild.model.lock import Lock
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import Composition, Ingredients
    from envbuild.compose.downloads import Downloads
    from envbuild.compose.store import LayerStore
    from envbuild.engine.model import BuiltImage


def composer(tools: Tools, lock: Lock) -> Composition:
    """What makes the image of ``lock`` from layers of its wheels, and loads it into the engine.

    Raises :class:`BuildError` (``not-composable``) at once if a step of the Dockerfile needs the wheels.
    """
    from envbuild import render
    from envbuild.compose.downloads import Downloads
    from envbuild.compose.store import LayerStore

    dockerfile = render.skeleton(lock, tools.recipes, tools.templates)
    store = LayerStore(tools.workspace.layers, as_news("build", tools.on_progress))
    downloads = Downloads(
        lock=lock,
        store=store,
        fetch=lambda artifact, tell: tools.index.fetch_artifact(artifact, tools.workspace.downloads, tell),
        on_progress=tools.on_progress,
    )
    return _Composition(tools=tools, lock=lock, dockerfile=dockerfile, store=store, downloads=downloads)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Composition:
    tools: Tools
    lock: Lock
    dockerfile: str
    store: LayerStore
    downloads: Downloads

    def begin(self) -> None:
        self.downloads.begin()

    def __call__(self, ingredients: Ingredients) -> BuiltImage:
        return _compose(self, ingredients)


def _compose(plan: _Composition, ingredients: Ingredients) -> BuiltImage:
    from envbuild import build, files
    from envbuild.compose import engine_image, skeleton
    from envbuild.compose.composer import Composer
    from envbuild.compose.outputs import engine as engine_output
    from envbuild.compose.outputs.preload import Preload
    from envbuild.engine.model import BuiltImage

    began = time.monotonic()
    tools, store, engine = plan.tools, plan.store, plan.tools.engine
    files.write_atomic(ingredients.context / skeleton.DOCKERFILE, plan.dockerfile)
    tags: list[str] = []

    def build_stage(stage: str) -> BuiltImage:
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
        with store.in_use(), Preload(engine, store, tools.on_progress) as preload:
            composed = Composer(
                engine=engine,
                store=store,
                lock=plan.lock,
                build=build_stage,
                downloads=plan.downloads,
                wheels=tools.workspace.built_wheels,
                created=build.time_of(plan.lock).strftime("%Y-%m-%dT%H:%M:%SZ"),
                on_progress=tools.on_progress,
                on_layer=preload.add,
            ).compose()
            engine_image.remember(tools.workspace.composed_images, composed.image)
            image = engine_output.load(engine, composed.image, store, [ingredients.tag], tools.on_progress)
    finally:
        for tag in tags:
            engine.remove_unused(tag)
    return BuiltImage(id=image, seconds=time.monotonic() - began, steps=composed.layers, cached=composed.layers - composed.made)
