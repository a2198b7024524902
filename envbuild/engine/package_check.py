"""Check that an image contains the Debian packages that its lock pins. This happens before the image gets a tag."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.engine.client import Engine
from envbuild.errors import BuildError, Problem
from envbuild.model.lock import Lock

_SHOWN = 5
_QUERY = ("-W", "-f=installed ${db:Status-Abbrev} ${Package} ${Version}\n")


def pinned(lock: Lock) -> dict[str, str]:
    """Return the name and version of each package that the image of ``lock`` must contain."""
    environment = lock.environment
    found = {each.name: each.version for each in lock.image_packages()}
    found |= {each.name: each.version for each in environment.base.packages}
    asked = environment.custom.system_packages() if environment.custom else ()
    return found | {name: version for name, _, version in (text.partition("=") for text in asked) if version}


def unpinned(lock: Lock, found: Mapping[str, str]) -> list[Problem]:
    """If the lock pins all packages, return a problem for each package of ``found`` that is not in the lock. Otherwise, return
    an empty list.

    The packages of build steps count as pinned, because a later step may install some of them for a compiled library.
    """
    if lock.apt is None or lock.environment.base.repositories:
        return []
    known = {(each.name, each.version) for each in lock.debs()}
    extra = sorted(set(found.items()) - known - set(pinned(lock).items()))
    return [Problem(where=name, line=0, message=f"not pinned, found {version}") for name, version in extra]


def installed(engine: Engine, image: str) -> dict[str, str] | None:
    """Return the name and version of each installed package in ``image``, or None if the image has no dpkg."""
    result = engine.run(image, [*_QUERY], entrypoint=["dpkg-query"], user="0:0", network="none")
    lines = [line.split() for line in result.output.splitlines() if line.startswith("installed ii ")]
    return {name: version for _, _, name, version in lines} if result.code == 0 else None


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each package of ``wanted`` that ``found`` lacks, or that ``found`` has in another version."""
    return [
        Problem(where=name, line=0, message=f"pinned {version}, found {found.get(name, 'none')}")
        for name, version in sorted(wanted.items())
        if found.get(name) != version
    ]


def require_pinned(engine: Engine, lock: Lock, image: str) -> None:
    """Raise :class:`BuildError` (``packages-differ``) if a package of ``image`` differs from the lock."""
    wanted = pinned(lock)
    if not wanted:
        return
    found = installed(engine, image) or {}
    if problems := [*differences(wanted, found), *unpinned(lock, found)]:
        raise differ(lock.environment.name, problems)


def differ(name: str, problems: list[Problem]) -> BuildError:
    """Return the error for packages of an image that differ from its lock."""
    told = "; ".join(f"{problem.where}: {problem.message}" for problem in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return BuildError(
        f"The system packages of the image of {name} differ from its lock: {told}{more}. No tag was moved.",
        code="packages-differ",
        hint="`envbuild lock NAME --relock` pins today's packages; review the changes in the lock.",
        problems=problems,
    )
