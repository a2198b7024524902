"""New rows for releases that the index has and the matrix lacks, put into the files as text: comments and style stay.

The index tells the day, the Pythons and the glibc of a release. The rest (CUDA, cuDNN, GPU code) is taken over from the series,
for a new minor from the one before it, and is marked ``unknown`` until a person has looked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from packaging.version import Version

from envbuild.errors import BuildError, InvalidInputError
from envbuild.matrix.checks import check
from envbuild.matrix.loader import compile_matrix
from envbuild.matrix.published import Finding, Published, Wheels, indexed
from envbuild.matrix.types import FrameworkTable, Matrix, Variant
from envbuild.matrix.versions import numbers

_NOTE = "CUDA, libraries and GPU code as in {}, unproved"
_SPARED = 3  # this many releases may vanish at once; more, and a tenth of all, is an index that does not have everything


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """The files as they would be. ``added``: (framework, version, file) of each new row."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    added: tuple[tuple[str, str, str], ...]

    @property
    def diff(self) -> str:
        """Unified, over all files; empty where nothing is to be added."""
        lines: list[str] = []
        for name, old in self.before.items():
            new = self.after[name].splitlines(keepends=True)
            lines += difflib.unified_diff(old.splitlines(keepends=True), new, f"a/{name}", f"b/{name}")
        return "".join(lines)


@dataclass(slots=True)
class _Block:
    """A series in the text: lines from ``first`` up to ``last`` (exclusive), and those of its releases."""

    name: str
    first: int
    last: int
    releases: list[tuple[Version, int, int]]


def require_whole(matrix: Matrix, findings: Sequence[Finding], place: str) -> None:
    """Raise :class:`BuildError` (``index-shrunk``) where so much is gone that the index, not the matrix, must be at fault."""
    for framework in matrix.frameworks:
        gone = {finding.version for finding in findings if finding.kind == "gone" and finding.framework == framework.name}
        if len(gone) > _SPARED and len(gone) * 10 > len(framework.releases):
            raise BuildError(
                f"The package index at {place} has no wheels of {len(gone)} of the {len(framework.releases)} releases of "
                f"{framework.title} in the matrix ({', '.join(sorted(gone, key=Version)[:6])} …): it is not a whole copy.",
                code="index-shrunk",
                hint="Use an index that has all releases (`pip config list` says which one is used), then run it again.",
            )


def propose(
    matrix: Matrix, sources: Mapping[str, str], findings: Sequence[Finding], published: Published, today: str
) -> Proposal:
    """The rows for all new releases, in the files of ``sources`` (name → text), checked ``today``.

    None for a release that no build of its series would come from, since it is of another package than theirs, and none in
    a file that would then disagree with the rest: these are for a person.
    """
    found = _propose(matrix, sources, findings, published, today)
    for name, text in found.after.items():
        if text != sources[name] and _disagrees({**sources, name: text}):
            kept = {**found.after, name: sources[name]}
            found = Proposal(before=sources, after=kept, added=tuple(row for row in found.added if row[2] != name))
    return found


def _disagrees(sources: Mapping[str, str]) -> bool:
    try:
        return bool(check(compile_matrix({name: text.encode() for name, text in sources.items()})))
    except InvalidInputError:
        return True


def _propose(
    matrix: Matrix, sources: Mapping[str, str], findings: Sequence[Finding], published: Published, today: str
) -> Proposal:
    after = dict(sources)
    added = []
    for framework in matrix.frameworks:
        name = framework.origin.at.rpartition(":")[0]
        grown: dict[str, str] = {}
        fresh = [finding for finding in findings if finding.kind == "new" and finding.framework == framework.name]
        for finding in sorted(fresh, key=lambda item: Version(item.version)):
            text = _insert(framework, after[name], finding.version, published, today, grown=grown)
            if text is not None:
                after[name] = text
                added.append((framework.name, finding.version, name))
    return Proposal(before=sources, after=after, added=tuple(added))


def _insert(
    framework: FrameworkTable, text: str, version: str, published: Published, today: str, *, grown: dict[str, str]
) -> str | None:
    """``text`` with a row for ``version``. ``grown``: the series put in by earlier calls, and which each was copied from."""
    blocks = _blocks(text)
    number = Version(version)
    own = next((block for block in blocks if _belongs(number, Version(block.name))), None)
    older = [block for block in blocks if Version(block.name) < number] or blocks[-1:]
    like = own or max(older, key=lambda block: Version(block.name))
    model = grown.get(like.name, like.name)
    found = _row(framework, model, version, published)
    lines = text.splitlines(keepends=True)
    if found is None or not all(lines[first].lstrip().startswith("- ") for _, first, _ in like.releases):
        return None
    head, overrides = found
    head.append(f'checked: "{today}"')
    if own is not None and own.name not in grown:  # else its series says so
        head += ["status: unknown", f'note: "{_NOTE.format(model)}"']
    if own is None:
        grown[_series_name(number, like)] = model
    row = f"- {{{', '.join(head)}{overrides}}}"
    put = _with_row if own else _with_series
    return "".join(put(lines, like, number, row, descending=_descending(blocks)))


