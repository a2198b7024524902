"""Asks the package index for releases that the matrix lacks, and proposes rows for them as one set."""

from __future__ import annotations

import datetime
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from envbuild.matrix.online import differences, new_row, proposals, published, waiting, wheel_metadata
from envbuild.matrix.online.differences import IndexDifference
from envbuild.matrix.online.proposals import Proposal
from envbuild.matrix.online.waiting import Key, Waiting
from envbuild.matrix.reading import loader
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.model.progress import OnProgress

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile
    from envbuild.updates.wheel_needs import WheelNeeds


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexAnswers:
    """The answers of the index, and their differences from ``matrix``.

    ``unread`` maps the file name of each wheel whose requirements cannot be read to the reason. With ``needs``, the wheels of
    new releases are measured.
    """

    matrix: Matrix
    published: published.Published
    reader: wheel_metadata.Reader
    findings: Sequence[IndexDifference]
    unread: Mapping[str, str]
    place: str
    needs: WheelNeeds | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The proposed rows. ``waiting`` are releases that get no row yet. ``left`` are findings that a person must look at.

    ``measured`` are the measurements of the new releases' wheels, which are stored with the matrix.
    """

    proposal: Proposal
    waiting: tuple[Waiting, ...]
    left: tuple[IndexDifference, ...]
    measured: tuple[Mapping[str, Any], ...] = ()


def only(facts: Matrix, names: Sequence[str]) -> Matrix:
    """Return the matrix with only the named frameworks and the frameworks that belong to them.

    If no framework is named, return the matrix with all frameworks.
    """
    from envbuild.resolve.request.parser import parse

    wanted = waiting.together(facts, (each.framework.name for name in names for each in parse([name], matrix=facts).wanted))
    return facts._replace(frameworks=tuple(each for each in facts.frameworks if not names or each.name in wanted))


def ask(facts: Matrix, index: Index, downloads: Path, on_progress: OnProgress, needs: WheelNeeds | None = None) -> IndexAnswers:
    """Compare the matrix ``facts`` with the index. Raises :class:`BuildError` (``index-unreachable``)."""
    from envbuild.lock.metadata import MetadataReader, UnusableFileError

    metadata = MetadataReader(index, downloads, on_progress, whole=False)
    unread: dict[str, str] = {}

    def requires_of(file: IndexFile, version: Version) -> Sequence[Requirement] | None:
        try:
            return metadata.read(file, version).requires
        except UnusableFileError as error:
            unread[file.filename] = str(error)
            return None

    answers = published.ask(facts, index.project_files, on_progress)
    reader = wheel_metadata.Reader(answers, index.project_files, requires_of)
    findings = differences.compare(facts, answers, wheel_metadata.collect(facts, reader, on_progress))
    return IndexAnswers(
        matrix=facts, published=answers, reader=reader, findings=findings, unread=unread, place=index.place, needs=needs
    )


def propose(facts: Matrix, sources: Mapping[str, str], asked: IndexAnswers, on_progress: OnProgress) -> Rows:
    """Propose rows for the new releases in ``asked``: first for base frameworks, then for add-ons to these frameworks.

    A release waits and gets no row while one of these is missing: a package that the release requires, its base framework, or
    an add-on that upstream publishes together with it. Raises :class:`BuildError` (``index-shrunk``) if the index is clearly
    incomplete.
    """
    proposals.require_whole(asked.matrix, asked.findings, asked.place)
    held: dict[Key, str] = {}
    while True:
        proposal, incomplete = _propose(facts, sources, asked, held, on_progress)
        held |= incomplete
        after = _compiled(proposal.after)
        split = waiting.split_pairs(facts, after, [row[:2] for row in proposal.added])
        if not split:
            break
        held |= split
    added = {row[:2] for row in proposal.added}
    told = ("more", "known")
    left = [each for each in asked.findings if each.kind not in told and (each.framework, each.version) not in {*added, *held}]
    return Rows(
        proposal=proposal,
        waiting=tuple(Waiting(framework=name, version=version, reason=held[name, version]) for name, version in sorted(held)),
        left=tuple(left),
        measured=_measured(after, added, asked),
    )


def _measured(after: Matrix, added: Container[Key], asked: IndexAnswers) -> tuple[Mapping[str, Any], ...]:
    """Return the measurements of the wheels that belong to the new rows."""
    rows = [(release, variant) for table in after.frameworks for release in table.releases
            for variant in release.variants if (table.name, release.version) in added]  # fmt: skip
    new = [(release.version, variant.package) for release, variant in rows if published.indexed(variant)]
    wheels = [asked.published[package].get(Version(version)) for version, package in dict.fromkeys(new)]
    names = [each.file.filename for each in wheels if each is not None and each.file is not None]
    known = asked.needs.summaries if asked.needs is not None else {}
    return tuple(known[name] for name in dict.fromkeys(names) if name in known)


def _propose(
    facts: Matrix, sources: Mapping[str, str], asked: IndexAnswers, held: Mapping[Key, str], on_progress: OnProgress
) -> tuple[Proposal, dict[Key, str]]:
    """Propose rows: first for base frameworks, then for add-ons, then for add-ons to add-ons.

    Also return the releases that must wait, each with the reason.
    """
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    source = new_row.RowSources(
        matrix=facts, published=asked.published, reader=asked.reader, today=today, needs_of=asked.needs or new_row.not_measured
    )
    new = [each for each in asked.findings if each.kind == "new" and (each.framework, each.version) not in held]
    depths = {table.name: _depth(table) for table in facts.frameworks}
    files, added = dict(sources), list[tuple[str, str, str]]()
    found: dict[Key, str] = {}
    for depth in sorted({depths[each.framework] for each in new}):
        source = replace(source, matrix=_compiled(files))
        tables = {table.name: table for table in source.matrix.frameworks}
        ready = []
        for finding in (each for each in new if depths[each.framework] == depth):
            table = tables[finding.framework]
            reason = waiting.held_with(source, table, finding.version, {**held, **found})
            reason = reason or waiting.incomplete(source, table, finding.version)
            if reason:
                found[finding.framework, finding.version] = reason
            else:
                ready.append(finding)
        proposal = proposals.propose(source, files, ready, on_progress)
        files = dict(proposal.after)
        added += list(proposal.added)
    changed = tuple(dict.fromkeys(name for _, _, name in sorted(added, key=lambda row: depths[row[0]])))
    return Proposal(before=sources, after=files, added=tuple(added), changed=changed), found


def _depth(table: FrameworkTable) -> int:
    return max(len(variant.upon) for release in table.releases for variant in release.variants)


def _compiled(files: Mapping[str, str]) -> Matrix:
    return loader.compile_matrix({name: text.encode() for name, text in files.items()})


def read_texts(entry: Path) -> dict[str, str]:
    """Map the name of each of the matrix's own files to its text. Overlays are not included."""
    return {name: content.decode() for name, content in loader.read_sources(entry).items()}
