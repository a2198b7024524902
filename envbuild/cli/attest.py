"""``envbuild attest NAME REPORT``: attach a smoke report to an image in a registry, as a signed statement."""

from __future__ import annotations

import os
from pathlib import Path

import click

from envbuild.cli import options
from envbuild.cli.session import Session


@click.command("attest")
@options.naming()
@click.argument("report", metavar="REPORT", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--to", "repository", required=True, metavar="HOST/REPOSITORY", help="The repository that has the image.")
@click.option(
    "--tag",
    default="",
    metavar="TAG",
    help="The tag or digest of the image, instead of the image with the inputs of this checkout.",
)
@options.signing
@options.common
@click.pass_obj
def command(session: Session, /, name: str, report: Path, *, repository: str, tag: str, key_file: Path) -> int:
    """Attach the smoke test's REPORT to the image of NAME in a registry, signed with your key.

    Without --tag, the image is the one that was made from the inputs of this checkout, as for `pull`. REPORT must come from a
    test of exactly this image. The test may have run on any machine, and may have passed or failed.
    Everyone who pulls the image can read the signed statement, and decides by its key whether to trust it. Statements that the
    image has already stay unchanged.
    """
    from envbuild.attest import keys
    from envbuild.pipeline import attesting, resolving

    key = keys.signing_key(key_file, os.environ.get(options.PASSWORD, ""))
    tools = session.tools([name])
    canonical = resolving.resolve_request(tools, [name], options.chosen({})).environment.name
    told = attesting.attest(tools, canonical, report, repository, tag, key)
    session.document({
        "schema": 1, "name": canonical, "repository": repository, "digest": told.digest, "status": told.status,
        "attached": told.is_new,
    })  # fmt: skip
    session.out(f"{repository}@{told.digest}")
    session.out(f"  statement  smoke test: {told.status}, {'attached' if told.is_new else 'already attached'}")
    return 0
