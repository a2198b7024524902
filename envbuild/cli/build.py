"""``envbuild build NAME``: the image of a locked environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.pipeline.building import Builder


@click.command("build")
@options.naming()
@click.option("--no-cache", is_flag=True, help="Build every layer again, without the engine's cache.")
@options.builder
@options.engine
@options.offline
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, no_cache: bool, builder: Builder, **values: Any) -> int:
    """Build the image of NAME from its lock and verify it. An image with unchanged inputs is not built again.

    The image gets its tags only after it was verified.
    """
    from envbuild import codec
    from envbuild.pipeline import building, locking, rendering, resolving

    tools_from = {key: values.pop(key) for key in ("start_engine", "offline")}
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        resolution = resolving.resolve_buildable(tools, [name], options.chosen(values))
        locked = locking.require_lock(tools, resolution.environment.name)
        rendered = rendering.render_environment(tools, locked.lock)
        aliases = options.alias(name, values)
        record, _ = building.build_environment(
            tools, locked, rendered.texts(), aliases=aliases, no_cache=no_cache, builder=builder
        )
    session.document({"schema": 1, "name": resolution.environment.name, **codec.encode(record)})
    session.out(f"{record.tags[0]}{' (kept)' if record.kept else f' in {wording.seconds(record.seconds)}'}")
    session.out(f"  image  {record.image}")
    session.out(f"  tags   {', '.join(record.tags)}")
    return 0
