"""Compare two locks of one environment. The functions are pure (no network, files or clock)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envbuild import codec
from envbuild.model.lock import Artifact, BaseLock, DebianPackage, Lock, Missing, Prefix

Kind = Literal["added", "removed", "changed"]
Role = Literal["package", "build tool", "pip"]


ROLES: tuple[Role, ...] = ("package", "build tool", "pip")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange:
    """The change of one package in one prefix. ``prefix`` is empty for a tool of the whole build.

    ``before`` is None for an added package. ``after`` is None for a removed package.
    """

    prefix: str
    role: Role
    kind: Kind
    name: str
    before: Artifact | None
    after: Artifact | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LockDifference:
    """All differences between two locks. ``base`` describes the differences of the base. ``decision`` lists what differs in the
    chosen environment, as paths in its JSON form."""

    changes: tuple[PackageChange, ...]
    base: tuple[str, ...]
    decision: tuple[str, ...]
    missing_added: tuple[Missing, ...]
    missing_removed: tuple[Missing, ...]

    @property
    def empty(self) -> bool:
        """Whether the two locks are equal."""
        return not (self.changes or self.base or self.decision or self.missing_added or self.missing_removed)


def compare(before: Lock, after: Lock) -> LockDifference:
    """Return the differences from ``before`` to ``after``. Packages are sorted by prefix and name."""
    return LockDifference(
        changes=tuple(_changes(before, after)),
        base=tuple(_base(before.base, after.base)),
        decision=tuple(path for path, *_ in differing(codec.encode(before.environment), codec.encode(after.environment))),
        missing_added=tuple(gap for gap in after.missing if gap not in before.missing),
        missing_removed=tuple(gap for gap in before.missing if gap not in after.missing),
    )


def _changes(before: Lock, after: Lock) -> Iterator[PackageChange]:
    old, new = ({prefix.name: prefix for prefix in lock.prefixes} for lock in (before, after))
    for name in dict.fromkeys((*old, *new)):
        for role in ROLES:
            yield from _of_prefix(name, role, _files(old.get(name), role), _files(new.get(name), role))
    held, wanted = ({artifact.name: artifact for artifact in lock.tools} for lock in (before, after))
    yield from _of_prefix("", "build tool", held, wanted)


def _files(prefix: Prefix | None, role: Role) -> dict[str, Artifact]:
    if prefix is None:
        return {}
    held = {"package": prefix.artifacts, "build tool": prefix.build_artifacts, "pip": (prefix.pip,) if prefix.pip else ()}
    return {artifact.name: artifact for artifact in held[role]}


def _of_prefix(prefix: str, role: Role, old: Mapping[str, Artifact], new: Mapping[str, Artifact]) -> Iterator[PackageChange]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before != after:
            kind: Kind = "added" if before is None else "removed" if after is None else "changed"
            yield PackageChange(prefix=prefix, role=role, kind=kind, name=name, before=before, after=after)


def _base(before: BaseLock, after: BaseLock) -> Iterator[str]:
    if before.image != after.image:
        yield f"image {before.image} → {after.image}"
    if before.digest != after.digest:
        yield f"digest {before.digest or 'none'} → {after.digest or 'none'}"
    old, new = _packages(before), _packages(after)
    for name in sorted({*old, *new}):
        one, two = old.get(name), new.get(name)
        if one and two and one != two:
            yield (
                f"{name} {one.version} → {two.version}"
                if one.version != two.version
                else f"{name} {one.version}: a different file"
            )
        elif one and not two:
            yield f"{name} {one.version} removed"
        elif two and not one:
            yield f"{name} {two.version} added"


def _packages(base: BaseLock) -> dict[str, DebianPackage]:
    return {package.name: package for package in base.bootstrap.packages} if base.bootstrap else {}


def differing(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each path at which two JSON values differ, with both values. A list of texts is compared as a whole."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differing(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif _are_objects(before) and _are_objects(after) and len(before) == len(after):
        for place, (one, two) in enumerate(zip(before, after, strict=True)):
            yield from differing(one, two, f"{path}[{place}]")
    else:
        yield path, before, after


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
