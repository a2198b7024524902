"""``envbuild build NAME…``: build the image of a locked environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, options, wording
from envbuild.cli.batch_summary import Conclusion
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.pipeline.batch import Job, Outcome
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.tools import Tools
    from envbuild.pipeline.unchanged_renderings import RenderingWatch

_NOT_VERIFIED = "Not verified. To verify it, run `envbuild build --builder compose`; then `envbuild push` sends its tags."


@click.command("build")
@batch.options
@click.option("--no-cache", is_flag=True, help="Build every layer again, and do not use the engine's cache.")
@batch.also
@options.builder
@click.option(
    "--to",
    "place",
    metavar="PLACE",
    help=(
        "Compose the image, and write it to this place, not into the engine. PLACE is "
        "oci:FOLDER[:NAME], docker-archive:FILE or HOST/REPOSITORY. Several images need HOST/REPOSITORY."
    ),
)
@options.engine
@options.offline
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, names: tuple[str, ...], no_cache: bool, builder: Builder, place: str | None, **values: Any
) -> int:
    """Build the image of NAME from its lock, and compare the image with the lock. If no input has changed, nothing is
    built.

    The image gets its tags only after the comparison with the lock. With several names, files and layers that they share are
    fetched and made once. An image that --to writes to PLACE is not compared with its lock, and its tag says so.
    """
    several = batch.asked(names, values)
    tools_from = {key: values.pop(key) for key in ("start_engine", "offline")}
    also: tuple[str, ...] = values.pop("also")
    constraints: dict[str, str | None] = values
    if place is not None:
        _refuse_with_place(place, several, no_cache=no_cache)
        if several is not None:  # each child process composes one image
            return batch.run(session, several, constraints, tools_from=tools_from, conclude=_list_written)
        return _build_to(session, names[0], constraints, tools_from, place)
    if several is not None:

        def attempt(tools: Tools, job: Job, _watch: RenderingWatch) -> tuple[Mapping[str, Any], int]:
            built, record = _build(tools, job.requests, constraints, no_cache=no_cache, builder=builder)
            return _document(built, record), 0

        return batch.run(
            session,
            several,
            constraints,
            attempt=None if no_cache else attempt,
            builder=builder,
            tools_from=tools_from,
        )
    with display(session) as shown:
        tools = session.tools(names, on_progress=shown.news, **tools_from)
        name, record = _build(tools, (names[0], *also), constraints, no_cache=no_cache, builder=builder)
    session.document(_document(name, record))
    session.out(f"{record.tags[0]}{' (kept)' if record.kept else f' in {wording.seconds(record.seconds)}'}")
    session.out(f"  image  {record.image}")
    session.out(f"  tags   {', '.join(record.tags)}")
    return 0


def _refuse_with_place(place: str, several: object, *, no_cache: bool) -> None:
    """Raise :class:`UsageError` if the command line has an option that does not work with ``--to``, or has several names and a
    ``place`` for only one image."""
    from envbuild.pipeline.saving import FORMS

    context = click.get_current_context()
    is_chosen = context.get_parameter_source("builder") is click.core.ParameterSource.COMMANDLINE
    if no_cache or (is_chosen and context.params["builder"] == "docker"):
        raise UsageError(
            f"--to cannot be combined with {'--no-cache' if no_cache else '--builder docker'}.",
            hint="`envbuild build NAME` builds the image in the engine; then `envbuild save` or `envbuild push` copies it.",
        )
    if several is not None and place.partition(":")[0] in FORMS:
        raise UsageError(
            f"{place} takes one image, so it needs one NAME, and no option for several (such as --match, --jobs).",
            hint="For several images, use a registry (--to HOST/REPOSITORY), or run the command once for each NAME.",
        )


def _build_to(
    session: Session, request: str, constraints: dict[str, str | None], tools_from: Mapping[str, Any], place: str
) -> int:
    from envbuild import codec
    from envbuild.pipeline import composing_elsewhere, locking, rendering, resolving

    with display(session) as shown:
        tools = session.tools([request], on_progress=shown.news, **tools_from)
        resolution = resolving.resolve_buildable(tools, [request], options.chosen(constraints))
        locked = locking.require_lock(tools, resolution.environment.name)
        rendered = rendering.render_environment(tools, locked.lock)
        placed = composing_elsewhere.build_to(tools, locked.lock, rendered.texts(), place)
    session.document({"schema": 1, "name": resolution.environment.name, **codec.encode(placed)})
    session.out(placed.reference)
    session.out(f"  image   {placed.image}")
    session.out(f"  digest  {placed.digest}")
    session.out(f"  {_NOT_VERIFIED}")
    return 0


def _list_written(outcomes: Sequence[Outcome]) -> Conclusion:
    """Return the last lines of a command with ``--to`` and several names: the reference of each written image."""
    written = [str(outcome.document["reference"]) for outcome in outcomes if "reference" in outcome.document]
    return Conclusion(lines=[*written, _NOT_VERIFIED] if written else ())


def _build(
    tools: Tools, requests: Sequence[str], constraints: dict[str, str | None], *, no_cache: bool, builder: Builder
) -> tuple[str, BuildRecord]:
    from envbuild.pipeline import building, locking, rendering, resolving

    resolution = resolving.resolve_buildable(tools, requests[:1], options.chosen(constraints))
    locked = locking.require_lock(tools, resolution.environment.name)
    rendered = rendering.render_environment(tools, locked.lock)
    aliases = options.aliases(requests, constraints)
    record, _ = building.build_environment(tools, locked, rendered.texts(), aliases=aliases, no_cache=no_cache, builder=builder)
    return resolution.environment.name, record


def _document(name: str, record: BuildRecord) -> dict[str, Any]:
    from envbuild import codec

    return {"schema": 1, "name": name, **codec.encode(record)}
