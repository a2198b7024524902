"""Lists the system packages of an image with the image's own package manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.errors import VerifyError

if TYPE_CHECKING:
    from envbuild.engine.client import Engine


def packages(engine: Engine, image: str) -> list[tuple[str, str, str]]:
    """Name, version and architecture of each installed package, sorted by name. Raises :class:`VerifyError` if dpkg cannot
    run."""
    return _installed(engine, image, "${Package} ${Version} ${Architecture}")


def sources(engine: Engine, image: str) -> list[tuple[str, str, str]]:
    """Name, source package and source version of each installed package, sorted by name. Raises the same error as
    :func:`packages`."""
    return _installed(engine, image, "${Package} ${source:Package} ${source:Version}")


def _installed(engine: Engine, image: str, fields: str) -> list[tuple[str, str, str]]:
    """The three ``fields`` of each installed package, in dpkg's syntax."""
    arguments = ["--show", "--showformat", f"${{db:Status-Status}} {fields}\\n"]
    told = engine.run(image, arguments, entrypoint=["dpkg-query"], network="none")
    lines = [line.split() for line in told.output.splitlines()]
    found = sorted((words[1], words[2], words[3]) for words in lines if len(words) == 4 and words[0] == "installed")
    if told.code != 0 or not found:
        raise VerifyError(
            f"dpkg in the image {image} does not list the installed packages: {' '.join(told.output.split()[-20:])}"
        )
    return found
