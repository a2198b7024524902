"""The folder of a bundle: all files that builds of some environments need, each named by its sha256, and a manifest.

    bundle.json          the manifest: the environments and the files (``schemas/bundle.json``)
    files/SHA256         a file, named by its sha256

A bundle may come from somebody else, so its manifest is not trusted. No text of the manifest becomes a path in the folder:
files are found only by their hash. Links are refused. The lock of an environment says which files the environment needs.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from envbuild import codec, files
from envbuild.errors import InvalidInputError, Problem
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.names import is_plain_name
from envbuild.workspace import PRIVATE, can_be_name

MANIFEST = "bundle.json"
FILES = "files"
RECIPE = "envbuild.yaml"
_LARGEST_MANIFEST = 64 * 2**20
_MOST_PROBLEMS = 50
_DEEPEST = 32

Kind = Literal["python package", "Debian package", "fetched file", "source", "base", "lock", "recipe", "matrix"]
Fault = Literal["missing", "damaged", "not a plain file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BundledFile:
    """One file of the bundle, with its ``size`` in bytes. ``name`` is only for people: on disk, the name is the sha256."""

    name: str
    kind: Kind
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnFile:
    """A file that belongs to a user's recipe. ``path`` is relative to the folder of the recipe."""

    path: str
    sha256: str
    executable: bool = field(default=False, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class BundledEnvironment:
    """One environment: the sha256 of its lock, and the sha256 of the tar file of its base if the bundle has this file.

    ``recipe`` are the files of a user's recipe: first its envbuild.yaml, then the files that it names.
    """

    name: str
    lock: str
    base: str = field(default="", metadata={"left_out_if_default": True})
    recipe: tuple[OwnFile, ...] = field(default=(), metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleManifest:
    """The content of ``bundle.json``.

    ``matrix`` has the hashes of the overlays, which are files with additional rows of the matrix. The order of the overlays is
    kept.
    """

    schema: int
    made_by: str
    environments: tuple[BundledEnvironment, ...]
    files: tuple[BundledFile, ...]
    matrix: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})

    def environment(self, name: str) -> BundledEnvironment | None:
        """Return the environment with this name; None if the bundle does not have it."""
        return next((each for each in self.environments if each.name == name), None)


