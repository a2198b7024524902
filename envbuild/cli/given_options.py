"""Finds the options that the user wrote, for commands in which one option excludes most other options."""

from __future__ import annotations

from collections.abc import Iterator

import click


def others(*expected: str) -> list[str]:
    """Return the options and arguments on the current command line, in the user's spelling, except the ``expected`` ones.

    ``expected`` are names of parameters. Options that every command has, such as ``--json``, are left out. Values from
    environment variables are left out, too.
    """
    return [words for name, words in _given() if name not in expected]


def among(*names: str) -> list[str]:
    """Return those of the parameters ``names`` that are on the current command line, in the user's spelling."""
    return [words for name, words in _given() if name in names]


def _given() -> Iterator[tuple[str, str]]:
    context = click.get_current_context()
    for param in context.command.params:
        if param.name is None or not param.expose_value:
            continue
        if context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            yield param.name, max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
