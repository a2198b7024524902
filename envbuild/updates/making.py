"""Makes an update: changes rows, locks and renderings in a scratch copy, and sets a branch when everything is ready."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from envbuild import files
from envbuild.errors import UsageError
from envbuild.matrix.reading.loader import load_files
from envbuild.measure import measured_files
from envbuild.model.progress import OnProgress, Progress
from envbuild.pipeline.tools import Tools
from envbuild.updates import locks, markdown, rows, scratch, wheel_needs
from envbuild.updates.advisories import Advisories
from envbuild.updates.locks import Locks
from envbuild.updates.model import Changes, NewRelease, UpdateRequest
from envbuild.updates.scratch import Scratch, StartCommit
from envbuild.workspace import Workspace

# The dates on which rows were checked and proofs were made. Two updates that differ only in these dates count as the same.
_DAYS = re.compile(rb'(checked: |"date": ?)"\d{4}-\d{2}-\d{2}"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """A finished update. ``paths`` are the changed files, relative to the top of the repository; empty if nothing is new.
    ``text`` is the description of the pull request.

    ``commit`` is empty if this run set no branch. ``is_known`` is true if the branch already had the same content.
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
    """Make an update that starts from ``revision``, and set ``branch`` to its commit.

    If ``writes`` is false, no branch is set, and the result describes the update. The branch is set only when the whole set of
    changes is ready. Raises :class:`UsageError` (``branch-exists``) if the branch has another content and ``replaces`` is
    false. Also raises the errors of the index, of locking and of rendering.
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
    """Change the files of the scratch copy, and return the changes."""
    tools = Tools(copy.workspace, on_progress=on_progress)
    known = Advisories(request.databases, request.service, on_progress)
    work = Locks(tools, request, known)
    if request.pattern:
        work.names()  # raises if the pattern matches no environment, before the index is asked
    accepted_before = locks.stale(tools)
    found = _rows(tools, request, on_progress) if request.asks_index else None
    tools = Tools(copy.workspace, on_progress=on_progress)  # new tools, which read the matrix with the new rows
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
    """Write rows for new releases into the matrix of the scratch copy."""
    workspace = tools.workspace
    facts = load_files(workspace.matrix)
    wanted = rows.only(facts, request.frameworks)
    with wheel_needs.opened(tools.index, workspace, on_progress) as needs:
        asked = rows.ask(wanted, tools.index, workspace.downloads, on_progress, needs if request.measures else None)
        found = rows.propose(facts, rows.read_texts(workspace.matrix), asked, on_progress)
    measured_files.keep(workspace.measured, found.measured)
    for name in found.proposal.changed:
        files.write_atomic(workspace.root / name, found.proposal.after[name])
    return found


def _holds(copy: Scratch, branch: str, tip: str, paths: Sequence[str]) -> bool:
    """Whether the branch already has this update: it starts from the same commit and has the same content, except for dates."""
    if copy.parent(tip) != copy.base.commit or copy.changed_in(branch) != list(paths):
        return False
    return all(_undated(copy.content(path)) == _undated(copy.content_at(tip, path)) for path in paths)


def _undated(content: bytes | None) -> bytes | None:
    return None if content is None else _DAYS.sub(rb"\1", content)
