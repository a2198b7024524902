"""Which words of a command line name a recipe of the user's, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envbuild.errors import UsageError

FILE = "envbuild.yaml"
_ENDINGS = (".yaml", ".yml")


def path_in(texts: Sequence[str]) -> Path | None:
    """The recipe that ``texts`` name, None where they are a request. Raises :class:`UsageError` where they cannot be both.

    No request has a slash or ends as a YAML file does, so that a path is known without looking at the disk.
    """
    paths = [text for text in texts if _is_path(text)]
    if not paths:
        return None
    if len(texts) > 1:
        raise UsageError(
            f"{paths[0]} is a recipe of its own, and other words stand beside it.",
            hint="Name it alone: what it asks for stands in its `frameworks`.",
        )
    return find(paths[0])


def find(text: str) -> Path:
    """The file that ``text`` names, or that lies in the folder it names; :class:`UsageError` (``no-file``) where none does."""
    path = Path(text).expanduser()
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"There is no file {file}.",
            code="no-file",
            hint=f"`envbuild init {path if path.is_dir() else path.parent}` writes one."
            if file.name == FILE
            else "Name an envbuild.yaml, a folder that holds one, or an environment.",
        )
    return file


def _is_path(text: str) -> bool:
    return "/" in text or text in (".", "..", "~") or text.endswith(_ENDINGS)
