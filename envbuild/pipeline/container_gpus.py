"""The GPUs that ``run`` gives to a container, and the option that passes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.pipeline.tools import Tools
from envbuild.run_commands.model import GpuOption

if TYPE_CHECKING:
    from envbuild.model.environment import Environment


def chosen(environment: Environment, asked: str, notes: list[str]) -> tuple[str, ...]:
    """Return the GPUs for ``asked``, which is ``auto``, ``none``, ``all``, or a list of indexes and UUIDs.

    For ``auto``, an image for GPUs gets all GPUs. If this machine has none, a note is added to ``notes``.
    """
    from envbuild.host import nvidia

    if asked == "none":
        return ()
    if asked != "auto":
        return tuple(part.strip() for part in asked.split(",") if part.strip())
    if environment.cuda is None:
        return ()
    if nvidia.gpus():
        return ("all",)
    notes.append(
        "This machine has no NVIDIA GPU that its driver reports, so the container gets none. To ask for all GPUs "
        "anyway, use --gpus all."
    )
    return ()


def option(tools: Tools, *, cdi: bool) -> GpuOption:
    """Return how a container gets its GPUs: by Docker's option ``--gpus``, which needs NVIDIA's hook or runtime, or by CDI
    names, which need a CDI file. ``smoke`` and ``verify`` get their GPUs in the same way."""
    from envbuild.host import nvidia

    if cdi:
        return "cdi"
    engine = tools.engine_or_none()
    if engine is not None and engine.info.gives_gpus:
        return "cdi" if engine.info.by_cdi else "gpus"
    toolkit = nvidia.toolkit()
    return "cdi" if toolkit.cdi and not (toolkit.hook or toolkit.runtime) else "gpus"
