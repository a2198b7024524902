"""Write files atomically, read files safely, and lock them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from envbuild.errors import BuildError, EnvbuildError, UsageError

# The largest file that is read: locks, smoke reports and certificate bundles have less than 2 MB. The limit keeps an endless
# file (/dev/zero) from filling the memory; parsed JSON takes 20 times the memory of its text.
PLENTY = 16 * 2**20
# How long to wait for another run: a build or a smoke test may take hours, other work takes minutes.
LONG_WAIT_S = 6 * 3600.0
SHORT_WAIT_S = 120.0
QUIET_S = 2.0  # seconds; shorter waits are not reported
_REMIND_S = 30.0
_SHOWN = 100  # most characters of the command of another process in a message
_POLL_S = 0.1
_IN_THE_WAY = "Move the existing file away"
_CURES = {errno.ENOTDIR: _IN_THE_WAY, errno.EEXIST: _IN_THE_WAY, errno.EROFS: "Make the file system writable"}
_FULL = {errno.ENOSPC: "No space left on", errno.EDQUOT: "The disk quota is used up on"}
_ELSEWHERE = "choose another folder (for the cache folder, with the variable ENVBUILD_HOME)"
_STAYS = "The complete files stay, and the same command continues with them."


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write ``content`` atomically: even if the process is killed, ``path`` has either the old content or the complete new
    content.

    Missing folders are made; after an error they are removed again. Raises :class:`BuildError` (``no-space``) when the disk is
    full and :class:`UsageError` when the folder is not writable.
    """
    data = content.encode() if isinstance(content, str) else content
    refuse_device(path)
    try:
        with made_folder(path.parent):
            while not _write(path, data, mode):
                pass
    except OSError as error:
        raise explain_os_error(error, path) from error


