"""Builds and verifies the image of a lock."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envbuild.errors import BuildError
from envbuild.pipeline import base_alternatives, composing, disk_need, image_checks, incomplete_locks, proofs
from envbuild.pipeline.image_checks import Verified
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.model.lock import Lock

# Who makes an image. "docker": the engine builds it from the Dockerfile. "compose": envbuild makes its layers from the wheels.
# "auto": the faster of both with this engine.
Builder = Literal["auto", "docker", "compose"]


def build_environment(
    tools: Tools,
    locked: Locked,
    rendering: Mapping[str, str],
    *,
    aliases: Sequence[str] = (),
    no_cache: bool = False,
    builder: Builder = "auto",
) -> tuple[BuildRecord, Verified | None]:
    """Build and verify the image of a lock, and return the build record and the verification.

    The verification is None if nothing had to be done, because the image exists and has all its tags. No tag moves before the
    image is verified. A failed verification raises :class:`VerifyError`. A lock is refused if one of its frameworks has no
    pinned file. If the disk has less space than the build needs, :class:`BuildError` (``no-space``) is raised before anything
    is downloaded. ``aliases`` are further tags for the image.
    """
    from envbuild import build

    incomplete_locks.require_complete(tools, locked.lock)
    compose = composing.composer(tools, locked.lock) if composes(tools, builder)(locked.lock) else None
    seen: list[Verified] = []

    def supply() -> Mapping[str, Path]:
        disk_need.require_space_of(tools, locked, is_composed=compose is not None, anew=no_cache)
        return tools.offline.supply(tools, locked.lock, wheels=compose is None) if tools.offline else {}

    def check(image: str, base: str) -> None:
        seen.append(image_checks.verify_image(tools, locked.lock, locked.digest, image, replay=True, base=base))

    with base_alternatives.with_alternatives(lambda: tools.matrix, locked.lock.environment):
        record = build.build(
            tools.engine,
            tools.build_inputs(locked.lock, rendering),
            aliases=tuple(aliases),
            no_cache=no_cache,
            check=check,
            compose=compose,
            supply=supply,
        )
    if record.builder != build.PULLED:
        proofs.prove_image(tools, record, record.image, "built", replayed=record.kept)
    if seen:
        proofs.prove_image(tools, record, record.image, "verified", replayed=seen[0].replayed)
    return record, seen[0] if seen else None


def composes(tools: Tools, builder: Builder) -> Callable[[Lock], bool]:
    """Return a function that says whether ``builder`` composes the image of a lock.

    "auto" composes for Docker with containerd's image store, which gets a composed image faster than it builds a Dockerfile
    (decision 28).
    """
    if builder != "auto":
        return lambda _lock: builder == "compose"
    if tools.engine.image_store != "containerd":
        return lambda _lock: False
    return functools.partial(composing.is_possible, tools)


def last_built(tools: Tools, name: str) -> BuildRecord:
    """Return the build record of the image of ``name`` that was built last.

    Raises :class:`BuildError` (``no-image``) if this machine has built no image of ``name``.
    """
    from envbuild import build

    record = build.read_record(tools.workspace, name)
    if record is None:
        raise BuildError(
            f"This machine has not built an image of {name}.",
            code="no-image",
            hint=f"To build it, run: envbuild build {tools.cli_name(name)}",
        )
    return record
