"""``envbuild verify NAME…``: compare an image with its lock."""

from __future__ import annotations

from typing import Any

import click

from envbuild.cli import batch, options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session


@click.command("verify")
@batch.options
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], **constraints: Any) -> int:
    """Compare the image of NAME with its lock. Exit code 8: they differ; every difference is listed.

    The check also imports the packages that the request names, and checks the requirements between installed packages.
    """
    from envbuild.pipeline import image_checks

    several = batch.asked(names, constraints)
    if several is not None:
        return batch.run(session, several, constraints)
    name = names[0]
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news)
        locked, image = image_checks.require_built(tools, name, options.chosen(constraints))
        verified = image_checks.verify_image(tools, locked.lock, locked.digest, image, replay=False)
    name = locked.lock.environment.name
    session.document({"schema": 1, "name": name, "image": image, "report": verified.report})
    session.out(f"{name}: the image matches its lock")
    for note in verified.report["notes"]:
        session.out(f"  note: {note}")
    return 0
