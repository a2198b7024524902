"""Refuses to build from a lock that pins no file of one of its frameworks. The error lists alternatives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from envbuild.errors import Alternative, InvalidInputError, Problem
from envbuild.model.environment import Framework
from envbuild.model.lock import Lock
from envbuild.pipeline.tools import Tools

_SHOWN = 3


def unpinned_frameworks(lock: Lock) -> list[Framework]:
    """Return the frameworks of which ``lock`` pins no file. Their package index did not answer when the lock was made."""
    pinned = {name for prefix in lock.prefixes for name in prefix.frameworks}
    return [framework for framework in lock.environment.frameworks if framework.name not in pinned]


def require_complete(tools: Tools, lock: Lock) -> None:
    """Raise :class:`InvalidInputError` (``lock-incomplete``) if the lock pins no file of one of its frameworks."""
    unpinned = unpinned_frameworks(lock)
    if not unpinned:
        return
    name = lock.environment.name
    hosts = ", ".join(dict.fromkeys(urlsplit(framework.index).hostname or framework.index for framework in unpinned))
    raise InvalidInputError(
        f"The lock of {name} is incomplete: it pins no file of {', '.join(f'{f.name} {f.version}' for f in unpinned)}. "
        "Nothing was built.",
        code="lock-incomplete",
        problems=[
            Problem(
                where=name,
                line=0,
                message=f"{framework.package} {framework.version} and its dependencies: their index {framework.index} "
                "could not be reached, and the matrix pins no file of them for this Python",
            )
            for framework in unpinned
        ],
        alternatives=list(_complete_ones(tools, lock)),
        hint=f"There are two solutions. Run `envbuild lock {tools.cli_name(name)}` on a machine that can reach {hosts}: "
        "this completes the lock and keeps the pinned files. Or choose a version whose files are pinned"
        + (", such as those above." if len(lock.environment.frameworks) == 1 else " for the request or the stack."),
    )


def _complete_ones(tools: Tools, lock: Lock) -> Iterator[Alternative]:
    """Yield committed environments of the same framework, for the same kind of device.

    The lock of each of them pins the files of the framework. The environment with the nearest version comes first.
    """
    from envbuild.pipeline import committed

    environment = lock.environment
    if len(environment.frameworks) != 1:
        return
    (framework,) = environment.frameworks
    found = []
    for name in committed.names(tools):
        path = tools.workspace.lock_file(name)
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            frameworks = held["environment"]["frameworks"]
            same = [each["name"] for each in frameworks] == [framework.name] and name != environment.name
            on_gpu = held["environment"]["cuda"] is not None
            pinned = any(framework.name in prefix["frameworks"] for prefix in held["prefixes"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged lock is not reported here, but when it is used
        if same and pinned and on_gpu == (environment.cuda is not None):
            found.append((_distance(framework.version, frameworks[0]["version"]), name, frameworks[0]["version"]))
    for _, name, version in sorted(found)[:_SHOWN]:
        yield Alternative(name=name, changes=f"{framework.name} {version}: every file is pinned")


def _distance(one: str, other: str) -> int:
    """Return the distance between two versions.

    One major version counts as 100 minor versions, and one minor version as 100 patch versions.
    """

    def place(version: str) -> int:
        major, minor, patch, *_ = [int(part) for part in re.findall(r"\d+", version)] + [0, 0, 0]
        return major * 10000 + minor * 100 + patch

    return abs(place(one) - place(other))
