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
from envbuild.errors import EngineError, EnvbuildError, TimedOutError

_USUAL = ("/usr/bin/docker", "/usr/local/bin/docker", "/snap/bin/docker")
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


def choose(endpoint: str, programs: Sequence[str], *, patience_s: float = 60.0) -> DockerCli:
    """Return the best of ``programs``: the first whose buildx works, else the first whose BuildKit build works, else
    ``classic``. Each program is asked for a trial build.

    Raises :class:`EngineError` (``engine-busy``) if no program works, and a trial build did not end within ``patience_s``
    seconds.
    """
    is_late = False
    for trial in (_with_buildx, _with_buildkit):
        for path in programs:
            try:
                found = trial(path, endpoint, patience_s)
            except TimedOutError:
                is_late = True
                continue
            if found is not None:
                return found
    if is_late:
        raise EngineError(
            f"The engine at {endpoint} did not finish an empty build within {patience_s:.0f} s.",
            code="engine-busy",
            hint="It may be busy, for example with removing old builds. Run the same command again later.",
        )
    return DockerCli(path="", builder="classic", version="")


def _ask(argv: Sequence[str], endpoint: str, patience_s: float, question: str | None = None) -> procs.Result | None:
    """Run a docker program; return None if it cannot be run. Raises :class:`TimedOutError`."""
    try:
        with guard.temporary_folder("envbuild-") as folder:  # some versions of the program leave an empty folder behind
            env = {**environment(endpoint), "TMPDIR": str(folder)}
            return procs.run(argv, env=env, input_text=question, timeout_s=patience_s, split=True)
    except TimedOutError:
        raise
    except (EnvbuildError, OSError):  # the program is broken, so try the next one
        return None


def _with_buildx(path: str, endpoint: str, patience_s: float) -> DockerCli | None:
    answer = _ask([path, "buildx", "version"], endpoint, patience_s)
    if answer is None or answer.code != 0:
        return None
    build = _ask([path, "buildx", "build", "--builder=default", "--output=type=cacheonly", "-"], endpoint, patience_s, _ANSWER)
    if build is None or build.code != 0:
        return None
    return DockerCli(path=path, builder="buildx", version=" ".join(answer.output.split()[1:2]))


def _with_buildkit(path: str, endpoint: str, patience_s: float) -> DockerCli | None:
    # Write the result as a tar file to standard output, so that the test leaves no image behind. The classic builder fails,
    # because it does not know the option --output.
    answer = _ask([path, "build", "--progress=plain", "--output=-", "-"], endpoint, patience_s, _ANSWER)
    if answer is None or answer.code != 0:
        return None
    version = _ask([path, "version", "--format", "{{.Client.Version}}"], endpoint, patience_s)
    told = version.output.strip() if version is not None and version.code == 0 else ""
    return DockerCli(path=path, builder="docker-buildkit", version=told)
