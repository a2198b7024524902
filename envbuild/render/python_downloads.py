"""Describe for the templates each Python that a build downloads and unpacks: its stage, its folder and its files."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from envbuild import download_mirrors
from envbuild.errors import InvalidInputError
from envbuild.model.environment import Python, RemoteFile
from envbuild.model.lock import Lock


def fetched_pythons(lock: Lock) -> list[dict[str, Any]]:
    """The values of each Python that the build downloads, in the order of the prefixes. Raises :class:`InvalidInputError` if
    the lock lists no files for such a Python."""
    return [_python(lock, python) for python in dict.fromkeys(prefix.python for prefix in lock.prefixes) if python.is_fetched]


def _python(lock: Lock, python: Python) -> dict[str, Any]:
    if not python.files or (python.provided_by == "conda" and python.installer is None):
        raise InvalidInputError(
            f"The lock of {lock.environment.name} does not list the files of Python {python.version} from "
            f"{python.provided_by}.",
            code="unpinned-python",
            hint="Choose another supply with --python-from, or another system with --os; or make the lock again.",
        )
    return {
        "version": python.version,
        "by": python.provided_by,
        "executable": python.executable,
        "folder": str(PurePosixPath(python.executable).parent.parent),
        "stage": f"python-{python.version}-files",
        "files": [file_of(file) for file in python.files],
        "installer": python.installer and file_of(python.installer),
    }


def file_of(file: RemoteFile) -> dict[str, str]:
    """The values that templates use for a file. The values include the variable that can name a mirror of the file's server."""
    variable, prefix, rest = download_mirrors.split(file.url)
    return {"name": PurePosixPath(file.url).name, "sha256": file.sha256, "mirror": variable, "prefix": prefix, "rest": rest}
