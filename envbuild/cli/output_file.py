"""Writes a file for the user to keep. An existing file with other content is replaced only with ``--force``."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild import files
from envbuild.errors import UsageError

force = click.option("--force", is_flag=True, help="Replace an existing file that differs.")


def write(path: Path, text: str, *, force: bool) -> None:
    """Write ``text`` to ``path``.

    Raises :class:`UsageError` (``file-exists``) if the file has another text and ``force`` is false.
    """
    try:
        if path.exists() and not force and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UsageError(f"{path} already exists with other contents.", code="file-exists", hint="--force replaces it.")
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror or error}.",
            code="not-writable",
            hint="Choose another folder, or move the existing file away.",
        ) from error
    files.write_atomic(path, text)


def require_output(path: Path | None, *, force: bool) -> None:
    """Raise :class:`UsageError` if ``--force`` was given without an output file: there is no file to replace."""
    if force and path is None:
        raise UsageError(
            "--force cannot be used without -o.", hint="Without -o, the text is printed. Name the place to write with -o."
        )
