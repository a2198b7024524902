"""Find the user's recipe that is named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envbuild.errors import UsageError

FILE = "envbuild.yaml"
_ENDINGS = (".yaml", ".yml")


def path_in(texts: Sequence[str]) -> Path | None:
    """Return the recipe that ``texts`` name, or None if they are a request. Raises :class:`UsageError` if ``texts`` has both a
    recipe and a request.

    A text with a slash, or with the ending of a YAML file, is a path: no request has this form.
    """
    paths = [text for text in texts if _is_path(text)]
    if not paths:
        return None
    if len(texts) > 1:
        raise UsageError(
            f"{paths[0]} names an envbuild.yaml, so no other request can be given.",
            hint="Name only this file or folder, and write the other frameworks into the file under `frameworks`.",
        )
    return find(paths[0])


def find(text: str) -> Path:
    """Return the file ``text``, or the recipe in the folder ``text``. Raises :class:`UsageError` (``no-file``) if there is no
    such file."""
    path = Path(text).expanduser()
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"There is no file {file}.",
            code="no-file",
            hint=f"To write one, run: envbuild init {path if path.is_dir() else path.parent}"
            if file.name == FILE
            else "Name an envbuild.yaml, a folder that contains one, or an environment.",
        )
    return file


def _is_path(text: str) -> bool:
    return "/" in text or text in (".", "..", "~") or text.endswith(_ENDINGS)