class BundleFolder:
    """A bundle on disk. This class only reads the bundle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Return the path of the file with this hash. The file need not exist."""
        return self.folder / FILES / sha256

    def manifest(self) -> BundleManifest:
        """Read and check ``bundle.json``.

        Raises :class:`InvalidInputError`: ``no-bundle`` if there is no such file, ``broken-bundle`` with the problems of the
        file.
        """
        path = self.folder / MANIFEST
        try:
            if path.is_symlink() or (self.folder / FILES).is_symlink():
                raise OSError(errno.ELOOP, "it is a link")
            data = codec.loads(files.read_bytes(path, _LARGEST_MANIFEST))
            manifest = codec.decode(BundleManifest, data, MANIFEST)
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"{self.folder} is not a complete bundle: it has no {MANIFEST}.",
                code="no-bundle",
                hint="To make a bundle, run `envbuild bundle NAME -o FOLDER`. It writes this file last, so an interrupted "
                "run has none.",
            ) from error
        except (OSError, ValueError) as error:
            raise self._broken(getattr(error, "strerror", None) or str(error)) from error
        except InvalidInputError as error:
            raise self._broken("it does not have the structure of a bundle's manifest", error.problems) from error
        if wrong := list(_wrong(manifest))[:_MOST_PROBLEMS]:
            problems = [Problem(where=str(path), line=0, message=message) for message in wrong]
            raise self._broken("it contains an impossible value", problems)
        return manifest

    def lock(self, environment: BundledEnvironment) -> Lock:
        """Return the lock of ``environment``. The hash of the lock file is checked first, and then the content of the lock.

        Raises :class:`InvalidInputError` (``broken-bundle``, ``broken-lock``).
        """
        path = self.path(environment.lock)
        lock = lock_file.parse(self._read(environment.lock, f"the lock of {environment.name}", lock_file.LARGEST), path)
        if lock.environment.name != environment.name:
            raise self._broken(f"the lock of {environment.name} is the lock of {lock.environment.name}")
        return lock

    def content(self, sha256: str, what: str) -> bytes:
        """Return the bytes of a small file. Raises :class:`InvalidInputError` (``broken-bundle``) if it cannot be used."""
        return self._read(sha256, what, files.PLENTY)

    def _read(self, sha256: str, what: str, limit: int) -> bytes:
        """Return the bytes of a small file. Their hash is checked again, because the file may have changed in the meantime."""
        import hashlib

        if fault := self.fault(sha256):
            raise self._broken(f"{what} ({sha256}) is {fault}")
        try:
            content = files.read_bytes(self.path(sha256), limit)
        except OSError as error:
            raise self._broken(f"{what} ({sha256}) cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise self._broken(f"{what} ({sha256}) changed while it was read")
        return content

    def fault(self, sha256: str, on_bytes: Callable[[int], None] = lambda _count: None) -> Fault | None:
        """Read the whole file with this hash, and say what is wrong with it; None if the file is as it should be."""
        if not is_sha256(sha256):  # in place of a hash, a malicious lock may have a path to another folder
            return "missing"
        path = self.path(sha256)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return "not a plain file"
            found = hash_of(path, on_bytes)
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return "not a plain file" if error.errno == errno.ELOOP else "damaged"
        return None if found == sha256 else "damaged"

    def names(self) -> Iterator[str]:
        """Yield the names of the files in the folder ``files``. Yield nothing if this folder does not exist."""
        if (self.folder / FILES).is_dir():
            with os.scandir(self.folder / FILES) as entries:
                yield from (entry.name for entry in entries)

    def _broken(self, why: str, problems: Iterable[Problem] = ()) -> InvalidInputError:
        return InvalidInputError(
            f"The bundle {self.folder} cannot be used: {why}.",
            code="broken-bundle",
            hint="Copy it again from where it was made, or make it again. To check all of its files, run `envbuild doctor "
            "--offline FOLDER`.",
            problems=tuple(problems),
        )


def hash_of(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> str:
    """Return the sha256 of a plain file. ``on_bytes`` gets the size of each piece. Raises OSError, for example for a link."""
    import hashlib

    whole = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        while piece := stream.read(1 << 20):
            whole.update(piece)
            on_bytes(len(piece))
    return whole.hexdigest()


def copy(source: Path, target: Path, sha256: str, on_bytes: Callable[[int], None] = lambda _count: None) -> None:
    """Copy a file to ``target``, and check its hash while copying. The copy gets its name after all bytes are on the disk.

    Raises :class:`InvalidInputError` (``broken-bundle``) if the file has another hash. Also raises the errors of
    :func:`files.write_atomic`.
    """
    import hashlib

    whole = hashlib.sha256()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream,
            files.new_file(target.parent) as new,
        ):
            while piece := stream.read(1 << 20):
                whole.update(piece)
                new.stream.write(piece)
                on_bytes(len(piece))
            if whole.hexdigest() != sha256:
                raise InvalidInputError(
                    f"{source} is not the expected file: its sha256 is {whole.hexdigest()}, not {sha256}.", code="broken-bundle"
                )
            new.keep(target)
    except OSError as error:
        raise files.explain_os_error(error, target) from error


def is_sha256(text: str) -> bool:
    """Whether ``text`` is a sha256 in lower-case hexadecimal digits."""
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def _wrong(manifest: BundleManifest) -> Iterator[str]:
    """Yield a message about each entry of a manifest that is impossible or unsafe."""
    if manifest.schema != 1:
        yield f"this envbuild cannot read schema {manifest.schema}, only schema 1"
    listed = {file.sha256 for file in manifest.files}
    if len(listed) != len(manifest.files):
        yield "a sha256 is listed twice"
    for file in manifest.files:
        yield from _wrong_file(file)
    names = [environment.name for environment in manifest.environments]
    if len({*names}) != len(names):
        yield "an environment is listed twice"
    for environment in manifest.environments:
        if not can_be_name(environment.name):
            yield f"{environment.name[:80]!r} cannot be the name of an environment"
        yield from _unlisted(environment.name, [environment.lock, *filter(None, [environment.base])], listed)
        yield from _wrong_paths(environment, listed)
    yield from _unlisted("the matrix", manifest.matrix, listed)


def _wrong_file(file: BundledFile) -> Iterator[str]:
    if not is_sha256(file.sha256):
        yield f"{file.sha256[:80]!r} is not a sha256"
    if not is_plain_name(file.name):
        yield f"{file.name[:80]!r} cannot be the name of a file"
    if file.size < 0:
        yield f"{file.name[:80]!r} has a negative size"


def _unlisted(owner: str, hashes: Iterable[str], listed: set[str]) -> Iterator[str]:
    yield from (f"{sha256[:80]!r}, of {owner[:80]}, is not listed among the files" for sha256 in hashes if sha256 not in listed)


def _wrong_paths(environment: BundledEnvironment, listed: set[str]) -> Iterator[str]:
    paths = [own.path for own in environment.recipe]
    for own in environment.recipe:
        parts = own.path.split("/")
        if not 0 < len(parts) <= _DEEPEST or any(part in ("", ".", "..") or "\0" in part or len(part) > 255 for part in parts):
            yield f"{own.path[:80]!r} is not a relative path inside the folder"
        elif parts[0] == PRIVATE:  # builds write results there that later runs trust
            yield f"{own.path[:80]!r} is in {PRIVATE}, where envbuild keeps its own files"
    if paths and paths[0] != RECIPE:
        yield f"the first file of {environment.name[:80]}, {paths[0][:80]!r}, is not {RECIPE}"
    yield from _unlisted(environment.name, [own.sha256 for own in environment.recipe], listed)
    below = {parent for path in paths for parent in _parents(path)}
    if len({*paths}) != len(paths) or below & {*paths}:
        yield f"two files of {environment.name[:80]} have the same path"


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
