"""Environment → lock (the networked step), lock ↔ JSON, and whether a lock still holds."""

from typing import TYPE_CHECKING

from envbuild.lazily import exported

if TYPE_CHECKING:
    from envbuild.lock.checking import check
    from envbuild.lock.making import complete, make
    from envbuild.lock.store import digest, dumps, read, write

__all__ = ["check", "complete", "digest", "dumps", "make", "read", "write"]

__getattr__ = exported(__name__, checking="check", making="complete make", store="digest dumps read write")
