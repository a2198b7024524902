"""``envbuild smoke NAME…``: run the smoke test in the built images, and print its verdict."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from envbuild.cli import batch, image_check, options, smoke_result
from envbuild.cli.session import Session


@click.command("smoke")
@batch.options
@options.judging
@options.measuring
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], **values: Any) -> int:
    """Run the smoke test in the image of NAME on one device and on several, even if it ran before. `make` reuses the
    verdict.

    Exit codes: 0 if the test passed, 9 if it failed, 10 if it was inconclusive (no GPU, or too few devices), 124 if --timeout
    stopped it.
    """
    from envbuild.pipeline import image_checks

    several = batch.asked(names, values)
    constraints, judging = options.split(values)
    smoke_options = options.smoke_options(judging)
    if several is not None:
        return batch.run(session, several, constraints)
    check = partial(image_checks.smoke_image, options=smoke_options, replay=False)
    name, image, smoked = image_check.run(session, names[0], constraints, check)
    return smoke_result.show(session, {"schema": 1, "name": name, "image": image}, smoked)
