"""Propose rows for releases that the index has and the matrix lacks. The rows are inserted into the files as text, so that
comments and style stay.

The index states the date, the Python versions and the glibc of a release. The wheel's metadata states CUDA, cuDNN and NCCL if
these are separate packages. Other facts are copied from the newest release of the same series. Examples are the GPU code of a
wheel that is not measured, and a CUDA that is inside the wheel or in the system. A release that begins a new series gets these
facts from the preceding series. The new row has the status ``unknown`` until a person has checked it.
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
from envbuild.matrix.online import new_row
from envbuild.matrix.online.differences import IndexDifference
from envbuild.matrix.online.new_row import RowSources
from envbuild.matrix.reading.loader import compile_matrix
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.model.progress import OnProgress, Progress, ignore_progress

_SPARED = 3  # the index counts as incomplete if more releases than this, and more than a tenth of all releases, are missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """The proposed rows. ``before`` maps the name of each file to its text, and ``after`` maps each name to the text with the
    new rows. ``added`` has (framework, version, file) for each new row.

    ``changed`` are the names of the files to write. Files of base frameworks come first, so that an interruption leaves a
    consistent matrix.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    added: tuple[tuple[str, str, str], ...]
    changed: tuple[str, ...]

    @property
    def diff(self) -> str:
        """The unified diff of all files; empty if there is nothing to add."""
        lines: list[str] = []
        for name, old in self.before.items():
            new = self.after[name].splitlines(keepends=True)
            lines += difflib.unified_diff(old.splitlines(keepends=True), new, f"a/{name}", f"b/{name}")
        return "".join(lines)


@dataclass(slots=True)
class _Block:
    """A series in the text of a file: its lines from ``first`` up to ``last`` (exclusive), and the lines of its releases."""

    name: str
    first: int
    last: int
    releases: list[tuple[Version, int, int]]


def require_whole(matrix: Matrix, findings: Sequence[IndexDifference], place: str) -> None:
    """Raise :class:`BuildError` (``index-shrunk``) if so many releases are missing that the index must be incomplete."""
    for framework in matrix.frameworks:
        gone = {finding.version for finding in findings if finding.kind == "gone" and finding.framework == framework.name}
        if len(gone) > _SPARED and len(gone) * 10 > len(framework.releases):
            raise BuildError(
                f"The package index at {place} has no wheels of {len(gone)} of the {len(framework.releases)} releases of "
                f"{framework.title} in the matrix ({', '.join(sorted(gone, key=Version)[:6])} …), so it is incomplete.",
                code="index-shrunk",
                hint="Use an index that has all releases (`pip config list` shows yours), then run the command again.",
            )


def propose(
    source: RowSources, files: Mapping[str, str], findings: Sequence[IndexDifference], on_progress: OnProgress = ignore_progress
) -> Proposal:
    """Propose rows for all new releases, and insert them into the texts of ``files`` (file name → text).

    No row is proposed for a release that fits no build of its series, for example because the package has another name. Also,
    no row is proposed that contradicts the rest of the matrix. A person must add such rows.
    """
    new = sorted((finding for finding in findings if finding.kind == "new"), key=lambda finding: Version(finding.version))
    on_progress(
        Progress(stage="rows", message="checking proposed rows against the matrix", done=0, total=len(new), unit="rows")
    )
    found = _propose(source, files, new)
    before = _problems(files) if new else set()
    if not new or _problems(found.after) <= before:
        return found
    agreed: list[IndexDifference] = []
    for number, finding in enumerate(new):
        message = f"{finding.framework} {finding.version}"
        on_progress(Progress(stage="rows", message=message, done=number, total=len(new), unit="rows"))
        if _problems(_propose(source, files, [*agreed, finding]).after) <= before:
            agreed.append(finding)
    return _propose(source, files, agreed)


def _problems(files: Mapping[str, str]) -> set[str]:
    """Return the problems of the matrix that is made from ``files``. The problems have no line numbers."""
    try:
        return {problem.message for problem in check(compile_matrix({name: text.encode() for name, text in files.items()}))}
    except InvalidInputError as error:
        return {problem.message for problem in error.problems}


def _propose(source: RowSources, files: Mapping[str, str], findings: Sequence[IndexDifference]) -> Proposal:
    after = dict(files)
    added = []
    depth: dict[str, int] = {}
    for framework in source.matrix.frameworks:
        name = framework.origin.at.rpartition(":")[0]
        depth[name] = max(len(variant.upon) for release in framework.releases for variant in release.variants)
        grown: dict[str, str] = {}
        fresh = [finding for finding in findings if finding.framework == framework.name]
        for finding in sorted(fresh, key=lambda item: Version(item.version)):
            text = _insert(source, framework, after[name], finding.version, grown=grown)
            if text is not None:
                after[name] = text
                added.append((framework.name, finding.version, name))
    changed = sorted((name for name in after if after[name] != files[name]), key=lambda name: depth[name])
    return Proposal(before=files, after=after, added=tuple(added), changed=tuple(changed))


def _insert(source: RowSources, framework: FrameworkTable, text: str, version: str, *, grown: dict[str, str]) -> str | None:
    """Return ``text`` with a row for ``version``. ``grown`` maps the name of each series that an earlier call added to the name
    of the series from which it was copied."""
    blocks = _blocks(text)
    number = Version(version)
    own = next((block for block in blocks if _belongs(number, Version(block.name))), None)
    older = [block for block in blocks if Version(block.name) < number] or blocks[-1:]
    like = own or max(older, key=lambda block: Version(block.name))
    own = own or (like if _holds_minors(like, number) else None)
    model = grown.get(like.name, like.name)
    row = new_row.row(source, framework, model, version)
    lines = text.splitlines(keepends=True)
    if row is None or not all(lines[first].lstrip().startswith("- ") for _, first, _ in like.releases):
        return None
    if own is None:
        grown[_series_name(number, like)] = model
    put = _with_row if own else _with_series
    return "".join(put(lines, like, number, row, descending=_descending(blocks)))


def _belongs(version: Version, series: Version) -> bool:
    return version.release[: len(series.release)] == series.release


def _holds_minors(block: _Block, version: Version) -> bool:
    """Whether the series has several minor versions of this major version, such as a series 4.0 with the versions 4.0 to 4.5.
    Then the next minor version joins the series, too."""
    series = Version(block.name)
    return version.major == series.major and any(not _belongs(each, series) for each, _, _ in block.releases)


def _series_name(version: Version, like: _Block) -> str:
    """Return the name of a new series, with as many numbers as the name of ``like``, a series next to it."""
    return ".".join(map(str, version.release[: len(like.name.split("."))]))


def _blocks(text: str) -> list[_Block]:
    """Return the position of each series in ``text``, which must be valid."""
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
    indent = re.match(r"\s*", lines[like.releases[0][1]])
    body = [f"{indent[0] if indent else ''}{line}\n" for line in row.splitlines()]
    if descending:
        return [*lines[: like.first], *head, *body, "\n", *lines[like.first :]]
    return [*lines[: like.last], "\n", *head, *body, *lines[like.last :]]
