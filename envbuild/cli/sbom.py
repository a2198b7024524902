"""``envbuild sbom NAME``: write the contents of a lock as a bill of materials in CycloneDX."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.cli import options
from envbuild.cli.session import Session


@click.command("sbom")
@options.naming()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file (default: standard output)."
)
@click.option(
    "--image",
    "built",
    is_flag=True,
    help="Describe the image on this machine that was built from the lock, with its installed Debian packages.",
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, output: Path | None, built: bool, **constraints: str | None) -> int:
    """Print the bill of materials of NAME's lock as CycloneDX 1.6 in JSON. It lists every pinned file with its hash, and
    the packages without a pin.

    The image contains the same bill of materials as /opt/envbuild/sbom.cdx.json. With --image, the bill describes the image on
    this machine, with all installed Debian packages. Packages that the lock does not pin are marked.
    """
    from envbuild import files, sbom
    from envbuild.pipeline import image_checks, locking, resolving
    from envbuild.verify import installed

    tools = session.tools([name])
    locked = locking.require_lock(tools, resolving.resolve_request(tools, [name], options.chosen(constraints)).environment.name)
    of_image = None
    if built:
        image = image_checks.require_image(tools, locked.lock.environment.name)
        of_image = sbom.Built(image=image, packages=installed.packages(tools.engine, image))
    text = sbom.dumps(locked.lock, locked.digest, of_image)
    if output is None:
        session.raw(text)
        return 0
    files.write_atomic(output, text)
    session.out(str(output))
    session.document({"schema": 1, "name": locked.lock.environment.name, "path": str(output)})
    return 0
