"""Locks on disk: one JSON form, byte-exact, because a lock is known by the hash of its bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from envbuild import codec
from envbuild.errors import InvalidInputError, Problem
from envbuild.files import write_atomic
from envbuild.model import Lock

_AGAIN = "This file is written by envbuild; make it again rather than editing it."


def dumps(lock: Lock) -> str:
    """The exact text of ``lock.json``."""
    return codec.dumps(lock)


def digest(lock: Lock) -> str:
    """The lock's identity: the SHA-256, in hexadecimal, of the bytes that :func:`write` writes."""
    return hashlib.sha256(dumps(lock).encode()).hexdigest()


def write(path: Path, lock: Lock) -> None:
    """Write ``lock`` to ``path``, whole or not at all."""
    write_atomic(path, dumps(lock))


def read(path: Path) -> Lock:
    """The lock at ``path``. Raises :class:`InvalidInputError` for one that is absent, damaged or of another form."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"There is no lock at {path}.", code="no-lock", hint=f"Make it: `envbuild lock {path.parent.name}`."
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        raise InvalidInputError(
            f"The lock {path} cannot be read: {error}.",
            code="broken-lock",
            hint=_AGAIN,
            problems=[Problem(where=str(path), line=line, message=str(error))],
        ) from error
    lock = codec.decode(Lock, data, str(path))
    if unreadable := list(_unreadable(lock)):
        raise InvalidInputError(
            f"The lock {path} says versions that are none.",
            code="broken-lock",
            hint=_AGAIN,
            problems=[Problem(where=str(path), line=0, message=message) for message in unreadable],
        )
    return lock


def _unreadable(lock: Lock) -> Iterator[str]:
    """Versions that are compared as numbers everywhere and do not begin with one."""
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
        if not re.fullmatch(form, version):
            yield f"{version!r} is not a version of {name}"
