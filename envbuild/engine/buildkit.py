"""Build an image with BuildKit. The docker program does this, because the SDK has no BuildKit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild import procs
from envbuild.engine import build_failures, docker_program
from envbuild.engine.build_progress import PlainProgress, count_steps
from envbuild.engine.docker_program import DockerCli
from envbuild.engine.model import BuiltImage, ImageInfo, Product
from envbuild.errors import BuildError, EngineError
from envbuild.model.progress import OnProgress

_SECRET_LIMIT = 500 * 1024  # https://github.com/moby/buildkit: session/secrets/secretsprovider, MaxSecretSize


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSpec:
    """A build: what to build, and with which settings; see :meth:`envbuild.engine.client.Engine.build`."""

    context: Path
    tags: tuple[str, ...]
    secrets: dict[str, bytes]
    build_args: dict[str, str]
    labels: dict[str, str]
    no_cache: bool
    dockerfile: str = "Dockerfile"
    target: str = ""
    has_network: bool = True


def build(
    spec: BuildSpec, *, cli: DockerCli, endpoint: str, find_image: Callable[[str], ImageInfo | None], on_progress: OnProgress
) -> BuiltImage:
    """Build on the engine at ``endpoint``. ``find_image`` reads the built image from that engine. Raises
    :class:`BuildError`."""
    started = time.monotonic()
    progress = PlainProgress(on_progress, total=count_steps((spec.context / spec.dockerfile).read_text(encoding="utf-8")))
    with secret_files(spec.secrets) as secrets:
        argv = [*cli.build_argv(), "--progress=plain"]
        argv += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
        argv += build_options(spec)
        result = procs.run(
            [*argv, str(spec.context)],
            env=docker_program.environment(endpoint),
            on_line=progress.feed,
            dies_with_us=True,
        )
        if result.code != 0:
            raise build_failures.explain(instruction=progress.failed, reason=progress.reason, lines=progress.tail)
    # Ask the engine for the image's id. With containerd's image store, or with attestations, the builder reports the digest of
    # a manifest instead of the id.
    image = find_image(spec.tags[0])
    if image is None:
        raise BuildError(
            f"The builder reported success, but the engine does not have {spec.tags[0]}.",
            hint="Another program, such as `docker image prune`, may have removed it. Run the command again.",
        )
    return BuiltImage(id=image.id, seconds=time.monotonic() - started, steps=progress.steps, cached=progress.cached)


@contextlib.contextmanager
def secret_files(secrets: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Yield paths from which the docker program can read the secrets until the ``with`` block ends.

    The secrets are in memory files of this process, accessible through /proc. They are never written to a disk, and they vanish
    when the process ends.
    """
    with contextlib.ExitStack() as stack:
        paths: dict[str, str] = {}
        for name, content in secrets.items():
            if len(content) > _SECRET_LIMIT:
                raise BuildError(
                    f"The build secret {name} has {len(content)} bytes, but BuildKit accepts at most {_SECRET_LIMIT}.",
                    code="secret-too-large",
                    hint="Set SSL_CERT_FILE to a smaller CA bundle: the CA certificates of the system and your own are enough.",
                )
            stream = stack.enter_context(os.fdopen(os.memfd_create(f"envbuild-{name}"), "wb"))
            stream.write(content)
            stream.flush()
            paths[name] = f"/proc/{os.getpid()}/fd/{stream.fileno()}"
        yield paths


def build_options(spec: BuildSpec) -> list[str]:
    """Return the options of the docker program for ``spec``, without its secrets."""
    options = [f"--tag={tag}" for tag in spec.tags]
    options += [f"--build-arg={name}={value}" for name, value in spec.build_args.items()]
    options += [f"--label={name}={value}" for name, value in spec.labels.items()]
    if spec.dockerfile != "Dockerfile":
        options.append(f"--file={spec.context / spec.dockerfile}")
    if spec.target:
        options.append(f"--target={spec.target}")
    if not spec.has_network:
        options.append("--network=none")
    return [*options, "--no-cache"] if spec.no_cache else options


def no_buildkit(endpoint: str, product: Product) -> EngineError:
    """Return the error (``no-buildkit``) for an engine on which no docker program of this machine can build with BuildKit.

    The classic builder and Podman's builder cannot mount build secrets in the form that these Dockerfiles need. With these
    builders, proxies and credentials would become part of the image.
    """
    if product == "Podman":
        return EngineError(
            f"Podman at {endpoint} cannot build these images: its service has no BuildKit.",
            code="no-buildkit",
            hint="Build with Docker: unset DOCKER_HOST, or start a private engine with `envbuild engine up`. Podman can "
            "run an image that Docker built: `docker save IMAGE | podman load`.",
        )
    return EngineError(
        f"The engine at {endpoint} cannot be used for builds, because this machine has no docker program that can build "
        "with BuildKit on it.",
        code="no-buildkit",
        hint="Install the docker program with its buildx plugin (docker-buildx-plugin, docker-buildx), or docker.io "
        "before 23. To use another docker program, set ENVBUILD_DOCKER to it.",
    )
