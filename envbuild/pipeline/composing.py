"""Has the composer make an image in place of the engine's builder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from envbuild.model.lock import Lock
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import Ingredients, MakeImage
    from envbuild.engine.model import BuiltImage


def composer(tools: Tools, lock: Lock) -> MakeImage:
    """What makes the image of ``lock`` from layers of its wheels, and loads it into the engine.

    Raises :class:`BuildError` (``not-composable``) at once if a step of the Dockerfile needs the wheels.
    """
    from envbuild import render

    dockerfile = render.skeleton(lock, tools.recipes, tools.templates)

    def make_image(ingredients: Ingredients) -> BuiltImage:
        return _compose(tools, lock, dockerfile, ingredients)

    return make_image


def _compose(tools: Tools, lock: Lock, dockerfile: str, ingredients: Ingredients) -> BuiltImage:
    from envbuild import build, files
    from envbuild.compose import engine_image, skeleton
    from envbuild.compose.composer import Composer
    from envbuild.compose.outputs import engine as engine_output
    from envbuild.compose.outputs.preload import Preload
    from envbuild.compose.store import LayerStore
    from envbuild.engine.model import BuiltImage

    began = time.monotonic()
    engine = tools.engine
    files.write_atomic(ingredients.context / skeleton.DOCKERFILE, dockerfile)
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

    store = LayerStore(tools.workspace.layers)
    try:
        with store.in_use(), Preload(engine, store, tools.on_progress) as preload:
            composed = Composer(
                engine=engine,
                store=store,
                lock=lock,
                build=build_stage,
                fetch=lambda artifact, tell: tools.index.fetch_artifact(artifact, tools.workspace.downloads, tell),
                wheels=tools.workspace.built_wheels,
                created=build.time_of(lock).strftime("%Y-%m-%dT%H:%M:%SZ"),
                on_progress=tools.on_progress,
                on_layer=preload.add,
            ).compose()
            engine_image.remember(tools.workspace.composed_images, composed.image)
            image = engine_output.load(engine, composed.image, store, [ingredients.tag], tools.on_progress)
    finally:
        for tag in tags:
            engine.remove_unused(tag)
    return BuiltImage(id=image, seconds=time.monotonic() - began, steps=composed.layers, cached=composed.layers - composed.made)
