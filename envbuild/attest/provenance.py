"""Describes where an image comes from, as SLSA provenance, version 1 (https://slsa.dev/spec/v1.0/provenance). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from envbuild.model.lock import Lock

_OURS = "https://envbuild.invalid"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFacts:
    """How an image was built.

    ``lock``, ``inputs``, ``rendering`` and ``guest`` are hashes (SHA-256, in hex): of the lock, of all inputs, of the rendering
    and of the guest. ``engine`` has the name and the version of the container engine, and is empty if they are not known.
    ``version`` is the version of envbuild.

    ``commit`` is the git commit of the matrix and recipes; it is empty if they are not in a git repository, or if git could not
    read this repository. ``why_no_commit`` then says why. ``is_modified`` is true if files differed from that commit.
    """

    name: str
    lock: str
    inputs: str
    rendering: str
    guest: str
    builder: str
    engine: str
    version: str
    built_at: str
    commit: str
    is_modified: bool
    why_no_commit: str = ""


def predicate(lock: Lock, build: BuildFacts) -> Mapping[str, Any]:
    """Return the predicate for the image that was built from ``lock``. The predicate lists every file that went into the image,
    with its hash."""
    # SLSA v1 allows further fields that are named after the vendor: https://slsa.dev/spec/v1.0/provenance#extension-fields
    unknown = {"envbuild_unknownCommit": build.why_no_commit} if build.why_no_commit else {}
    hashes = {"inputs": build.inputs, "rendering": build.rendering, "guest": build.guest}
    return {
        "buildDefinition": {
            "buildType": f"{_OURS}/attestations/build/v1",
            "externalParameters": {"environment": build.name, "builder": build.builder},
            "internalParameters": {name: {"sha256": value} for name, value in hashes.items() if value},
            "resolvedDependencies": [*_own(build), *_base(lock), *_packages(lock)],
            **unknown,
        },
        "runDetails": {
            "builder": {
                "id": f"{_OURS}/builders/{build.builder}",
                "version": {"envbuild": build.version} | ({"engine": build.engine} if build.engine else {}),
            },
            "metadata": {"finishedOn": build.built_at},
        },
    }


def _own(build: BuildFacts) -> Iterator[dict[str, Any]]:
    yield {"name": "lock.json", "digest": {"sha256": build.lock}}
    if build.commit:
        yield {
            "name": "facts and recipes",
            "digest": {"gitCommit": build.commit},
            "annotations": {"modified": build.is_modified},
        }


def _base(lock: Lock) -> Iterator[dict[str, Any]]:
    for image, digest in ((lock.base.image, lock.base.digest), (lock.environment.base.build_image, lock.base.build_digest)):
        if image and digest:
            algorithm, _, value = digest.partition(":")
            yield {"name": image, "digest": {algorithm: value}}


def _packages(lock: Lock) -> Iterator[dict[str, Any]]:
    for package in lock.debs():
        url = f"pkg:deb/{lock.environment.system.family}/{quote(package.name)}@{quote(package.version, safe='')}"
        yield {"uri": url, "name": package.path, "digest": {"sha256": package.sha256}}
    artifacts = [artifact for prefix in lock.prefixes for artifact in prefix.files]
    for artifact in dict.fromkeys((*lock.tools, *artifacts)):
        url = f"pkg:pypi/{quote(artifact.name)}@{quote(artifact.version, safe='')}"
        yield {"uri": url, "name": artifact.filename, "digest": {"sha256": artifact.sha256}}
    for source in lock.sources:
        yield {
            "uri": f"git+{source.repository}@{source.revision}",
            "digest": {"gitCommit": source.revision, "sha256": source.sha256},
        }
