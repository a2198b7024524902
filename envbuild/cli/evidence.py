"""``envbuild evidence NAME``: show the proofs of environments and which proofs are stale; make missing proofs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from envbuild import errors
from envbuild.cli import given_options, options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted, counted_each

if TYPE_CHECKING:
    from envbuild.pipeline.evidence import Kind
    from envbuild.pipeline.evidence_upkeep import EvidenceRow
    from envbuild.pipeline.missing_proofs import Attempt
    from envbuild.pipeline.tools import Tools


def _kinds(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    from envbuild.pipeline.evidence import KINDS

    words = [word.strip() for word in value.split(",") if word.strip()]
    if not words and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
        raise errors.UsageError("--kinds names no kind of proof.", hint=f"The kinds are {', '.join(KINDS)}.")
    chosen = {click.Choice(KINDS).convert(word, param, ctx) for word in words}
    return tuple(kind for kind in KINDS if kind in chosen) if words else KINDS


@click.command("evidence")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="All environments that have a folder in images/environments/ or proofs in images/evidence/.",
)
@click.option(
    "--match",
    "pattern",
    default="",
    metavar="GLOB",
    help="Only environments whose canonical name matches the pattern; implies --all.",
)
@click.option(
    "--prove", is_flag=True, help="Run the stages whose proofs are missing. After an interruption, the next run continues."
)
@click.option(
    "--kinds",
    default="",
    metavar="WORD,…",
    callback=_kinds,
    help="The kinds of proof that --prove makes, such as built,smoke-cpu (default: all kinds).",
)
@click.option(
    "--keep-images",
    is_flag=True,
    help="Keep the images that --prove builds. Without it, each image is removed after its test.",
)
@click.option("--prune", is_flag=True, help="Remove stale proofs from images/evidence/ and from the cache folder.")
@click.option("--record", is_flag=True, help="Copy the proofs of this machine from the cache folder to images/evidence/.")
@click.option("--check", is_flag=True, help="Write nothing. If images/evidence/ has stale proofs, the exit code is 5.")
@click.option(
    "--from",
    "repository",
    default="",
    metavar="HOST/REPOSITORY",
    help=(
        "Read the statements that are attached to the image of NAME in this repository, and keep the smoke "
        "reports that are signed with a key of --key."
    ),
)
@click.option(
    "--key",
    "key_files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --from: a public key whose signatures you trust, such as cosign.pub. May be repeated. Without it, the signers "
    "of the policy are trusted.",
)
@options.engine
@options.constraints
@options.common
@click.pass_obj
def command(  # noqa: PLR0917 - click passes each option as an argument
    session: Session,
    /,
    names: tuple[str, ...],
    every: bool,
    pattern: str,
    prove: bool,
    kinds: tuple[Kind, ...],
    keep_images: bool,
    prune: bool,
    record: bool,
    check: bool,
    repository: str,
    key_files: tuple[Path, ...],
    start_engine: bool,
    **constraints: str | None,
) -> int:
    """Show the proofs of each NAME. A proof is stale if the lock or the rendering was changed after the proof was made. If
    only the smoke test was changed, the proof still counts, but is marked as that of an earlier smoke test. --prove renews it.

    Every command stores its proofs in the cache folder. --record copies them to images/evidence/, where you can commit them to
    git. --from reads smoke reports of other machines from a registry; `show` and `resolve` then list these reports.
    """
    if repository or key_files:
        from envbuild.cli import evidence_from

        others = given_options.others("names", "repository", "key_files")
        return evidence_from.run(session, names, repository, key_files, others)
    from envbuild.pipeline import evidence_upkeep, missing_proofs

    if bool(names) == (every or bool(pattern)):
        raise errors.UsageError("Name environments, or use --all.", hint="`envbuild evidence --all` shows every environment.")
    _require_compatible(is_proving=prove, is_checking=check)
    attempts: list[Attempt] = []
    notes: list[str] = []
    with display(session) as shown:
        tools = session.tools(names, on_progress=shown.news, start_engine=start_engine)
        if check:
            evidence_upkeep.require_checkout(tools)
        wanted = evidence_upkeep.evidence_names(tools, names, options.chosen(constraints), pattern=pattern)
        if prove:
            from envbuild.smoketest import SmokeOptions

            def tell(done: Attempt) -> None:
                shown.line(_line(done))

            if given_options.among("kinds"):
                notes = [note for name in wanted for note in missing_proofs.explain_skipped(tools, name, kinds)]
            attempts = missing_proofs.prove_again(
                tools,
                wanted,
                kinds,
                smoke=SmokeOptions(),
                keep_images=keep_images,
                on_done=tell,
            )
    for note in notes:
        session.err(f"note: {note}")
    changed = evidence_upkeep.prune_evidence(tools, wanted) if prune else []
    changed += evidence_upkeep.record_evidence(tools, wanted) if record else []
    rows = [evidence_upkeep.survey_evidence(tools, name) for name in wanted]
    if check:
        _check(rows)
        session.document({"schema": 1, "checked": wanted})
        session.out(f"{len(wanted)} environment{'s' if len(wanted) != 1 else ''}: no committed proof is stale")
        return 0
    failed = [each for each in attempts if each.state == "failed"]
    if failed:
        raise _not_proved(failed, attempts)
    _tell(session, tools, rows, attempts, list(dict.fromkeys(changed)), quiet=prune or record)
    return 0


def _require_compatible(*, is_proving: bool, is_checking: bool) -> None:
    """Raise :class:`UsageError` for options that need ``--prove`` if it is missing, and for options that ``--check``
    excludes."""
    unused = [] if is_proving else given_options.among("kinds", "keep_images", "start_engine")
    if unused:
        raise errors.UsageError(
            f"{' and '.join(unused)} cannot be used without --prove.",
            hint="Add --prove to run the stages whose proofs are missing.",
        )
    writing = given_options.among("prove", "prune", "record") if is_checking else []
    if writing:
        raise errors.UsageError(
            f"--check writes nothing, so it cannot be combined with {' or '.join(writing)}.",
            hint=f"Run the command first with {' and '.join(writing)}, and then with --check.",
        )


def _tell(
    session: Session, tools: Tools, rows: list[EvidenceRow], attempts: list[Attempt], changed: list[Path], *, quiet: bool
) -> None:
    from envbuild import codec

    root = tools.workspace.root
    places = [str(path.relative_to(root)) if path.is_relative_to(root) else str(path) for path in changed]
    document: dict[str, Any] = {"schema": 1, "environments": codec.encode(rows)}
    if attempts:
        document["attempts"] = codec.encode(attempts)
    session.document({**document, "changed": places})
    if not quiet:
        table = [["NAME", "PROVED", "STALE", "NOT RECORDED"], *(_row(row) for row in rows)]
        session.out(wording.columns(table))
    for place in places:
        session.out(f"written: {place}" if (root / place).exists() else f"removed: {place}")
    if quiet and not places:
        session.out("Nothing to change.")


def _row(row: EvidenceRow) -> list[str]:
    by_cause: dict[str, dict[str, None]] = {}
    for each in row.stale:
        by_cause.setdefault(", ".join(each.changed), {})[each.proof.kind] = None
    stale = [f"{' '.join(kinds)} ({cause} changed)" for cause, kinds in by_cause.items()]
    refuted = [f"{kind} (failed on this machine)" for kind in row.contradicted]
    unrecorded = dict.fromkeys(each.kind for each in row.unrecorded)
    proved = [_proved(kind, row) for kind in row.kinds]
    return [row.name, " ".join(proved) or "-", ", ".join([*stale, *refuted]) or "-", " ".join(unrecorded) or "-"]


def _proved(kind: Kind, row: EvidenceRow) -> str:
    """The kind of proof, with the GPUs of its proofs in brackets, such as ``smoke-gpu (2 x A100)``."""
    notes = [counted_each(gpus) for gpus in dict.fromkeys(each.gpus for each in row.proofs if each.kind == kind and each.gpus)]
    notes += ["earlier smoke test"] if kind in row.earlier else []
    return f"{kind} ({'; '.join(notes)})" if notes else kind


def _line(done: Attempt) -> str:
    if done.state == "proved":
        return f"{done.name}: {' '.join(done.held)}"
    word = "failed" if done.state == "failed" else "not possible here"
    return f"{done.name}: {word}: {' '.join(done.lacking)}: {done.why}"


def _check(rows: list[EvidenceRow]) -> None:
    """Raise :class:`InvalidInputError` (``stale-evidence``) if the repository has stale proofs."""
    problems = []
    for row in rows:
        stale = [each for each in row.stale if each.place == "repository"]
        problems += [
            errors.Problem(where=row.name, line=0, message=f"{each.proof.kind}: {', '.join(each.changed)} changed since")
            for each in stale
        ]
        if row.orphan and not stale:
            problems.append(errors.Problem(where=row.name, line=0, message="the matrix has no such environment"))
    if problems:
        raise errors.InvalidInputError(
            f"{len(problems)} committed proof{'s are' if len(problems) > 1 else ' is'} stale.",
            code="stale-evidence",
            problems=problems,
            hint=(
                "To remove them, run `envbuild evidence --all --prune`. To prove them again, run `envbuild evidence "
                "NAME --prove --record`."
            ),
        )


def _not_proved(failed: list[Attempt], attempts: list[Attempt]) -> errors.EnvbuildError:
    worst = max(failed, key=lambda each: each.exit_code)
    kinds: dict[int, type[errors.EnvbuildError]] = {
        kind.exit_code: kind
        for kind in (errors.InvalidInputError, errors.BuildError, errors.VerifyError, errors.SmokeFailedError)
    }
    return kinds.get(worst.exit_code, errors.SmokeFailedError)(
        f"{len(failed)} of {counted(len(attempts), 'environment')} failed.",
        code="not-proved",
        problems=[errors.Problem(where=each.name, line=0, message=each.why) for each in failed],
        hint=(
            "Finished proofs are kept: run the same command again to continue. `envbuild make NAME` shows the complete "
            "output of one failure."
        ),
    )
