"""Read and write locks. Their JSON form is exact to the byte, because the hash of the bytes identifies a lock."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from envbuild import codec
from envbuild.errors import InvalidInputError, Problem
from envbuild.files import read_bytes, write_atomic
from envbuild.model.lock import Artifact, Lock
from envbuild.names import is_file_name, is_package_name, is_version
from envbuild.workspace import can_be_name

# bytes; the largest committed lock has 50 kB, and a lock of a thousand files with long names would have 1 MB
LARGEST = 8 * 2**20
_LARGEST_FILE = 2**50
_LONGEST_ADDRESS = 2000
_MOST_PROBLEMS = 50
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def dumps(lock: Lock) -> str:
    """Return the exact text of ``lock.json``."""
    return codec.dumps(lock)


def digest(lock: Lock) -> str:
    """Return the lock's identity: the hexadecimal SHA-256 of the bytes that :func:`write` writes."""
    return hashlib.sha256(dumps(lock).encode()).hexdigest()


def write(path: Path, lock: Lock) -> None:
    """Write ``lock`` to ``path`` atomically."""
    write_atomic(path, dumps(lock))


def read(path: Path) -> Lock:
    """Return the lock at ``path``. Raises :class:`InvalidInputError` if it is absent, damaged or not a lock."""
    try:
        content = read_bytes(path, LARGEST)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise _broken(path, "it is a link to a file that does not exist") from error
        raise InvalidInputError(
            f"There is no lock at {path}.", code="no-lock", hint=f"To make it, run: envbuild lock {path.parent.name}"
        ) from error
    except OSError as error:
        raise _broken(path, error.strerror or str(error)) from error
    return parse(content, path)


def parse(content: bytes | str, path: Path) -> Lock:
    """Parse ``content`` as a lock. Errors mention ``path``. Raises the same errors as :func:`read`."""
    try:
        data = codec.loads(content)
    except ValueError as error:
        raise _broken(path, str(error), line=getattr(error, "lineno", 0)) from error
    try:
        lock = codec.decode(Lock, data, str(path))
    except InvalidInputError as error:
        raise _broken(path, "it does not have the structure of a lock", problems=error.problems) from error
    if isinstance(content, str) or b"\\u" in content:  # valid UTF-8 can contain half of a surrogate pair only as such an escape
        try:
            dumps(lock).encode()
        except UnicodeEncodeError as error:
            raise _broken(path, "it contains half of a surrogate pair, which is not a valid character") from error
    if unreadable := list(itertools.islice(_unreadable(lock), _MOST_PROBLEMS)):
        problems = [Problem(where=str(path), line=0, message=message) for message in unreadable]
        raise _broken(path, "it contains an impossible value", problems=problems)
    return lock


def _broken(path: Path, why: str, *, line: int = 0, problems: Sequence[Problem] = ()) -> InvalidInputError:
    name = path.parent.name if path.name == "lock.json" else "NAME"
    return InvalidInputError(
        f"Cannot read the lock {path}: {why}.",
        code="broken-lock",
        hint=f"envbuild writes this file. Make it again with `envbuild lock {name} --relock`, or restore it from your "
        "repository.",
        problems=problems or ([Problem(where=str(path), line=line, message=why)] if line else ()),
    )


def _unreadable(lock: Lock) -> Iterator[str]:
    """Yield a line for each invalid name or address. Such values would become parts of paths and commands."""
    yield from _no_versions(lock)
    if not can_be_name(lock.environment.name):
        yield f"{_short(lock.environment.name)} cannot be the name of an environment"
    for prefix in lock.prefixes:
        if not _FOLDER.fullmatch(prefix.name):
            yield f"{_short(prefix.name)} cannot be the name of a prefix"
        for artifact in prefix.files:
            yield from _no_file(artifact)
    for artifact in lock.tools:
        yield from _no_file(artifact)
    for source in lock.sources:
        if not _SHA256.fullmatch(source.sha256):
            yield f"{_short(source.sha256)} is not a sha256 (of the source {_short(source.repository)})"
        if "\0" in source.repository or len(source.repository) > _LONGEST_ADDRESS:
            yield f"{_short(source.repository)} is not the address of a repository"
    yield from _no_packages(lock)
    yield from (f"{_short(url)} is not an address" for url in _addresses(lock) if not _is_address(url))


def _addresses(lock: Lock) -> Iterator[str]:
    """Yield every address from which a build fetches a file of the lock, except the addresses of package indexes."""
    environment = lock.environment
    base, pythons = environment.base, [plan.python for plan in environment.plans()]
    files = [*(file for python in pythons for file in (*python.files, python.installer)), *base.files, base.installer]
    yield from (file.url for file in files if file is not None and file.url)
    yield from (package.url for package in (*base.packages, *base.build_packages) if package.url)
    yield from lock.apt.snapshots if lock.apt else ()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # an invalid IPv6 address
        return False
    return bool(parts.scheme and parts.path.strip("/")) and "\0" not in url and len(url) <= _LONGEST_ADDRESS


def _no_packages(lock: Lock) -> Iterator[str]:
    """Yield a line for each invalid folder name, and for each Debian package with an invalid hash or path."""
    planned, steps = lock.base.bootstrap, lock.apt.steps if lock.apt else ()
    said = [("step", step.name) for step in steps]
    if planned is not None:
        said += [("suite", planned.suite), ("architecture", planned.architecture), ("variant", planned.variant)]
    yield from (f"{_short(name)} cannot be the {what} of Debian packages" for what, name in said if not _FOLDER.fullmatch(name))
    for package in (*(planned.packages if planned else ()), *(package for step in steps for package in step.packages)):
        if not _SHA256.fullmatch(package.sha256):
            yield f"{_short(package.sha256)} is not a sha256 (of the Debian package {_short(package.name)})"
        if package.filename in (".", "..") or "\0" in package.path:
            yield f"{_short(package.path)} is not a path (of the Debian package {_short(package.name)})"


def _no_file(artifact: Artifact) -> Iterator[str]:
    said = [
        ("name of a package", artifact.name, is_package_name(artifact.name)),
        ("name of a project", artifact.project, is_package_name(artifact.project)),
        ("version", artifact.version, is_version(artifact.version)),
        ("name of a file", artifact.filename, is_file_name(artifact.filename)),
        ("sha256", artifact.sha256, bool(_SHA256.fullmatch(artifact.sha256))),
        ("size", str(artifact.size), artifact.size is None or 0 <= artifact.size < _LARGEST_FILE),
    ]
    yield from (f"{_short(value)} is not a {what}" for what, value, is_one in said if not is_one)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


def _no_versions(lock: Lock) -> Iterator[str]:
    """Yield a line for each version that is compared as a number but does not have the form of a number."""
    environment = lock.environment
    pythons = [
        environment.python,
        *(plan.python for plan in environment.prefixes),
        *(prefix.python for prefix in lock.prefixes),
    ]
    said = [("Python", python.version, r"\d+\.\d+") for python in pythons]
    said.append(("glibc", environment.system.glibc, r"\d+(\.\d+)+"))
    libraries = {
        "CUDA": environment.cuda,
        "cuDNN": environment.cudnn,
        "NCCL": environment.nccl,
        "driver": environment.driver_min,
    }
    said += [(name, version, r"\d+(\.\d+)*") for name, version in libraries.items() if version is not None]
    for name, version, form in said:
        if not re.fullmatch(form, version, re.ASCII) or len(version) > 40:
            yield f"{_short(version)} is not a version of {name}"
