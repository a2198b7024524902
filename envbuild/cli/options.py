"""Options that several verbs share, spelt once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from envbuild.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])

PROGRESS = ("auto", "plain", "rich", "none")


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a common option in the session; an option left out changes nothing said before the verb."""
    session = ctx.ensure_object(Session)
    if param.name is None or value in (None, False, 0):
        return
    setattr(session, param.name, value)


def common(function: F) -> F:
    """``--json -v -q --progress --root``: kept in the session, never passed to the verb's function."""
    for option in (
        click.option(
            "--root",
            metavar="FOLDER",
            help="Where matrix.yaml and images/ are.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
        click.option(
            "--progress",
            type=click.Choice(PROGRESS),
            help="How to show progress (auto: rich on a terminal, else plain lines).",
            callback=_note,
            expose_value=False,
        ),
        click.option(
            "-q", "--quiet", is_flag=True, help="Results and errors only.", callback=_note, expose_value=False, is_eager=True
        ),
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="More: the output of builds, tracebacks of bugs.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
        click.option(
            "--json",
            is_flag=True,
            help="One JSON document on standard output.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
    ):
        function = option(function)
    return function


def constraints(function: F) -> F:
    """``--driver --gpu --python --os --base``: what a request leaves open, said apart from its name."""
    for option in (
        click.option("--base", metavar="PROVIDER|IMAGE", help="Insist on a base provider, or on a base image."),
        click.option("--os", "system", metavar="NAME", help="Insist on an operating system, e.g. debian12."),
        click.option("--python", metavar="VERSION", help="Insist on a Python, e.g. 3.11."),
        click.option("--gpu", metavar="NAME|sm_XX", help="The GPU it must run on, e.g. 'GTX 1080 Ti' or sm_61."),
        click.option("--driver", metavar="VERSION", help="The NVIDIA driver it must run on, e.g. 384.130."),
    ):
        function = option(function)
    return function
