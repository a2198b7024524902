"""Builds an image: BuildKit through the docker program, or the SDK's classic builder where nothing else is there."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import procs
from envbuild.engine import dockercli, failures
from envbuild.engine.model import BuiltImage
from envbuild.engine.progress import PlainProgress, count_steps
from envbuild.errors import BuildError, EngineError
from envbuild.model import OnProgress, Progress

if TYPE_CHECKING:
    from envbuild.engine.client import Engine

_SECRET_LIMIT = 500 * 1024  # https://github.com/moby/buildkit: session/secrets/secretsprovider, MaxSecretSize


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What to build and how; see :meth:`envbuild.engine.client.Engine.build`."""

    context: Path
    tags: tuple[str, ...]
    dialect: str
    secrets: dict[str, bytes]
    build_args: dict[str, str]
    labels: dict[str, str]
    no_cache: bool


def build(engine: Engine, order: Order, on_progress: OnProgress) -> BuiltImage:
    """Build with whatever ``engine`` has, refusing early what its builder cannot do."""
    if engine.cli.builder == "classic":
        if order.secrets or order.dialect != "classic":
            raise _no_buildkit(engine)
        return _classic(engine, order, on_progress)
    started = time.monotonic()
    progress = PlainProgress(on_progress, total=count_steps((order.context / "Dockerfile").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory(prefix="envbuild-") as folder, secret_files(order.secrets) as secrets:
        result_file = Path(folder) / "id"
        argv = [*engine.cli.build_argv(), "--progress=plain", f"--iidfile={result_file}"]
        argv += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
        argv += _options(order)
        result = procs.run(
            [*argv, str(order.context)],
            env=dockercli.environment(engine.endpoint),
            on_line=progress.feed,
            dies_with_us=True,
        )
        if result.code != 0:
            raise failures.explain(instruction=progress.failed, reason=progress.reason, lines=progress.tail)
        image = result_file.read_text(encoding="ascii").strip()
    return BuiltImage(
        id=_loaded(engine, image, order), seconds=time.monotonic() - started, steps=progress.steps, cached=progress.cached
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


def _loaded(engine: Engine, image: str, order: Order) -> str:
    # With a containerd image store the file holds a manifest's digest; the engine's own word for the tag is the truth.
    for reference in (*order.tags, image):
        found = engine.image(reference)
        if found is not None:
            return found.id
    raise BuildError(f"The builder reported the image {image}, yet the engine does not hold it.")


def _no_buildkit(engine: Engine) -> EngineError:
    return EngineError(
        f"The engine at {engine.endpoint} cannot be used for builds: no docker program here builds with BuildKit against it.",
        code="no-buildkit",
        hint="Install the docker program with its buildx plugin (docker-buildx-plugin, docker-buildx), or docker.io before 23; "
        "ENVBUILD_DOCKER names the program to use.",
    )


def _classic(engine: Engine, order: Order, on_progress: OnProgress) -> BuiltImage:
    from docker.errors import DockerException

    started = time.monotonic()
    lines: list[str] = []
    step, steps = "", 0
    try:
        for news in engine.client.api.build(
            path=str(order.context),
            tag=order.tags[0],
            buildargs=order.build_args,
            labels=order.labels,
            nocache=order.no_cache,
            rm=True,
            forcerm=True,
            decode=True,
        ):
            text = _classic_text(news)
            if text.startswith("Step "):
                step, lines, steps = text.partition(" : ")[2], [], steps + 1
                on_progress(Progress(stage="build", message=step, done=float(steps), unit="steps"))
            elif text:
                lines.append(text)
                on_progress(Progress(stage="build", message=text, log=True))
            if "error" in news:
                raise failures.explain(instruction=step, reason=str(news["error"]), lines=lines)
    except DockerException as error:
        raise failures.explain(instruction=step, reason=str(error), lines=lines) from error
    for tag in order.tags[1:]:
        engine.tag(order.tags[0], tag)
    return BuiltImage(id=_loaded(engine, "", order), seconds=time.monotonic() - started, steps=steps, cached=0)


def _classic_text(news: dict[str, Any]) -> str:
    return str(news.get("stream") or news.get("status") or "").rstrip()
