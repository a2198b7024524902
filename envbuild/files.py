"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.errors import BuildError, EnvbuildError, UsageError


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write ``content`` so that a reader, or a kill at any moment, sees the old file or the new one, never a part.

    Raises :class:`BuildError` (``no-space``) when the disk is full and :class:`UsageError` when the place is not writable.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    finally:
        if temporary:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()


def explain_os_error(error: OSError, path: Path) -> EnvbuildError:
    """The error of ours that says what an ``OSError`` at ``path`` means to a user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildError(
            f"No space left on the device while writing {path}.",
            code="no-space",
            hint="Free some space there, or set ENVBUILD_HOME to a folder on a larger disk. Nothing half-written was left.",
        )
    return UsageError(
        f"Cannot write {path}: {error.strerror or error}.",
        code="not-writable",
        hint="Choose a writable place with ENVBUILD_HOME, or correct the permissions.",
    )


def sha256_of(path: Path) -> str:
    """The lower-case hexadecimal SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (made if absent), so that two runs do not do the same work at once.

    ``on_wait`` is called once where another run holds it and this one has to wait. The kernel drops the lock when the process
    ends, however it ends, so that nothing stale can remain. An unwritable place raises as in :func:`write_atomic`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w")
    except OSError as error:
        raise explain_os_error(error, path) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
