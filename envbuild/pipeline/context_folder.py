"""``envbuild render NAME --context DIR``: writes a folder with all files that plain Docker needs to build an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import BuildError, EngineError, UsageError
from envbuild.model.lock import Lock
from envbuild.pipeline import incomplete_locks, rendering
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.engine.bases import Debs

_BASE = "base.tar"


def write_context(tools: Tools, locked: Locked, folder: Path) -> tuple[str, ...]:
    """Write the build context of a lock into ``folder``, and return notes for the user.

    If the lock pins the packages of its base, a tar file of the base is made from these packages and written, too. Call
    :func:`require_free` first.
    """
    from envbuild import build_context, build_preparation
    from envbuild.engine import package_store

    lock = locked.lock
    incomplete_locks.require_complete(tools, lock)
    build_preparation.require_complete(lock)
    have = package_store.collector(tools.workspace, lock, tools.on_progress)
    have(lock.step_debs())
    text = rendering.render_text(tools, lock)
    base, notes = _base(tools, lock, have)
    if base:
        text["Dockerfile"] = _from_file(text["Dockerfile"], lock.base.image)
    build_context.assemble(tools.build_inputs(lock, text), folder=folder, more=base)
    return notes


def require_free(folder: Path) -> None:
    """Raise :class:`UsageError` (``folder-in-use``) if ``folder`` has any content that is not an earlier build context."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "step" / "step.sh").is_file():
        raise UsageError(
            f"{folder} contains other files, which would be replaced.",
            code="folder-in-use",
            hint="Name an empty folder, or a folder that does not exist.",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder.", code="folder-in-use", hint="Name a folder that does not exist.")


def _base(tools: Tools, lock: Lock, have: Debs) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the tar file of the base (path in the build context → path on this machine), and notes for the user.

    The mapping is empty if the lock does not pin the packages of the base, or if this machine cannot make the base.
    """
    from envbuild.engine import bases

    if lock.base.bootstrap is None:
        return {}, (f"docker build will pull the base {lock.base.image}",)
    try:
        rootfs = bases.root_file_system(lock.base.bootstrap, tools.workspace, tools.on_progress, have)
    except (BuildError, EngineError) as error:
        if error.code != "missing-program":
            raise
        return {}, (
            f"{error.message} docker build will pull {lock.base.image} instead, whose packages may be newer than the "
            "pinned ones",
        )
    return {_BASE: rootfs.path}, ()


def _from_file(dockerfile: str, image: str) -> str:
    """Return the Dockerfile with an additional first stage, which unpacks the tar file of the base.

    A build with another BASE_IMAGE does not use this stage.
    """
    before = f"ARG BASE_IMAGE={image}\n"
    if before not in dockerfile:
        raise BuildError(f"The Dockerfile in the rendering does not name the base {image}.", code="stale-rendering")
    after = (
        f"# {_BASE} is {image}, made from the packages that the lock pins.\nARG BASE_IMAGE=base\n\nFROM scratch AS base\n"
        f"ADD {_BASE} /\n"
    )
    return dockerfile.replace(before, after, 1)
