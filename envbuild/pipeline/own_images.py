"""Decides which image in a registry the name of an environment means: the image with the inputs of this checkout.

All commands that use one published image ask this module: `pull`, `run`, `export`, `attest`, `evidence --from`, `launch` and
`catalogue`. The tag that is only the canonical name moves with each release and each rollback, so no command uses that tag
unless the user names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envbuild.errors import PublishError
from envbuild.pipeline import rendering
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImage:
    """The image that this checkout would build: its lock, rendering, inputs and tags."""

    locked: Locked
    rendering: Mapping[str, str]
    inputs: str
    tags: tuple[str, ...]

    @property
    def fixed(self) -> str:
        """The tag that never moves, and always names the image with these inputs."""
        return fixed_tag(self.tags)


def fixed_tag(tags: Sequence[str]) -> str:
    """Return the tag that never moves, from the names that :func:`envbuild.build.tags_of` gives to an image."""
    return tags[2].rpartition(":")[2]


def find(tools: Tools, name: str) -> OwnImage | None:
    """Return the image that this checkout would build for ``name``; None if ``name`` has no lock."""
    from envbuild import build, image_inputs

    locked = read_locked(tools, name)
    if locked is None:
        return None
    texts = rendering.render_text(tools, locked.lock)
    inputs = image_inputs.inputs_digest(tools.workspace, locked.lock, tools.recipes, texts)
    return OwnImage(locked=locked, rendering=texts, inputs=inputs, tags=build.tags_of(locked.lock, inputs))


def require(tools: Tools, name: str, *, or_else: str = "") -> OwnImage:
    """Return the result of :func:`find`. Raises :class:`PublishError` (``not-in-registry``) if ``name`` has no lock.

    ``or_else`` is a sentence about another way, which is added to the hint.
    """
    if (own := find(tools, name)) is None:
        raise without_lock(tools, name, or_else=or_else)
    return own


def without_lock(tools: Tools, name: str, *, or_else: str = "") -> PublishError:
    """Return the error for an environment that has no lock. ``or_else`` is added to the hint."""
    return PublishError(
        f"{name} has no lock here, so envbuild cannot tell which of its images you mean.",
        code="not-in-registry",
        hint=f"To make one, run `envbuild lock {tools.cli_name(name)}`. {or_else}".rstrip(),
    )


def moving_tag(name: str) -> str:
    """Return the tag that is the canonical name. It names the published image of the current release."""
    return name.replace("+", "_")


def absent(name: str, repository: str, own: OwnImage, hint: str) -> PublishError:
    """Return the error for a ``repository`` that does not have the image ``own``."""
    return PublishError(
        f"{repository} has no image of {name} with the inputs of this checkout ({own.fixed}).",
        code="not-in-registry",
        hint=hint,
    )
