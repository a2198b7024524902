"""The common part of ``verify``, ``linkcheck`` and ``smoke``: each of them checks the image that was built for NAME."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.model.lock import Lock
    from envbuild.pipeline.tools import Tools

T = TypeVar("T")


def run(
    session: Session, name: str, constraints: Mapping[str, Any], check: Callable[[Tools, Lock, str, str], T]
) -> tuple[str, str, T]:
    """Find the image that was built for ``name``, and call ``check`` with the tools, the lock, its hash and the image.

    Return the canonical name, the image and the result of ``check``.
    """
    from envbuild.pipeline import image_checks

    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news)
        locked, image = image_checks.require_built(tools, name, options.chosen(constraints))
        return locked.lock.environment.name, image, check(tools, locked.lock, locked.digest, image)
