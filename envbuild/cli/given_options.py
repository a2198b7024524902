"""Which options the user wrote, for commands of which one option excludes most of the others."""

from __future__ import annotations

from collections.abc import Iterator

import click


def others(*expected: str) -> list[str]:
    """The options and arguments of the current command line except the ``expected`` ones, as the user writes them.

    ``expected`` are names of parameters. The options that every command has, such as ``--json``, are left out, and so are
    values from environment variables.
    """
    return [words for name, words in _given() if name not in expected]


def among(*names: str) -> list[str]:
    """Those of the parameters ``names`` that are on the current command line, as the user writes them."""
    return [words for name, words in _given() if name in names]


def _given() -> Iterator[tuple[str, str]]:
    context = click.get_current_context()
    for param in context.command.params:
        if param.name is None or not param.expose_value:
            continue
        if context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            yield param.name, max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
