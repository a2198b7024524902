"""Find a docker program that can build with BuildKit on one engine. Each program is tried, because its path or version proves
nothing.

The first program on PATH may be unusable. From version 23 on, ``docker build`` needs the plugin buildx, and distributions put
buildx into a separate package (https://docs.docker.com/build/buildkit/#getting-started).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild import guard, procs
from envbuild.engine.model import Builder
from envbuild.errors import EnvbuildError

_USUAL = ("/usr/bin/docker", "/usr/local/bin/docker", "/snap/bin/docker")
_ASK_S = 20.0
_ANSWER = "FROM scratch\nLABEL org.envbuild.question=buildkit\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerCli:
    """A docker program and its builder. If ``builder`` is ``classic``, ``path`` is empty: that builder cannot build these
    Dockerfiles."""

    path: str
    builder: Builder
    version: str

    def build_argv(self) -> list[str]:
        """Return the beginning of a build's command line, with the options for its output."""
        if self.builder == "buildx":
            # "default" is the engine's own BuildKit. Another builder would not see the images of this engine. Attestations are
            # off, because with them the image is an index of several manifests, which engines before version 25 cannot load.
            return [self.path, "buildx", "build", "--builder=default", "--load", "--provenance=false", "--sbom=false"]
        return [self.path, "build"]


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables that make the docker program use ``endpoint`` and BuildKit."""
    return {"DOCKER_HOST": endpoint, "DOCKER_BUILDKIT": "1", "BUILDX_BUILDER": "default", "BUILDKIT_PROGRESS": "plain"}


def candidates(environ: Mapping[str, str]) -> list[str]:
    """Return every docker program to try: those on PATH, in order, then those in the usual folders. Each real file is listed
    once. If ENVBUILD_DOCKER is set, return only the program that it names."""
    named = environ.get("ENVBUILD_DOCKER")
    folders = [Path(p) / "docker" for p in environ.get("PATH", "").split(os.pathsep) if p]
    found: dict[Path, str] = {}
    for path in [Path(named)] if named else [*folders, *map(Path, _USUAL)]:
        if path.is_file() and os.access(path, os.X_OK):
            found.setdefault(path.resolve(), str(path))
    return list(found.values())


def choose(endpoint: str, programs: Sequence[str]) -> DockerCli:
    """Return the best of ``programs``: the first whose buildx works, else the first whose BuildKit build works, else
    ``classic``."""
    for path in programs:
        version = _buildx_version(path, endpoint)
        if version:
            return DockerCli(path=path, builder="buildx", version=version)
    for path in programs:
        if _buildkit_works(path, endpoint):
            return DockerCli(path=path, builder="docker-buildkit", version=_version(path, endpoint))
    return DockerCli(path="", builder="classic", version="")


def _ask(argv: Sequence[str], endpoint: str, question: str | None = None) -> procs.Result | None:
    try:
        with guard.temporary_folder("envbuild-") as folder:  # some versions of the program leave an empty folder behind
            env = {**environment(endpoint), "TMPDIR": str(folder)}
            return procs.run(argv, env=env, input_text=question, timeout_s=_ASK_S, split=True)
    except (EnvbuildError, OSError):  # the program is broken, so try the next one
        return None


def _buildx_version(path: str, endpoint: str) -> str:
    answer = _ask([path, "buildx", "version"], endpoint)
    if answer is None or answer.code != 0:
        return ""
    build = _ask([path, "buildx", "build", "--builder=default", "--output=type=cacheonly", "-"], endpoint, _ANSWER)
    return " ".join(answer.output.split()[1:2]) if build is not None and build.code == 0 else ""


def _buildkit_works(path: str, endpoint: str) -> bool:
    # Write the result as a tar file to standard output, so that the test leaves no image behind. The classic builder fails,
    # because it does not know the option --output.
    answer = _ask([path, "build", "--progress=plain", "--output=-", "-"], endpoint, _ANSWER)
    return answer is not None and answer.code == 0


def _version(path: str, endpoint: str) -> str:
    answer = _ask([path, "version", "--format", "{{.Client.Version}}"], endpoint)
    return answer.output.strip() if answer is not None and answer.code == 0 else ""
