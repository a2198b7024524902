"""``envbuild completion SHELL``: print the script that completes envbuild's commands in a shell."""

from __future__ import annotations

import click

from envbuild.cli import options
from envbuild.cli.session import Session

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@options.common
@click.pass_obj
def command(session: Session, shell: str) -> int:
    """Print the completion script for SHELL. Load it with, for example: eval "$(envbuild completion bash)"."""
    from click.shell_completion import ShellComplete, get_completion_class

    from envbuild.cli.frame import app

    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Call the method of the base class, because click's method for bash starts bash to find its version.
    source = ShellComplete.source(kind(app, {}, "envbuild", "_ENVBUILD_COMPLETE"))
    session.document({"schema": 1, "shell": shell, "script": source})
    if not session.json:
        session.raw(source + "\n")
    return 0
