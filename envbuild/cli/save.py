"""``envbuild save NAME --to PLACE``: write a built image to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.compose.outputs.compression import Compression


@click.command("save")
@options.naming()
@click.option(
    "--to", "place", required=True, metavar="PLACE", help="Where to write the image: oci:FOLDER[:NAME] or docker-archive:FILE."
)
@options.compression
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, place: str, compression: Compression | None, **constraints: str | None) -> int:
    """Write the image of NAME that was built on this machine to PLACE.

    The PLACE oci:FOLDER is an OCI image layout, which skopeo, Podman and Apptainer read. The PLACE docker-archive:FILE is one
    file, which `docker load` reads.
    """
    from envbuild.pipeline import resolving, saving

    target = saving.parse_target(place)
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news)
        environment = resolving.resolve_request(tools, [name], options.chosen(constraints)).environment
        image = saving.save(tools, environment.name, target, compression)
    session.document({"schema": 1, "name": environment.name, "image": image, "place": place})
    session.out(f"{environment.name} is saved in {target.path}")
    return 0