@contextlib.contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make ``folder`` and its missing parents. If the block fails, remove the new folders that are empty. Raises OSError."""
    missing, each = [], folder
    while not os.path.lexists(each):
        missing.append(each)
        each = each.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):  # the folder has other content, or was never made
                each.rmdir()
        raise


def _write(path: Path, data: bytes, mode: int) -> bool:
    """Write the file. Return False if another process used the same temporary name and removed it."""
    with new_file(path.parent, f".{path.name}.") as new:
        new.stream.write(data)
        return new.keep(path, mode=mode)


class NewFile:
    """A file that is being written. The file is deleted unless :meth:`keep` gives it a name."""

    def __init__(self, stream: BinaryIO, temporary: str) -> None:
        self.stream = stream
        self._temporary = temporary

    def keep(self, path: Path, *, mode: int = 0o644) -> bool:
        """Rename the file to ``path``, in the same folder, after its whole content is on the disk; replace an existing file.

        Returns False if another process wrote to ``path`` at the same time and removed the temporary name. The file is then
        lost. Callers with large files hold a lock.
        """
        self.stream.flush()
        os.fsync(self.stream.fileno())
        os.fchmod(self.stream.fileno(), mode)
        self._temporary = self._temporary or _name(self.stream.fileno(), path)
        try:
            Path(self._temporary).replace(path)
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise
            return False
        self._temporary = ""
        return True

    def drop(self) -> None:
        """Remove the temporary name, if there is one."""
        if self._temporary:
            with contextlib.suppress(FileNotFoundError):
                Path(self._temporary).unlink()
            self._temporary = ""


@contextlib.contextmanager
def new_file(folder: Path, prefix: str = ".new.") -> Iterator[NewFile]:
    """Open a new file in ``folder``. The name of the file may depend on its content: :meth:`NewFile.keep` sets the name at the
    end.

    Until then the file has no name, so that nothing remains if the process is killed. On the few file systems that do not
    support unnamed files, the file has a temporary name that begins with ``prefix``. Raises OSError.
    """
    descriptor, temporary = _open_nameless(folder, prefix)
    with os.fdopen(descriptor, "wb") as stream:
        new = NewFile(stream, temporary)
        try:
            yield new
        finally:
            new.drop()


def _open_nameless(folder: Path, prefix: str) -> tuple[int, str]:
    """Return a new file in ``folder`` and its temporary name. The name is empty if the file system supports unnamed files."""
    if Path("/proc/self/fd").is_dir():
        with contextlib.suppress(OSError):  # not all file systems support this; a full disk raises the error again below
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600), ""
    import tempfile

    return tempfile.mkstemp(prefix=prefix, dir=folder)


def _name(descriptor: int, path: Path) -> str:
    """Give the unnamed file a temporary name next to ``path``. The caller renames it, because a link cannot replace a file.

    The temporary name is always the same. If the process is killed before the rename, the next write removes the file.
    """
    beside = path.with_name(f".{path.name}.new")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            try:
                os.link(f"/proc/self/fd/{descriptor}", beside.name, dst_dir_fd=folder, follow_symlinks=True)  # calls linkat()
            except FileExistsError:
                beside.unlink(missing_ok=True)
            else:
                return str(beside)
    finally:
        os.close(folder)


def refuse_device(path: Path) -> None:
    """Refuse to replace a device, a pipe or a folder: as root, ``-o /dev/null`` would delete the device."""
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode) or path.absolute().is_relative_to("/dev"):
            raise UsageError(
                f"{path} is not a plain file, so it is not replaced.",
                code="not-writable",
                hint="Name a plain file. Or leave the option out, and redirect standard output.",
            )


def explain_os_error(error: OSError, path: Path, *, continues: bool = False) -> EnvbuildError:
    """Return the EnvbuildError that explains an ``OSError`` at ``path`` to the user.

    ``continues`` means that complete files stay on the disk, and that the same command continues with them.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        mounted = f" mounted at {mount_point(path)}" if path.is_absolute() else ""
        return BuildError(
            f"{_FULL[error.errno]} the file system{mounted} while writing {path}.",
            code="no-space",
            hint=f"Free some space there, or {_ELSEWHERE}. {_STAYS if continues else 'No half-written file was left.'}",
        )
    cure = _CURES.get(error.errno or 0, "Correct the permissions")
    hint = f"{cure}, or {_ELSEWHERE}."
    return UsageError(f"Cannot write {path}: {error.strerror or error}.", code="not-writable", hint=hint)


def mount_point(path: Path) -> Path:
    """Return the folder at which the file system of ``path`` is mounted. ``path`` need not exist."""
    place = path.absolute()
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place


def read_bytes(path: Path, limit: int = PLENTY) -> bytes:
    """Return the content of a plain file of at most ``limit`` bytes.

    Raises OSError for larger files, and for pipes, devices and folders, because reading them might block or never end. The
    error is an OSError, because callers handle OSError anyway.
    """
    with _open_plain(path) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit // 2**20} MB, which is the limit for such a file", str(path))
    return content


def read_text(path: Path, limit: int = PLENTY) -> str:
    """Read like :func:`read_bytes`, as UTF-8. Raises UnicodeDecodeError (a ValueError) for other text."""
    return read_bytes(path, limit).decode("utf-8")


