"""Explain a failed download: which file of which lock is gone or was replaced. The functions are pure (no network, files or
clock)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError
from envbuild.model.lock import Artifact, Lock

_WHAT = {
    "artifact-gone": "is no longer offered by its index",
    "artifact-changed": "is a different file than the locked one",
    "hash-differs": "is a different file than the locked one",
}
# Matches the messages in which uv and pip name the requirement that failed.
_SAID = re.compile(
    r"(?:Hash mismatch for `|No matching distribution found for |there is no version of |^\s*(?=\S+==\S+ from http))"
    r"(?P<project>[A-Za-z0-9._-]+)==(?P<version>[^\s`,;]+)",
    re.MULTILINE,
)


def of_lock(lock: Lock, error: BuildError) -> BuildError:
    """If ``error`` is about a pinned file, return an error that names the file, its project and the lock. Return any other
    error unchanged."""
    what = _WHAT.get(error.code)
    text = "\n".join([error.message, *error.details])
    guilty = list(dict.fromkeys(_guilty(lock, text))) if what else []
    if not guilty:
        return error
    name = lock.environment.name
    told = ", ".join(f"{each.filename} (project {each.project} on {_place(each)})" for each in guilty)
    packages = " ".join(f"--package {each.name}" for each in guilty)
    return BuildError(
        f"The lock of {name} can no longer be installed: {told} {what}.",
        code="artifact-gone" if error.code == "artifact-gone" else "artifact-changed",
        hint=f"`envbuild lock {name} --check --online` looks up all pinned files. `envbuild lock {name} --upgrade "
        f"{packages} --dry-run` shows which version would replace this one. If the file was replaced under the same name, do "
        "not trust the index.",
        details=(*(f"locked: {each.filename} sha256 {each.sha256}" for each in guilty), *error.details),
    )


def _guilty(lock: Lock, text: str) -> Iterator[Artifact]:
    """Yield the pinned files that the ``text`` of an error names, by file name or by project and version. Errors of installers
    name a project and a version."""
    said = {(canonicalize_name(found["project"]), found["version"]) for found in _SAID.finditer(text)}
    for prefix in lock.prefixes:
        for artifact in prefix.files:
            if (canonicalize_name(artifact.name), artifact.version) in said or artifact.filename in text:
                yield artifact


def _place(artifact: Artifact) -> str:
    return "the package index" if artifact.index == "default" else artifact.index
