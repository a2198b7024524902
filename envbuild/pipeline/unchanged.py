"""Find out in this process, with one list of images, which environments need no work."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from envbuild.model.progress import ignore_progress
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo
    from envbuild.index.client import Index
    from envbuild.workspace import Workspace

T = TypeVar("T")


class WorkNeededError(Exception):
    """A stage needs more than the list of images, so there is work to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _ListedImage:
    """Stands in for an image. Reading its layers raises an error, because a check of an empty list of layers would pass."""

    id: str
    tags: tuple[str, ...]

    def __getattr__(self, name: str) -> NoReturn:
        """Raise :class:`WorkNeededError`: everything else about the image needs the engine."""
        raise WorkNeededError(name)


class ImageList:
    """Stands in for the engine and the index: knows which images there are, and refuses all work."""

    def __init__(self, engine: Engine) -> None:
        self.endpoint = engine.endpoint
        self.origin = engine.origin
        self._ids = engine.image_ids()

    def image(self, reference: str) -> ImageInfo | None:
        """The image's id and tags; nothing else is known about it."""
        found = self._ids.get(reference)
        if found is None:
            return None
        tags = tuple(name for name, image in self._ids.items() if image == found and name != found)
        return cast("ImageInfo", _ListedImage(id=found, tags=tags))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise :class:`WorkNeededError`: everything else needs the engine or the index."""
        raise WorkNeededError(name)


def view(tools: Tools) -> Tools:
    """Return the tools with a list of images in place of the engine and the index, and without progress."""
    seen = copy.copy(tools)
    images = ImageList(tools.engine)
    seen.on_progress = ignore_progress
    seen.__dict__["engine"], seen.__dict__["index"] = cast("Engine", images), cast("Index", images)
    return seen


def without_work(seen: Tools, name: str, attempt: Callable[[Tools], T]) -> T | None:
    """Return what ``attempt`` returns, or None if it needs the engine or an index for more than the list of images.

    ``seen`` are tools of :func:`view`. The result is also None if another run may be working on ``name``: waiting for
    that run would delay all other environments.
    """
    if _is_busy(seen.workspace, name):
        return None
    try:
        return attempt(seen)
    except WorkNeededError:
        return None


def _is_busy(workspace: Workspace, name: str) -> bool:
    """Whether another run may be working on ``name``, or on any of the user's own environments in the same folder."""
    if workspace.user_recipe is not None:  # the recipe's name is in its file, which is not read here
        name = "*"
    locks = workspace.running(name, "make"), workspace.build_record(name).with_suffix(".running")
    return any(True for lock in locks for _ in lock.parent.glob(lock.name))
