"""Describes in words what changed between two catalogues, or since a release: versions, pins, proofs, vulnerabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envbuild.catalogue.model import Catalogue, CatalogueEntry

_MOST = 40  # maximum number of lines about the changed files of one environment
_FIELDS = ("python", "os", "cuda", "cudnn", "nccl", "driver_min", "base", "base_digest")
_WORDS = {"os": "operating system", "driver_min": "minimum driver", "base_digest": "digest of the base", "python": "Python"}


def compare(new: Catalogue, earlier: Mapping[str, Any], label: str, *, is_registry_known: bool = True) -> Catalogue:
    """Return ``new`` with the changes since ``earlier``, the content of an earlier ``catalogue.json``.

    ``label`` is the text with which the pages name the earlier catalogue. ``is_registry_known`` is false if ``new`` was made
    without a registry: then nothing is said about published images.
    """
    before = {entry["name"]: entry for entry in earlier["entries"]}
    entries = tuple(
        replace(entry, changes=tuple(_changes(entry, before.get(entry.name), is_registry_known=is_registry_known)))
        for entry in new.entries
    )
    gone = sorted(before.keys() - {entry.name for entry in entries})
    return replace(new, since=label, entries=entries, gone=tuple(gone))


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedImage:
    """An image of a release, or a published image of the catalogue.

    ``contents`` maps the group and the name of each package to its version and sha256. It is None if they are not known.
    """

    digest: str
    contents: Mapping[tuple[str, str], tuple[str, str]] | None = None


def since_release(
    new: Catalogue, released: Mapping[str, ComparedImage], published: Mapping[str, ComparedImage], label: str
) -> Catalogue:
    """Return ``new`` with the changes since a release. ``label`` is the text with which the pages name the release.

    ``released`` has the images of the release, and ``published`` the images that ``new`` shows, both by environment. Contents
    matter only if both images of an environment have them.
    """
    entries = tuple(
        replace(entry, changes=tuple(_since_release(released.get(entry.name), published.get(entry.name))))
        for entry in new.entries
    )
    gone = sorted(released.keys() - {entry.name for entry in entries})
    return replace(new, since=label, entries=entries, gone=tuple(gone))


def _since_release(was: ComparedImage | None, now: ComparedImage | None) -> Iterator[str]:
    if was is None:
        yield "new: the release has no image of this environment" if now else "not published; the release has no image of it"
    elif now is None:
        yield f"the registry has no image of this lock; the release has {was.digest}"
    elif was.digest != now.digest:
        yield f"another image is published: {was.digest} → {now.digest}"
        if was.contents is not None and now.contents is not None:
            lines = list(_differences(was.contents, now.contents))
            yield from _limited(lines or ["every package is the same"], "packages")


def _changes(entry: CatalogueEntry, before: Mapping[str, Any] | None, *, is_registry_known: bool) -> Iterator[str]:
    if before is None:
        yield "new in the catalogue"
        return
    for name in _FIELDS:
        was, now = before[name], getattr(entry, name)
        if was != now:
            yield f"{_WORDS.get(name, name)}: {was or 'none'} → {now or 'none'}"
    yield from _files(entry, before)
    kinds = list(dict.fromkeys(proof["kind"] for proof in before["proofs"]))
    if more := [kind for kind in entry.kinds if kind not in kinds]:
        yield f"newly proved: {', '.join(more)}"
    if lost := [kind for kind in kinds if kind not in entry.kinds]:
        yield f"no longer proved: {', '.join(lost)}"
    if is_registry_known:
        yield from _published(entry, before)
    yield from _vulnerabilities(entry, before)


def _published(entry: CatalogueEntry, before: Mapping[str, Any]) -> Iterator[str]:
    was, now = before.get("published"), entry.published
    if was is None and now is not None:
        yield f"newly shown as published: {now.reference}"
    elif was is not None and now is None:
        yield f"the registry has no image of this lock; the earlier catalogue showed {was['reference']}"
    elif was is not None and now is not None:
        if was["digest"] != now.digest:
            yield f"another image is published: {was['digest']} → {now.digest}"
        elif now.signed_by and was.get("signed_by") == []:
            yield f"newly signed with {', '.join(now.signed_by)}"


def _files(entry: CatalogueEntry, before: Mapping[str, Any]) -> Iterator[str]:
    if entry.lock.sha256 == before["lock"]["sha256"]:
        return
    was = {
        (part["title"], file["name"]): (file["version"], file["sha256"])
        for part in before["lock"]["parts"]
        for file in part["files"]
    }
    now = {(part.title, file.name): (file.version, file.sha256) for part in entry.lock.parts for file in part.files}
    lines = list(_differences(was, now)) or ["the lock was made again; every pinned file is the same"]
    yield from _limited(lines, "files")


def _limited(lines: Sequence[str], what: str) -> Iterator[str]:
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield f"and {len(lines) - _MOST} more changed {what}"


def _differences(
    was: Mapping[tuple[str, str], tuple[str, str]], now: Mapping[tuple[str, str], tuple[str, str]]
) -> Iterator[str]:
    for key in sorted({*was, *now}):
        title, name = key
        old, new = was.get(key), now.get(key)
        if old == new:
            continue
        if old is None and new is not None:
            yield f"{title}: {name} {new[0]} added"
        elif new is None and old is not None:
            yield f"{title}: {name} {old[0]} removed"
        elif old is not None and new is not None:
            changed = f"{old[0]} → {new[0]}" if old[0] != new[0] else f"{new[0]} has a different file"
            yield f"{title}: {name} {changed}"


def _vulnerabilities(entry: CatalogueEntry, before: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts about new and closed vulnerabilities. Nothing is yielded unless both catalogues have an audit of the
    environment."""
    if entry.vulnerabilities is None or not before.get("vulnerabilities"):
        return
    was = {(each["package"], each["advisory"]) for each in before["vulnerabilities"]["findings"]}
    now = {(each.package, each.advisory): each.severity for each in entry.vulnerabilities.findings}
    yield from (f"vulnerability closed: {advisory} in {package}" for package, advisory in sorted(was - now.keys()))
    for package, advisory in sorted(now.keys() - was):
        severity = now[package, advisory]
        yield f"new known vulnerability: {advisory} in {package}{'' if severity == 'unknown' else f' ({severity})'}"
