"""Environment → lock (the networked step), lock ↔ JSON, whether a lock still holds, and how two differ."""

from typing import TYPE_CHECKING

from envbuild.lazily import exported

if TYPE_CHECKING:
    from envbuild.lock.blame import of_lock
    from envbuild.lock.checking import check, contradictions
    from envbuild.lock.comparison import Change, Difference, compare
    from envbuild.lock.expected import gap_of, missing_tools
    from envbuild.lock.making import complete, make
    from envbuild.lock.other_cuda import other_cuda
    from envbuild.lock.store import digest, dumps, parse, read, write
    from envbuild.lock.upstream import HARMLESS, Finding, ask

__all__ = [
    "HARMLESS",
    "Change",
    "Difference",
    "Finding",
    "ask",
    "check",
    "compare",
    "complete",
    "contradictions",
    "digest",
    "dumps",
    "gap_of",
    "make",
    "missing_tools",
    "of_lock",
    "other_cuda",
    "parse",
    "read",
    "write",
]

__getattr__ = exported(
    __name__,
    blame="of_lock",
    checking="check contradictions",
    comparison="Change Difference compare",
    expected="gap_of missing_tools",
    making="complete make",
    other_cuda="other_cuda",
    store="digest dumps parse read write",
    upstream="HARMLESS Finding ask",
)
