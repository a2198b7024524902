"""Make an update: rows, locks and renderings in a scratch copy, and a branch when all of it is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from envbuild import files
from envbuild.errors import UsageError
from envbuild.matrix.reading.loader import load_files
from envbuild.measure import kept
from envbuild.model.progress import OnProgress, Progress
from envbuild.pipeline.tools import Tools
from envbuild.updates import locks, markdown, rows, scratch, wheel_needs
from envbuild.updates.advisories import Advisories
from envbuild.updates.locks import Locks
from envbuild.updates.model import Changes, NewRelease, UpdateRequest
from envbuild.updates.scratch import Scratch, StartCommit
from envbuild.workspace import Workspace

# The days on which rows were checked and proofs were made. Two updates that differ only in them are the same.
_DAYS = re.compile(rb'(checked: |"date": ?)"\d{4}-\d{2}-\d{2}"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """A finished update. ``paths`` are the changed files, relative to the top of the repository; empty if nothing is new.

    ``commit`` is empty if no branch was made now. ``is_known`` is true if the branch already had the same content.
    """

    base: StartCommit
    branch: str
    commit: str
    paths: tuple[str, ...]
    changes: Changes
    text: str
    is_known: bool = False


def make(
    workspace: Workspace,
    request: UpdateRequest,
    *,
    branch: str,
    revision: str = "HEAD",
    replaces: bool = False,
    writes: bool = True,
    on_progress: OnProgress,
) -> Update:
    """Make the update of ``revision`` and let ``branch`` name it; with ``writes`` false, only find out what would be done.

    Nothing is changed before the whole set is there. Raises :class:`UsageError` (``branch-exists``) if the branch has another
    content, unless ``replaces``, and the errors of the index, of locking and of rendering.
    """
    base = scratch.base_of(workspace, revision)
    if writes:
        scratch.require_branch(workspace, branch)
    with scratch.opened(workspace, base) as copy:
        changes = _change(copy, request, on_progress)
        paths = copy.changed()
        made = Update(
            base=base, branch=branch, commit="", paths=tuple(paths), changes=changes,
            text=markdown.page(changes, locks=request.locks) if paths else "",
        )  # fmt: skip
        if not paths:
            return made
        before = copy.tip(branch)
        if before and _holds(copy, branch, before, paths):
            return replace(made, is_known=True)
        if before and not replaces:
            raise UsageError(
                f"The branch {branch} already exists and does not contain this update.",
                code="branch-exists",
                hint="Add --replace to set it to this update, delete it, or name another --branch.",
            )
        if not writes:
            return made
        on_progress(Progress(stage="update", message=f"writing the branch {branch}"))
        commit = copy.commit(markdown.message(changes))
        copy.point(branch, commit, before=before)
        return replace(made, commit=commit)


def _change(copy: Scratch, request: UpdateRequest, on_progress: OnProgress) -> Changes:
    """Change the files of the copy, and return what was changed."""
    tools = Tools(copy.workspace, on_progress=on_progress)
    known = Advisories(request.databases, request.service, on_progress)
    work = Locks(tools, request, known)
    if request.pattern:
        work.names()  # refuse a pattern that matches nothing before the index is asked
    accepted_before = locks.stale(tools)
    found = _rows(tools, request, on_progress) if request.asks_index else None
    tools = Tools(copy.workspace, on_progress=on_progress)  # these read the matrix with the new rows
    work.tools = tools
    work.renew()
    for text in request.newest:
        work.add(text)
    releases = found.proposal.added if found else ()
    return Changes(
        releases=tuple(NewRelease(framework=name, version=version, file=file) for name, version, file in releases),
        waiting=found.waiting if found else (),
        left=found.left if found else (),
        locks=tuple(work.renewed),
        kept=tuple(work.kept),
        stale=tuple(sorted(locks.stale(tools) - accepted_before)),
        database=known.database,
        unchecked=tuple(known.unchecked),
    )


def _rows(tools: Tools, request: UpdateRequest, on_progress: OnProgress) -> rows.Rows:
    """Write the rows of new releases into the copy's matrix."""
    workspace = tools.workspace
    facts = load_files(workspace.matrix)
    wanted = rows.only(facts, request.frameworks)
    with wheel_needs.opened(tools.index, workspace, on_progress) as needs:
        asked = rows.ask(wanted, tools.index, workspace.downloads, on_progress, needs if request.measures else None)
        found = rows.propose(facts, rows.read_texts(workspace.matrix), asked, on_progress)
    kept.keep(workspace.measured, found.measured)
    for name in found.proposal.changed:
        files.write_atomic(workspace.root / name, found.proposal.after[name])
    return found


def _holds(copy: Scratch, branch: str, tip: str, paths: Sequence[str]) -> bool:
    """Whether the branch already is this update: made from the same commit, with the same content apart from dates."""
    if copy.parent(tip) != copy.base.commit or copy.changed_in(branch) != list(paths):
        return False
    return all(_undated(copy.content(path)) == _undated(copy.content_at(tip, path)) for path in paths)


def _undated(content: bytes | None) -> bytes | None:
    return None if content is None else _DAYS.sub(rb"\1", content)
