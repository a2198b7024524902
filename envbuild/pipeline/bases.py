"""How the base of an environment is pinned: by what the matrix knows of it, then by what an engine finds."""

from __future__ import annotations

from dataclasses import replace

from envbuild.engine import bases
from envbuild.matrix.types import Matrix
from envbuild.model import BaseLock, Environment, Missing
from envbuild.pipeline.tools import Tools


def pin(tools: Tools, environment: Environment) -> BaseLock | Missing:
    """How to find the base again, or what is missing and why."""
    engine = tools.engine_or_none()
    found = bases.pin(environment, engine, tools.workspace, tools.on_progress, known_base(tools.matrix, environment))
    image = environment.base.build_image
    if isinstance(found, Missing) or not image:
        return found
    return replace(found, build_digest=bases.digest_of(image, engine, tools.on_progress))


def known_base(matrix: Matrix, environment: Environment) -> bases.Known:
    """What the matrix says of the image, the system's plain one or one that brings CUDA: of a user's own, nothing."""
    row = next((row for row in matrix.systems if row.name == environment.system.name), None)
    if row is None or environment.base.provider == "local":
        return bases.Known()
    with_cuda = {provider.image: provider.digest for cuda in matrix.cuda for provider in cuda.providers if provider.image}
    return bases.Known(digest=({**with_cuda, row.image: row.digest}).get(environment.base.image, ""), archive=row.archive)
