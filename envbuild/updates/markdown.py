"""Makes the commit message of an update, and the description of its pull request in Markdown. All functions are pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from envbuild.updates.model import Changes, RenewedLock

if TYPE_CHECKING:
    from envbuild.lock.comparison import PackageChange
    from envbuild.model.vulnerabilities import Vulnerability

_SHOWN = 12  # largest number of advisories, files or findings that are listed by name
_UNITS = ("B", "kB", "MB", "GB", "TB")


def page(changes: Changes, *, locks: str) -> str:
    """Return the description of the pull request. ``locks`` says which locks were renewed, as in :class:`UpdateRequest`."""
    lines = [f"# {changes.title}", ""]
    lines += _releases(changes)
    lines += _waiting(changes)
    lines += _locks(changes, locks)
    lines += _kept(changes)
    lines += _for_a_person(changes)
    lines += _advisories(changes)
    return "\n".join(lines).rstrip() + "\n"


def message(changes: Changes) -> str:
    """Return the message of the commit: the subject, and one line for each change."""
    lines = [f"{each.framework} {each.version}: a row with the status unknown" for each in changes.releases]
    lines += [f"{each.name}: {summary(each)}" for each in changes.locks]
    return "\n".join([changes.title, "", *lines]) + "\n"


def summary(renewed: RenewedLock) -> str:
    """Describe in a few words the changes in a lock."""
    if renewed.difference is None:
        return "a new environment"
    difference = renewed.difference
    changed = [each for each in difference.changes if each.kind == "changed" and each.before and each.after]
    parts = [f"{each.name} {_versions(each)}" for each in changed[:3]]
    rest = len(difference.changes) - len(parts)
    parts += [f"{rest} more package{'s' if rest != 1 else ''}"] if rest else []
    parts += ["the base image"] if difference.base else []
    parts += ["the chosen versions"] if difference.decision else []
    parts += ["the list of files that are not pinned"] if difference.missing_added or difference.missing_removed else []
    return ", ".join(parts)


def _releases(changes: Changes) -> Iterator[str]:
    if not changes.releases:
        return
    yield "## New releases"
    yield ""
    yield "Each release has a row with the status `unknown`, until a person has checked it."
    yield ""
    yield "| framework | version | file |"
    yield "|---|---|---|"
    for each in changes.releases:
        yield f"| {_plain(each.framework)} | {_plain(each.version)} | {_code(each.file)} |"
    yield ""


def _waiting(changes: Changes) -> Iterator[str]:
    if not changes.waiting:
        return
    yield "## Waiting"
    yield ""
    yield "These releases get no row yet, because a part that belongs to them is missing:"
    yield ""
    for each in changes.waiting:
        yield f"- {_plain(each.framework)} {_plain(each.version)}: {_plain(each.reason)}."
    yield ""


def _locks(changes: Changes, policy: str) -> Iterator[str]:
    if not changes.locks:
        return
    yield "## Locks"
    yield ""
    if policy == "security":
        yield "Only packages with known vulnerabilities were upgraded, each to the lowest fixed version that fits."
        yield ""
    yield "| environment | what changed | size | vulnerabilities closed | opened | evidence lost |"
    yield "|---|---|---|---|---|---|"
    for each in changes.locks:
        closed, opened = _count(each.closed), _count(each.opened)
        yield (
            f"| {_code(each.name)} | {_plain(summary(each))} | {_sizes(each)} | {closed} | {opened} "
            f"| {', '.join(each.lost) or 'none'} |"
        )
    yield ""
    for each in changes.locks:
        yield from _details(each)


def _details(renewed: RenewedLock) -> Iterator[str]:
    difference = renewed.difference
    if difference is None or not (difference.changes or difference.base or renewed.closed or renewed.opened):
        return
    yield f"<details><summary>{html.escape(_one_line(renewed.name))}</summary>"
    yield ""
    for change in difference.changes:
        yield f"- {_change(change)}"
    yield from (f"- base: {_plain(line)}" for line in difference.base[:_SHOWN])
    if len(difference.base) > _SHOWN:
        yield f"- base: {len(difference.base) - _SHOWN} more packages"
    if renewed.closed:
        yield f"- closed: {_advisory_list(renewed.closed)}"
    if renewed.opened:
        yield f"- opened: {_advisory_list(renewed.opened)}"
    if renewed.missing:
        yield f"- not pinned: {', '.join(map(_plain, renewed.missing))}"
    yield ""
    yield "</details>"
    yield ""


def _kept(changes: Changes) -> Iterator[str]:
    if not changes.kept:
        return
    yield "## Not renewed, or not completely"
    yield ""
    for each in changes.kept:
        about = f": {_plain(_listed(each.remaining))}" if each.remaining else ""
        yield f"- {_code(each.name)}: {_plain(each.reason)}{about}"
    yield ""


def _for_a_person(changes: Changes) -> Iterator[str]:
    new = [each for each in changes.left if each.kind == "new"]
    others = len(changes.left) - len(new)
    if not (new or others or changes.stale):
        return
    yield "## For a person to look at"
    yield ""
    for each in new[:_SHOWN]:
        yield f"- {_plain(each.framework)} {_plain(each.version)}: no row can be derived; write one, or leave the release out."
    if len(new) > _SHOWN:
        yield f"- {len(new) - _SHOWN} more releases for which no row can be derived"
    if others:
        yield (
            f"- In {others} place{'s' if others != 1 else ''} the package index differs from the matrix. "
            "`envbuild matrix check --online` lists them."
        )
    for name in changes.stale:
        yield f"- {_code(name)}: the matrix no longer accepts its lock. `envbuild lock {name} --relock` makes it again."
    yield ""


def _advisories(changes: Changes) -> Iterator[str]:
    if not changes.locks:
        return
    yield "## Vulnerabilities"
    yield ""
    if not changes.database:
        yield "Not checked: no advisories were looked up."
        return
    yield f"By {_plain(changes.database)}. Packages of the distribution were not checked."
    if changes.unchecked:
        yield ""
        yield f"Not checked: {_plain(_listed(changes.unchecked))}."


def _change(change: PackageChange) -> str:
    role = "" if change.role == "package" else f" ({change.role})"
    if change.before is None and change.after is not None:
        return f"{_code(change.name)} {_plain(change.after.version)} added{role}"
    if change.after is None and change.before is not None:
        return f"{_code(change.name)} {_plain(change.before.version)} removed{role}"
    return f"{_code(change.name)} {_plain(_versions(change))}{role}"


def _versions(change: PackageChange) -> str:
    versions = list(dict.fromkeys(each.version for each in (change.before, change.after) if each))
    return " → ".join(versions) if len(versions) > 1 else f"{versions[0]} (another file)"


def _sizes(renewed: RenewedLock) -> str:
    sizes = [size(count) for count in (renewed.size_before, renewed.size_after) if count]
    return " → ".join(dict.fromkeys(sizes)) or "unknown"


def size(count: float) -> str:
    """Format a number of bytes in decimal units."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def _count(found: Sequence[Vulnerability] | None) -> str:
    return "not checked" if found is None else str(len(found))


def _advisory_list(found: Iterable[Vulnerability]) -> str:
    return _plain(_listed([f"{each.advisory} ({each.package})" for each in found]))


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _plain(text: str) -> str:
    """Make an untrusted text safe for Markdown: return it as one line, without markup of Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#~@!])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _code(text: str) -> str:
    line = "".join(char for char in text if char.isprintable() and char not in "`|")
    return f"`{line}`"
