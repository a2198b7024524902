"""Finds the environments that need no work.

The search runs in this process. It asks the engine only for the list of its images, and for the kind of its image store.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from envbuild.model.progress import ignore_progress
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo, ImageStore
    from envbuild.index.client import Index
    from envbuild.workspace import Workspace

T = TypeVar("T")


class WorkNeededError(Exception):
    """Raised if a stage needs more than the list of images, so that there is work to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _ListedImage:
    """Stands in for an image. Reading its layers raises an error, because an empty list of layers would pass every check."""

    id: str
    tags: tuple[str, ...]

    def __getattr__(self, name: str) -> NoReturn:
        """Raise :class:`WorkNeededError`, because all other facts about the image need the engine."""
        raise WorkNeededError(name)


class ImageList:
    """Stands in for the engine and the index. It knows only the kind of the image store, and the ids and tags of all images."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.endpoint = engine.endpoint
        self.origin = engine.origin
        self._ids = engine.image_ids()

    @property
    def image_store(self) -> ImageStore:
        """Who keeps the images; see :attr:`Engine.image_store`."""
        return self._engine.image_store

    def image(self, reference: str) -> ImageInfo | None:
        """Return the image, of which only the id and the tags are known; None if the engine has no such image."""
        found = self._ids.get(reference)
        if found is None:
            return None
        tags = tuple(name for name, image in self._ids.items() if image == found and name != found)
        return cast("ImageInfo", _ListedImage(id=found, tags=tags))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise :class:`WorkNeededError`, because all other methods need the engine or the index."""
        raise WorkNeededError(name)


def view(tools: Tools) -> Tools:
    """Return a copy of the tools that has a list of images in place of the engine and the index, and reports no progress."""
    seen = copy.copy(tools)
    images = ImageList(tools.engine)
    seen.on_progress = ignore_progress
    seen.__dict__["engine"], seen.__dict__["index"] = cast("Engine", images), cast("Index", images)
    return seen


def without_work(seen: Tools, name: str, attempt: Callable[[Tools], T]) -> T | None:
    """Return the result of ``attempt``; None if ``attempt`` needs an index, or more from the engine than its list of images.

    ``seen`` are tools from :func:`view`. The result is also None if another run may be working on ``name``, because waiting for
    that run would delay all other environments.
    """
    if _is_busy(seen.workspace, name):
        return None
    try:
        return attempt(seen)
    except WorkNeededError:
        return None


def _is_busy(workspace: Workspace, name: str) -> bool:
    """Whether another run may be working on ``name``, or on any user's environment in the same folder."""
    if workspace.user_recipe is not None:  # the name is in the recipe's file, which is not read here, so any name counts
        name = "*"
    locks = workspace.running(name, "make"), workspace.build_record(name).with_suffix(".running")
    return any(True for lock in locks for _ in lock.parent.glob(lock.name))
