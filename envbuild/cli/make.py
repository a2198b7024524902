"""``envbuild make NAME…``: run all stages from the name to the smoke test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, options, smoke_result, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import SmokeFailedError, SmokeInconclusiveError

if TYPE_CHECKING:
    from envbuild.pipeline.batch import Job
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.make import Made, MakeOptions, StageNote
    from envbuild.pipeline.tools import Tools
    from envbuild.pipeline.unchanged_renderings import RenderingWatch

_MARKS = {"done": "", "kept": "kept", "replayed": "replayed"}


@click.command("make")
@batch.options
@batch.also
@options.judging
@options.builder
@options.engine
@options.offline
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], also: tuple[str, ...], builder: Builder, **values: Any) -> int:
    """Resolve, lock, render, build, verify, link-check, smoke-test and report NAME.

    A stage whose inputs have not changed is skipped, and its stored result is used. After an interruption, the next run
    continues. With several names, files and layers that they share are fetched and made once, and a summary is printed at the
    end.
    """
    from envbuild.pipeline import make

    several = batch.asked(names, values)
    tools_from = {key: values.pop(key) for key in ("start_engine", "offline")}
    constraints, judging = options.split(values)
    smoke = options.smoke_options(judging)

    def wanted(*requests: str) -> MakeOptions:
        return make.MakeOptions(smoke=smoke, aliases=options.aliases(requests, constraints), builder=builder)

    if several is not None:

        def attempt(tools: Tools, job: Job, watch: RenderingWatch) -> tuple[Mapping[str, Any], int]:
            made = make.make(
                tools, [job.request], options.chosen(constraints), wanted(*job.requests), lambda _note: None, watch=watch
            )
            return smoke_result.complete(document(made), made.smoked), made.smoked.exit_code

        return batch.run(session, several, constraints, attempt=attempt, builder=builder, tools_from=tools_from)
    name = names[0]
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        made = make.make(
            tools, [name], options.chosen(constraints), wanted(name, *also), lambda note: shown.line(stage_line(note))
        )
    session.out(f"\n{made.record.tags[0]}  on {made.engine}\n")
    code = smoke_result.show(session, document(made), made.smoked)
    if made.nothing_to_do:
        session.err(
            "Nothing has changed since the last run, so this is its stored verdict (found in "
            f"{wording.seconds(made.seconds)}). To run the test again: `envbuild smoke {name}`."
        )
    else:
        session.err(f"Done in {wording.seconds(made.seconds)}.")
    return code


def make_image(
    tools: Tools, name: str, constraints: Mapping[str, str | None], builder: Builder, tell: Callable[[str], None]
) -> Made:
    """Make the image of ``name`` for a command that needs an image. ``tell`` gets a line about each stage.

    An inconclusive smoke test is accepted. It occurs, for example, if a GPU image is tested without a GPU. Raises
    :class:`SmokeFailedError` if the smoke test fails.
    """
    from envbuild.pipeline import make
    from envbuild.smoketest import SmokeOptions

    wanted = make.MakeOptions(smoke=SmokeOptions(), aliases=options.alias(name, constraints), builder=builder)
    made = make.make(tools, [name], options.chosen(constraints), wanted, lambda note: tell(stage_line(note)))
    if made.smoked.exit_code not in (0, SmokeInconclusiveError.exit_code):
        raise SmokeFailedError(made.smoked.sentence, hint=made.smoked.hint)
    return made


def document(made: Made) -> dict[str, Any]:
    """Return the JSON document of a run that reached the smoke test, without the verdict."""
    from envbuild import codec

    return {
        "schema": 1,
        "name": made.environment.name,
        "lock": made.digest,
        "image": made.record.image,
        "size": made.record.size,
        "tags": list(made.record.tags),
        "engine": made.engine,
        "stages": codec.encode(made.stages),
        "seconds": round(made.seconds, 3),
        "nothing_to_do": made.nothing_to_do,
    }


def stage_line(note: StageNote) -> str:
    """Return the line that reports a finished stage."""
    mark = _MARKS[note.outcome] or wording.seconds(note.seconds)
    return f"{note.stage:<9} {mark:>10}  {note.detail}"
