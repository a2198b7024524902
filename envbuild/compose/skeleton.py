"""Builds the skeleton of an image: its Dockerfile without the steps that install wheels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.engine.client import Engine
from envbuild.engine.model import BuiltImage
from envbuild.errors import EngineError

DOCKERFILE = "Dockerfile.skeleton"
BELOW = "packages"  # the stage with everything below the layers of wheels

# A function that builds the named stage of the skeleton, and returns the image of this stage.
Build = Callable[[str], BuiltImage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Skeleton:
    """A built skeleton. ``below`` and ``above`` are the diff ids (sha256, hex) of its layers below and above the layers of
    wheels, lowest first.

    ``settings`` are the settings of the image for containers (user, variables, command), as the engine reports them.
    """

    image: str
    below: tuple[str, ...]
    above: tuple[str, ...]
    settings: Mapping[str, Any]
    architecture: str


def skeleton(engine: Engine, foundation: str, whole: str) -> Skeleton:
    """Ask the engine for the facts about the skeleton. Its image is ``whole``, and ``foundation`` is the image of its stage
    below the layers of wheels."""
    below, layers = diff_ids(engine, foundation), diff_ids(engine, whole)
    if layers[: len(below)] != below:
        raise EngineError(
            "Two stages of one Dockerfile must begin with the same layers, but the engine built them on different layers.",
            code="refused",
        )
    found = engine.image(whole)
    return Skeleton(
        image=whole,
        below=below,
        above=layers[len(below) :],
        settings=engine.settings(whole),
        architecture=found.architecture if found else "amd64",
    )


def diff_ids(engine: Engine, image: str) -> tuple[str, ...]:
    """The diff ids (sha256, hex) of the layers of ``image``, lowest first."""
    found = engine.image(image)
    return tuple(layer.removeprefix("sha256:") for layer in found.layers) if found else ()