def _belongs(version: Version, series: Version) -> bool:
    return version.release[: len(series.release)] == series.release


def _series_name(version: Version, like: _Block) -> str:
    """The name of a new series, as long as its neighbour's."""
    return ".".join(map(str, version.release[: len(like.name.split("."))]))


def _blocks(text: str) -> list[_Block]:
    """Where each series stands; the text was read strictly before."""
    top: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    body = next(value for key, value in top.value if key.value == "series")
    found = []
    for node in body.value:
        values = {key.value: value for key, value in node.value}
        rows = [
            (Version(dict((k.value, v.value) for k, v in row.value)["version"]), row.start_mark.line, row.end_mark.line + 1)
            for row in values["releases"].value
        ]
        found.append(_Block(values["series"].value, node.start_mark.line, rows[-1][2], rows))
    return found


def _descending(blocks: Sequence[_Block]) -> bool:
    order = [version for block in blocks for version, _, _ in block.releases]
    return order[0] >= order[-1]


def _with_row(lines: list[str], block: _Block, number: Version, row: str, *, descending: bool) -> list[str]:
    order = [version for version, _, _ in block.releases]
    if len(order) > 1:
        descending = order[0] > order[-1]
    place = block.releases[-1][2]
    for version, first, _ in block.releases:
        if (version < number) == descending:
            place = first
            break
    indent = re.match(r"\s*", lines[block.releases[0][1]])
    text = "".join(f"{indent[0] if indent else ''}{line}\n" for line in row.splitlines())
    return [*lines[:place], text, *lines[place:]]


def _with_series(lines: list[str], like: _Block, number: Version, row: str, *, descending: bool) -> list[str]:
    name = _series_name(number, like)
    head = [line for line in lines[like.first : like.releases[0][1]] if not line.lstrip().startswith("#")]
    head[0] = head[0].replace(f'"{like.name}"', f'"{name}"', 1)
    inner = " " * (len(head[0]) - len(head[0].lstrip()) + 2)
    head = [line for line in head if not re.match(rf"{inner}(status|note): ", line)]
    head[1:1] = [f"{inner}status: unknown\n", f'{inner}note: "{_NOTE.format(like.name)}"\n']
    indent = re.match(r"\s*", lines[like.releases[0][1]])
    body = [f"{indent[0] if indent else ''}{line}\n" for line in row.splitlines()]
    if descending:
        return [*lines[: like.first], *head, *body, "\n", *lines[like.first :]]
    return [*lines[: like.last], "\n", *head, *body, *lines[like.last :]]


def _row(framework: FrameworkTable, series: str, version: str, published: Published) -> tuple[list[str], str] | None:
    """The parts of the release's row, and what the index says otherwise than the newest release of the series, as overrides."""
    like = next(release for release in framework.releases if release.series == series)
    number = Version(version)
    days, without, changed = [], [], []
    for variant in like.variants:
        if not indexed(variant):
            continue
        there = published[variant.package].get(number)
        if there is None:
            without.append(variant.name)
            continue
        days.append(there.day)
        if text := _overrides(variant, there):
            changed.append(f"{variant.name}: {{{text}}}")
    if not any(days):
        return None
    parts = [f'version: "{version}"', f'released: "{min(filter(None, days))}"']
    parts += [f"without: [{', '.join(without)}]"] if without else []
    if not changed:
        return parts, ""
    return parts, ",\n   variants: {" + ",\n              ".join(changed) + "}"


def _overrides(variant: Variant, there: Wheels) -> str:
    exact = sorted((python for python in there.pythons if re.fullmatch(r"\d+\.\d+", python)), key=numbers)
    parts = []
    if exact and exact != sorted(variant.python, key=numbers):
        quoted = ", ".join(f'"{python}"' for python in exact)
        parts.append(f"python: [{quoted}]")
    if there.glibc and numbers(there.glibc) > numbers(variant.glibc):  # a tag may promise less than the binaries need
        parts.append(f'glibc: "{there.glibc}"')
    return ", ".join(parts)
