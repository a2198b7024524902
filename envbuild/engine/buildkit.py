"""Builds an image with BuildKit, through the docker program: the SDK has no BuildKit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import procs
from envbuild.engine import build_failures, docker_program
from envbuild.engine.build_progress import PlainProgress, count_steps
from envbuild.engine.model import BuiltImage
from envbuild.errors import BuildError, EngineError
from envbuild.model import OnProgress

if TYPE_CHECKING:
    from envbuild.engine.client import Engine

_SECRET_LIMIT = 500 * 1024  # https://github.com/moby/buildkit: session/secrets/secretsprovider, MaxSecretSize


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What to build and how; see :meth:`envbuild.engine.client.Engine.build`."""

    context: Path
    tags: tuple[str, ...]
    secrets: dict[str, bytes]
    build_args: dict[str, str]
    labels: dict[str, str]
    no_cache: bool


def build(engine: Engine, order: Order, on_progress: OnProgress) -> BuiltImage:
    """Build; raises :class:`EngineError` (``no-buildkit``) at once where the engine's builder cannot."""
    require(engine)
    started = time.monotonic()
    progress = PlainProgress(on_progress, total=count_steps((order.context / "Dockerfile").read_text(encoding="utf-8")))
    with secret_files(order.secrets) as secrets:
        argv = [*engine.cli.build_argv(), "--progress=plain"]
        argv += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
        argv += _options(order)
        result = procs.run(
            [*argv, str(order.context)],
            env=docker_program.environment(engine.endpoint),
            on_line=progress.feed,
            dies_with_us=True,
        )
        if result.code != 0:
            raise build_failures.explain(instruction=progress.failed, reason=progress.reason, lines=progress.tail)
    return BuiltImage(
        id=_built(engine, order), seconds=time.monotonic() - started, steps=progress.steps, cached=progress.cached
    )


@contextlib.contextmanager
def secret_files(secrets: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Paths from which the docker program can read each secret while the block lasts.

    The bytes live in memory files of this process, reached through /proc: nothing is written to a disk, and nothing can
    remain, however this process ends.
    """
    with contextlib.ExitStack() as stack:
        paths: dict[str, str] = {}
        for name, content in secrets.items():
            if len(content) > _SECRET_LIMIT:
                raise BuildError(
                    f"The build secret {name} has {len(content)} bytes; BuildKit takes at most {_SECRET_LIMIT}.",
                    code="secret-too-large",
                    hint="Point SSL_CERT_FILE at a smaller CA bundle: the system's and your own certificate authority suffice.",
                )
            stream = stack.enter_context(os.fdopen(os.memfd_create(f"envbuild-{name}"), "wb"))
            stream.write(content)
            stream.flush()
            paths[name] = f"/proc/{os.getpid()}/fd/{stream.fileno()}"
        yield paths


def _options(order: Order) -> list[str]:
    options = [f"--tag={tag}" for tag in order.tags]
    options += [f"--build-arg={name}={value}" for name, value in order.build_args.items()]
    options += [f"--label={name}={value}" for name, value in order.labels.items()]
    return [*options, "--no-cache"] if order.no_cache else options


def _built(engine: Engine, order: Order) -> str:
    # The engine's word for the first tag, not the builder's for its result: with a containerd image store, or with
    # attestations, that is a manifest's digest.
    found = engine.image(order.tags[0])
    if found is None:
        raise BuildError(f"The builder reported success, yet the engine does not hold {order.tags[0]}.")
    return found.id


def require(engine: Engine) -> None:
    """Raise :class:`EngineError` (``no-buildkit``) where no program here builds with BuildKit on ``engine``.

    The classic builder, and Podman's, cannot mount the secrets of a build as these Dockerfiles ask for: proxies and credentials
    would get into the image.
    """
    if engine.cli.builder != "classic":
        return
    if engine.product == "Podman":
        raise EngineError(
            f"Podman at {engine.endpoint} cannot build these images: its service has no BuildKit.",
            code="no-buildkit",
            hint="Build with Docker: unset DOCKER_HOST, or start a private engine with `envbuild engine up`. Podman runs what "
            "was built there: `docker save IMAGE | podman load`.",
        )
    raise EngineError(
        f"The engine at {engine.endpoint} cannot be used for builds: no docker program here builds with BuildKit against it.",
        code="no-buildkit",
        hint="Install the docker program with its buildx plugin (docker-buildx-plugin, docker-buildx), or docker.io before 23; "
        "ENVBUILD_DOCKER names the program to use.",
    )
