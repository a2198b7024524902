"""Temporary names of images. The builder requires a name, but an image gets its final names only after it is verified."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

REPOSITORY = "envbuild/unverified"


def name_for(home: Path, subject: str) -> str:
    """Return the name for the image of ``subject``. The caller removes it, and names that it makes by adding words to it.

    Processes with other cache folders (``home``) may build the same image on the same engine, so their names differ. Processes
    with the same cache folder wait for each other. After a process was killed, the next one uses the same name and removes it.
    """
    owner = f"{socket.gethostname()} {home.resolve()} {subject}"
    return f"{REPOSITORY}:{hashlib.sha256(owner.encode()).hexdigest()[:32]}"
