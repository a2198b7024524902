"""``envbuild make NAME``: run all stages from the name to the smoke test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, verdict, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.make import StageNote

_MARKS = {"done": "", "kept": "kept", "replayed": "replayed"}


@click.command("make")
@options.naming()
@options.judging
@options.builder
@options.engine
@options.offline
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, start_engine: bool, builder: Builder, offline: Path | None, **values: Any) -> int:
    """Resolve, lock, render, build, verify, smoke-test and report NAME.

    Stages whose inputs have not changed are skipped, and the stored verdict is shown. After an interruption, the next
    run continues.
    """
    from envbuild import codec
    from envbuild.pipeline import make
    from envbuild.pipeline.make import MakeOptions

    constraints, judging = options.split(values)
    wanted = MakeOptions(smoke=options.smoke_options(judging), aliases=options.alias(name, constraints), builder=builder)
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, start_engine=start_engine, offline=offline)
        made = make.make(tools, [name], options.chosen(constraints), wanted, lambda note: shown.line(_stage(note)))
    document = {
        "schema": 1,
        "name": made.environment.name,
        "lock": made.digest,
        "image": made.record.image,
        "tags": list(made.record.tags),
        "engine": made.engine,
        "stages": codec.encode(made.stages),
        "seconds": round(made.seconds, 3),
        "nothing_to_do": made.nothing_to_do,
    }
    session.out(f"\n{made.record.tags[0]}  on {made.engine}\n")
    code = verdict.show(session, document, made.smoked)
    if made.nothing_to_do:
        session.err(
            f"Nothing changed since the last run: this is the stored verdict, replayed in {wording.seconds(made.seconds)}. "
            f"`envbuild smoke {name}` runs the test again."
        )
    else:
        session.err(f"Done in {wording.seconds(made.seconds)}.")
    return code


def _stage(note: StageNote) -> str:
    mark = _MARKS[note.outcome] or wording.seconds(note.seconds)
    return f"{note.stage:<8} {mark:>10}  {note.detail}"
