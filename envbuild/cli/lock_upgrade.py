"""Print the changes of ``envbuild lock --upgrade``, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envbuild.cli import wording
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.lock.comparison import LockDifference, PackageChange
    from envbuild.model.lock import Artifact, Lock
    from envbuild.pipeline.upgrading import Upgraded

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def tell(session: Session, upgraded: Upgraded, spoken: str) -> None:
    """Print the differences between the old lock and the new lock, and the next steps. ``spoken`` is the user's name for the
    environment."""
    name, difference = upgraded.after.lock.environment.name, upgraded.difference
    if upgraded.base_kept:
        session.err(f"{name}: the base image was not upgraded: {upgraded.base_kept}")
    if difference.empty:
        session.out(f"{name}: nothing to upgrade")
        return
    session.out(f"{name}: {_summary(difference)}")
    session.out(_table(difference))
    session.out(f"  {_total(upgraded.before.lock)} → {_total(upgraded.after.lock)}")
    session.out(f"  {upgraded.after.path}{'' if upgraded.written else ' (not written: --dry-run)'}")
    if upgraded.written and upgraded.outdated:
        session.err(f"{name}: {', '.join(upgraded.outdated)} was proved only for the old lock, and no longer counts.")
    if upgraded.written:
        session.err(f"{name}: to render, build and prove it again, run `envbuild make {spoken}`.")


def document(upgraded: Upgraded) -> dict[str, Any]:
    """Return the differences between the old lock and the new lock as a JSON document."""
    difference = upgraded.difference
    return {
        "name": upgraded.after.lock.environment.name,
        "path": str(upgraded.after.path),
        "sha256_before": upgraded.before.digest,
        "sha256": upgraded.after.digest,
        "changed": not difference.empty,
        "written": upgraded.written,
        "difference": {
            **packages(difference.changes),
            "base": list(difference.base),
            "decision": list(difference.decision),
            "missing_added": [gap.what for gap in difference.missing_added],
            "missing_removed": [gap.what for gap in difference.missing_removed],
        },
        "base_kept": upgraded.base_kept,
        "outdated_evidence": list(upgraded.outdated),
    }


def packages(changes: Sequence[PackageChange]) -> dict[str, list[dict[str, Any]]]:
    """Return the packages that were added, removed or changed, as JSON with a list for each kind of change."""
    listed: dict[str, list[dict[str, Any]]] = {"added": [], "removed": [], "changed": []}
    for change in changes:
        told = {"prefix": change.prefix, "role": change.role, "name": change.name}
        listed[change.kind].append({**told, "before": _file(change.before), "after": _file(change.after)})
    return listed


def table(changes: Sequence[PackageChange]) -> str:
    """Return one line for each package that differs."""
    return wording.columns([_row(change) for change in changes], indent="  ")


def _file(artifact: Artifact | None) -> dict[str, Any] | None:
    if artifact is None:
        return None
    return {"version": artifact.version, "filename": artifact.filename, "sha256": artifact.sha256, "size": artifact.size}


def _summary(difference: LockDifference) -> str:
    counts = [(kind, sum(change.kind == kind for change in difference.changes)) for kind in _SIGNS]
    parts = [f"{count} {kind}" for kind, count in counts if count] + (["its base changed"] if difference.base else [])
    parts += ["its environment changed"] if difference.decision else []
    parts += ["the list of unpinned files changed"] if difference.missing_added or difference.missing_removed else []
    return ", ".join(parts)


def _table(difference: LockDifference) -> str:
    rows = [_row(change) for change in difference.changes]
    rows += [["~", "base", line] for line in difference.base]
    rows += [["~", "environment", path] for path in difference.decision]
    rows += [["+", "not pinned", f"{gap.what}: {gap.why}"] for gap in difference.missing_added]
    rows += [["-", "not pinned", gap.what] for gap in difference.missing_removed]
    return wording.columns(rows, indent="  ")


def _row(change: PackageChange) -> list[str]:
    before, after = change.before, change.after
    versions = list(dict.fromkeys(each.version for each in (before, after) if each))
    if before and after and len(versions) == 1:
        versions[0] += " (another file)" if before.filename != after.filename else " (its sha256 changed)"
    sizes = [wording.size(each.size) if each.size is not None else "size unknown" for each in (before, after) if each]
    where = "" if change.role == "package" else f"({change.role})"
    return [_SIGNS[change.kind], change.name, " → ".join(versions), " → ".join(dict.fromkeys(sizes)), where]


def _total(lock: Lock) -> str:
    files = [*lock.tools, *(file for prefix in lock.prefixes for file in prefix.files)]
    return f"{counted(len(files), 'file')}, {wording.size(sum(artifact.size or 0 for artifact in files))}"
