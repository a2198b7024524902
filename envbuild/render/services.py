"""The scripts that start the services of a user's image. The scripts become part of the image's rendering, unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.errors import InvalidInputError
from envbuild.model.lock import Lock

START = "envbuild-start"


def scripts(lock: Lock, templates: Mapping[str, str]) -> dict[str, str]:
    """A script for each service, and the script that starts services; nothing if the image has no services."""
    custom = lock.environment.custom
    if custom is None or not custom.services:
        return {}
    found = {f"services/{service.name}": _script(service.name, templates) for service in custom.services}
    return {START: _script(START, templates), **found}


def _script(name: str, templates: Mapping[str, str]) -> str:
    try:
        return templates[f"services/{name}.sh"]
    except KeyError:
        raise InvalidInputError(
            f"No script starts the service {name!r}.",
            code="unknown-service",
            hint=f"Add images/services/{name}.sh, or leave the service out.",
        ) from None
