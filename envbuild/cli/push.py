"""``envbuild push NAME… --to HOST/REPOSITORY``: push built images to a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.compose.outputs.compression import Compression


@click.command("push")
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@options.destination
@options.compression
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], repository: str, compression: Compression | None) -> int:
    """Push the images of each NAME that were built on this machine to a registry. Layers that the registry has are not
    sent.

    envbuild uses the credentials of `docker login`. The image gets the same tags as on this machine. The tag that ends in the
    digest of all inputs is never moved to another image.
    """
    from envbuild.pipeline import building, pushing, resolving

    told: list[dict[str, Any]] = []
    with display(session) as shown:
        for name in names:
            tools = session.tools([name], on_progress=shown.news)
            environment = resolving.resolve_request(tools, [name], options.chosen({})).environment
            record = building.last_built(tools, environment.name)
            pushed, tags = pushing.push(tools, record, repository, compression)
            told.append({
                "name": environment.name, "digest": pushed.digest, "tags": list(tags), "sent_bytes": pushed.sent,
                "layers": pushed.layers, "present": pushed.present, "mounted": pushed.mounted,
            })  # fmt: skip
            shown.line(
                f"{repository}:{tags[0]}  {wording.size(pushed.sent)} sent, {pushed.present + pushed.mounted} of "
                f"{counted(pushed.layers, 'layer')} already there"
            )
            shown.line(f"  digest  {pushed.digest}")
            shown.line(f"  tags    {', '.join(tags)}")
    session.document({"schema": 1, "repository": repository, "images": told})
    return 0