def sha256_of(path: Path) -> str:
    """Return the lower-case hexadecimal SHA-256 of a plain file, read in pieces."""
    with _open_plain(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_new(path: Path) -> BinaryIO:
    """Open a new, empty file at ``path`` for writing; an existing file is removed first.

    The file must be new (O_EXCL), so that a link that somebody else put at ``path`` is never followed.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o644), "wb")


def open_to_append(path: Path) -> BinaryIO:
    """Open the plain file at ``path`` for appending, and make it if it is absent. A link raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    return _plain(os.open(path, flags, 0o644), path, "ab")


def private_folder(path: Path) -> Path:
    """Return ``path`` as a folder that only this user can access (mode 0700); make it if it is absent.

    Raises :class:`UsageError` (``unsafe-folder``) if ``path`` is a link or a file. Also raises this error for a folder that
    belongs to another user or that others may write to, because they could change the files in the folder.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
        found = path.lstat()
    except OSError as error:
        raise explain_os_error(error, path) from error
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return path
    raise UsageError(
        f"{path} is not a folder that only this user can write to.",
        code="unsafe-folder",
        hint="Another user may have made this folder. Look at its contents, remove the folder, and run the command again.",
    )


def _open_plain(path: Path) -> io.BufferedReader:
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    return cast(io.BufferedReader, _plain(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, "rb"))


def _plain(descriptor: int, path: Path, mode: str) -> BinaryIO:
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(number, "it is a folder" if stat.S_ISDIR(kind) else "it is not a plain file", str(path))
    return os.fdopen(descriptor, mode)  # type: ignore[return-value]  # both modes are binary


def tell_nobody(_message: str) -> None:
    """A listener for :func:`locked` that shows nothing."""


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[str], None] = tell_nobody, *, limit_s: float = LONG_WAIT_S) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (made if absent), so that two runs do not do the same work at the same time.

    After two seconds of waiting, and then every half minute, ``on_wait`` gets a message that names the holder. Raises
    :class:`BuildError` (``busy``) after ``limit_s``. The file is removed at the end. When a process ends for any reason, the
    kernel releases its lock, so no lock can be stale. The next process takes over the file of a killed process, and removes the
    file at its own end. Raises the same errors as :func:`write_atomic` if the folder is not writable. A link at ``path`` is
    never followed.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            stream = _plain(os.open(path, flags, 0o644), path, "r+b")
        except OSError as error:
            raise explain_os_error(error, path) from error
        with stream:
            _acquire(stream, path, on_wait, limit_s)
            if not _is_at(stream, path):  # the previous holder removed the file; another file may have this name now
                continue
            with contextlib.suppress(OSError):  # the disk may be full; recording the holder is optional
                stream.seek(0)  # a message about waiting has read the file
                stream.truncate(0)
                stream.write(f"{os.getpid()}\n".encode())
                stream.flush()
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # remove the file while it is locked, so that no other process locks it
                    path.unlink()
            return


def _is_at(stream: BinaryIO, path: Path) -> bool:
    """Whether ``path`` still names the open file."""
    try:
        named, held = path.lstat(), os.fstat(stream.fileno())
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _acquire(stream: BinaryIO, path: Path, on_wait: Callable[[str], None], limit_s: float) -> None:
    began = time.monotonic()
    next_word = QUIET_S
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited >= limit_s:
            raise BuildError(
                f"{path} is in use by {_holder(stream)}, which did not release it within {limit_s:.0f} s.",
                code="busy",
                hint="Wait until that process ends, or stop it, and run the command again.",
            )
        if waited >= next_word:
            next_word += _REMIND_S
            limit = f"{limit_s / 3600:g} h" if limit_s >= 3600 else f"{limit_s:.0f} s"
            on_wait(f"waiting for {_holder(stream)}, which is using {path} (at most {limit})")
        time.sleep(_POLL_S)


def described_command(words: Sequence[str]) -> str:
    """Return a command for people: without folders of programs, and without the Python that runs envbuild.

    A long command is cut at the end of a word.
    """
    program = next((i for i, word in enumerate(words[:6]) if word.rpartition("/")[2] == "envbuild"), 0)
    told = " ".join([words[program].rpartition("/")[2], *words[program + 1 :]]) if words else ""
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN].rpartition(' ')[0] or told[:_SHOWN]} …"


def _holder(stream: BinaryIO) -> str:
    """Describe the process whose number is in the lock file, with its command if it is visible."""
    stream.seek(0)
    number = stream.read(20).strip()
    if not number.isdigit():
        return "another run"
    try:
        words = Path(f"/proc/{int(number)}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {int(number)}"
    command = described_command([os.fsdecode(word) for word in words if word])
    return f"process {int(number)} ({command})" if command else f"process {int(number)}"
