"""``envbuild init [FOLDER]``: write a first envbuild.yaml."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from envbuild.cli import options
from envbuild.cli.session import Session


@click.command("init")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option(
    "--framework",
    "frameworks",
    multiple=True,
    metavar="REQUEST",
    help="The framework, written as a request for `envbuild resolve`.",
)
@click.option("--name", default="", help="The name of the environment (default: the name of the folder).")
@click.option("--python", default="", metavar="VERSION", help="Use this Python, e.g. 3.11.")
@click.option("--pip", multiple=True, metavar="REQUIREMENT", help="A Python package to install with pip; may be repeated.")
@click.option("--apt", multiple=True, metavar="PACKAGE", help="A package of the operating system; may be repeated.")
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME",
    help="A service that the image can start, e.g. jupyter; may be repeated.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@options.common
@click.pass_obj
def command(session: Session, /, folder: Path, force: bool, **wishes: str | tuple[str, ...]) -> int:
    """Write a commented envbuild.yaml, the description of your own environment, into FOLDER or the current folder.

    The file is written only if the request resolves and its packages can be locked together. The command asks the package
    index for this. You can edit the file at any time. `envbuild make ./envbuild.yaml` builds it.
    """
    from envbuild.custom.writing import Wishes
    from envbuild.pipeline import new_recipe

    tools = session.tools()
    if not any(wishes.values()) and not session.json and sys.stdin.isatty() and sys.stderr.isatty():
        wishes["frameworks"] = _ask(new_recipe.first_choice(tools))
    started = new_recipe.start(tools, folder, Wishes(**wishes), force=force)  # type: ignore[arg-type]
    path = str(started.path) if started.path.is_absolute() else f"./{started.path}"
    session.out(f"{path} written; it describes {started.environment.name}")
    if started.unchecked:
        reason = started.unchecked.rstrip(".")
        session.err(f"warning: not checked whether the packages work together: {reason}. `envbuild lock {path}` checks it.")
    session.err(f"Edit it, then run: envbuild make {path}")
    session.document(
        {
            "schema": 1,
            "path": str(started.path),
            "environment": started.environment.name,
            "unchecked": started.unchecked,
        }
    )
    return 0


def _ask(default: str) -> tuple[str, ...]:
    answer = click.prompt("Which framework? A short name such as", default=default, err=True)
    return tuple(answer.split())
