"""Removes the containers of a killed process: the engine would keep them running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from envbuild import guard

# A container that was being made when the process died appears a moment later.
_LOOKS_S = (0.0, 1.0, 4.0)
_PROGRAM = "import os, sys; from envbuild.engine import container_cleanup; container_cleanup.clear(sys.argv[1], os.environ)"
_watched: set[tuple[int, str]] = set()


def watch(endpoint: str) -> None:
    """Have the guard clear the engine at ``endpoint`` once this process is killed; one entry however often it is asked for."""
    if (os.getpid(), endpoint) not in _watched:
        _watched.add((os.getpid(), endpoint))
        # -P: nothing in the working folder may take the place of this package
        guard.run_if_killed([sys.executable, "-P", "-c", _PROGRAM, endpoint])


def clear(endpoint: str, environ: Mapping[str, str]) -> None:
    """Remove the containers on ``endpoint`` whose process is gone; looks more than once."""
    from envbuild.engine import choice, containers

    client = choice.client(endpoint, environ)
    for pause in _LOOKS_S:
        time.sleep(pause)
        containers.sweep(client)
