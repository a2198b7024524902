"""``envbuild lock --check``: check locks against the matrix and, with ``--online``, against the package indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from envbuild import errors
from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.lock.online_check import PinFinding
    from envbuild.pipeline.stored_locks import Locked


def run(session: Session, names: Sequence[str], constraints: dict[str, str | None], *, online: bool) -> int:
    """Check the locks of ``names``, and raise one error with all problems.

    Without ``names``, check the lock of every environment that has a folder.
    """
    from envbuild.lock import checking, online_check
    from envbuild.pipeline import committed, locking, resolving

    with display(session) as shown:
        tools = session.tools(on_progress=shown.news)
        wanted = [(tools, name) for name in committed.names(tools)] if not names else []
        for text in names:
            aimed = tools.at([text])
            wanted.append((aimed, resolving.resolve_buildable(aimed, [text], options.chosen(constraints)).environment.name))
        held: list[Locked] = []
        problems: list[errors.Problem] = []
        for aimed, name in wanted:
            try:
                held.append(locking.require_lock(aimed, name))
            except errors.InvalidInputError as error:
                problems += error.problems or [errors.Problem(where=name, line=0, message=error.message)]
        problems += checking.contradictions([each.lock for each in held])
        findings = online_check.ask([each.lock for each in held], tools.index, tools.on_progress) if online else []
    unasked = [each for each in findings if each.kind == "unreachable"]
    broken = [each for each in findings if each.kind not in online_check.HARMLESS and each not in unasked]
    if problems or broken:
        raise _broken(problems, broken, unasked)
    if unasked:
        raise _unasked(unasked, findings)
    canonical = [name for _, name in wanted]
    document = {"schema": 1, "checked": canonical}
    session.document({**document, "findings": [asdict(each) for each in findings]} if online else document)
    for each in findings:
        session.err(f"note: {each.environment}: {each.filename}: {each.message}")
    session.out(accepted_text(len(canonical)))
    if online:
        files = {(a.index, a.filename) for each in held for p in each.lock.prefixes for a in p.files}
        files |= {(a.index, a.filename) for each in held for a in each.lock.tools}
        session.out(f"{counted(len(files), 'file')} looked up: the indexes still offer every one, unchanged")
    return 0


def accepted_text(count: int) -> str:
    """Return the sentence that says that ``count`` locks have no problem."""
    return "1 lock exists, and the matrix accepts it" if count == 1 else f"{count} locks exist, and the matrix accepts them"


def _broken(
    problems: Sequence[errors.Problem], broken: Sequence[PinFinding], unasked: Sequence[PinFinding]
) -> errors.EnvbuildError:
    every = [*problems, *(_problem(each) for each in broken)]
    return errors.InvalidInputError(
        f"{len(every)} problem{'s' if len(every) > 1 else ''} in the locks.",
        code="stale-lock" if problems else "lock-upstream",
        problems=every,
        details=_summary(unasked),
        hint="To make a missing lock, run `envbuild lock NAME`. If the matrix no longer accepts a lock, `envbuild lock "
        "NAME --upgrade --dry-run` shows what would change, and `--upgrade` writes it.",
    )


def _unasked(unasked: Sequence[PinFinding], findings: Sequence[PinFinding]) -> errors.EnvbuildError:
    files, locks = {(each.index, each.filename) for each in unasked}, {each.environment for each in unasked}
    rest = "" if len(findings) > len(unasked) else " All other files are unchanged."
    return errors.PublishError(
        f"{len(files)} file{'s' if len(files) > 1 else ''} of {len(locks)} lock{'s' if len(locks) > 1 else ''} "
        f"could not be looked up.{rest}",
        code="index-unreachable",
        details=_summary(unasked),
        hint="So it is not known whether these files still exist. Repeat the check when their index can be reached.",
    )


def _summary(unasked: Sequence[PinFinding]) -> list[str]:
    """Return a line for each index that did not answer, with the files that only this index offers."""
    lines = []
    for index, why in dict.fromkeys((each.index, each.message) for each in unasked):
        ours = [each for each in unasked if (each.index, each.message) == (index, why)]
        names = ", ".join(sorted({each.environment for each in ours}))
        lines.append(f"{index}: {why} Only this index has {', '.join(sorted({each.filename for each in ours}))} in {names}.")
    return lines


def _problem(found: PinFinding) -> errors.Problem:
    where = "" if found.index == "default" else f" on {found.index}"
    return errors.Problem(
        where=found.environment, line=0, message=f"{found.filename} (project {found.project}{where}): {found.message}"
    )
