"""The options ``--from`` and ``--key``: where a command gets a published image, and which key must have signed the image."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from envbuild.cli.options import KEY, REGISTRY, F
from envbuild.errors import UsageError


def image_source(function: F) -> F:
    """Add ``--from``, a repository that may have the image, and ``--key``, the public key that checks its signature."""
    for option in (
        click.option(
            "--key",
            "key_file",
            envvar=KEY,
            type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
            metavar="FILE",
            help=f"A public key; an image from the registry is used only if its signature fits (default: the variable {KEY}).",
        ),
        click.option(
            "--from",
            "repository",
            envvar=REGISTRY,
            default="",
            metavar="HOST/REPOSITORY",
            help=f"The repository of a registry in which to look for the image (default: the variable {REGISTRY}).",
        ),
    ):
        function = option(function)
    return function


def require_registry_for_key(repository: str) -> None:
    """Raise :class:`UsageError` if ``--key`` is on the command line without ``--from``: no signature would be checked.

    A key in an environment variable is accepted without ``--from``. It only says which key to use if a registry is named.
    """
    given = click.get_current_context().get_parameter_source("key_file")
    if given is ParameterSource.COMMANDLINE and not repository:
        raise UsageError("--key needs --from.", hint=f"Name the registry with --from HOST/REPOSITORY or {REGISTRY}.")
