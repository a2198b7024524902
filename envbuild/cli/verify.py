"""``envbuild verify NAME…``: compare an image with its lock."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from envbuild.cli import batch, image_check, options
from envbuild.cli.session import Session


@click.command("verify")
@batch.options
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], **constraints: Any) -> int:
    """Compare the image of NAME with its lock, and list every difference. If they differ, the exit code is 8.

    The command also imports the packages that the request names, and checks that the installed packages meet each other's
    requirements.
    """
    from envbuild.pipeline import image_checks

    several = batch.asked(names, constraints)
    if several is not None:
        return batch.run(session, several, constraints)
    check = partial(image_checks.verify_image, replay=False)
    name, image, verified = image_check.run(session, names[0], constraints, check)
    session.document({"schema": 1, "name": name, "image": image, "report": verified.report})
    session.out(f"{name}: the image matches its lock")
    for note in verified.report["notes"]:
        session.out(f"  note: {note}")
    return 0
