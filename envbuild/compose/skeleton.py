"""The skeleton of an image: what a builder makes of its Dockerfile without the steps that install wheels."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.compose import packed
from envbuild.compose.model import Layer
from envbuild.compose.store import LayerStore
from envbuild.engine.client import Engine
from envbuild.engine.model import BuiltImage
from envbuild.errors import EngineError

DOCKERFILE = "Dockerfile.skeleton"
BELOW = "packages"  # the stage that holds all that lies below the wheels

# Builds one stage of the skeleton and returns its image.
Build = Callable[[str], BuiltImage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Skeleton:
    """``below`` and ``above`` are the diff ids (sha256, hex) of the layers on each side of the wheels, lowest first.

    ``settings`` are those of the image's containers, in the words of the engine.
    """

    image: str
    below: tuple[str, ...]
    above: tuple[str, ...]
    settings: Mapping[str, Any]
    architecture: str


def skeleton(engine: Engine, foundation: str, whole: str) -> Skeleton:
    """What the engine says of the image ``whole``, which was built upon the image ``foundation``."""
    below, layers = _diff_ids(engine, foundation), _diff_ids(engine, whole)
    if layers[: len(below)] != below:
        raise EngineError("The engine built two stages of one Dockerfile upon different layers.", code="refused")
    found = engine.image(whole)
    return Skeleton(
        image=whole,
        below=below,
        above=layers[len(below) :],
        settings=engine.settings(whole),
        architecture=found.architecture if found else "amd64",
    )


def keep_layers(engine: Engine, image: str, wanted: Collection[str], store: LayerStore) -> dict[str, Layer]:
    """The layers of ``image`` with the diff ids ``wanted``, in the store. The image is saved only if the store lacks one.

    Raises :class:`EngineError` (``unknown-format``) if the engine does not give one of them.
    """
    held = {diff_id: layer for diff_id in wanted if (layer := store.find(_key(diff_id))) is not None}
    lacking = set(wanted) - set(held)
    if lacking:
        for tar, diff_id in engine.layers(image):
            if diff_id in lacking:
                held[diff_id] = store.add(_key(diff_id), functools.partial(packed.write, tar=tar))
    if gone := set(wanted) - set(held):
        raise EngineError(
            f"The engine does not save {len(gone)} layers of {image}, which it says it has.", code="unknown-format"
        )
    return held


def _key(diff_id: str) -> str:
    return hashlib.sha256(f"{packed.RULES} {diff_id}".encode()).hexdigest()


def _diff_ids(engine: Engine, image: str) -> tuple[str, ...]:
    found = engine.image(image)
    return tuple(layer.removeprefix("sha256:") for layer in found.layers) if found else ()
