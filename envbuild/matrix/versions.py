"""Compare versions, and check conditions on them such as ``>=3.7,<3.10``.

CUDA, drivers, Python, glibc, capabilities, cuDNN and NCCL have plain dotted numbers; framework versions follow PEP 440.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.version import Version

NUMBERS = r"\d{1,9}(\.\d{1,9}){0,5}"
MINOR = r"\d{1,3}\.\d{1,3}"  # the form of a CUDA version, a Python version and a compute capability
BRANCH = r"\d{1,4}"  # the form of a driver branch
CUDA_OR_MAJOR = r"\d{1,3}(\.\d{1,3})?"  # only the major version if one build of a library serves all minor versions


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version without zeros at the end, so that 9 equals 9.0: ``"9.2.0"`` becomes ``(9, 2)``."""
    parts = [int(part) for part in version.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def newest_first(version: str) -> tuple[int, ...]:
    """Return a sort key that puts newer versions first. All keys have the same length, because otherwise 11.0 would come before
    11.2."""
    parts = numbers(version)
    return tuple(-part for part in (*parts, *[0] * (6 - len(parts))))


def has_prefix(version: str, prefix: str) -> bool:
    """Whether ``version`` begins with ``prefix``. The prefix 9 matches 9.0 and 9.2, but not 90. An empty prefix matches every
    version."""
    return not prefix or version == prefix or version.startswith(prefix + ".")


def serves(cuda: str, entry: str) -> bool:
    """Whether a library built for ``entry`` (9.0, or 11 for every 11.x) works with ``cuda``."""
    return has_prefix(cuda, entry)


def within(version: str, clauses: str) -> bool:
    """Whether a version of dotted numbers satisfies clauses such as ``>=3.7,<3.10``. ``==`` and ``!=`` compare prefixes."""
    return _satisfies(version, clauses, lambda text: numbers(text.removesuffix(".*")))


def version_matches(version: str, clauses: str) -> bool:
    """Whether a framework version (PEP 440) satisfies clauses; ``==`` and ``!=`` compare prefixes, as everywhere in a
    request."""
    return _satisfies(version, clauses, _pep440)


def _pep440(text: str) -> Version:
    from packaging.version import Version

    return Version(text)


def _satisfies(version: str, clauses: str, number: Callable[[str], Any]) -> bool:
    return all(_clause_holds(version, clause.strip(), number) for clause in clauses.split(",") if clause.strip())


def _clause_holds(version: str, clause: str, number: Callable[[str], Any]) -> bool:
    """Whether a version satisfies one clause. The function ``number`` makes versions comparable for ``<`` and ``>``."""
    bound = clause.lstrip("=!<>~")
    relation, bound = clause.removesuffix(bound), bound.strip()
    prefix = bound.removesuffix(".*")
    if relation == "===":
        return version == bound
    if relation in ("==", "="):
        return has_prefix(version, prefix)
    if relation == "!=":
        return not has_prefix(version, prefix)
    ours, theirs = number(version), number(bound)
    if relation == "~=":
        return bool(ours >= theirs) and has_prefix(version, prefix.rpartition(".")[0])
    compare = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}[relation]
    return bool(compare(ours, theirs))


SPECIFIER = rf"\s*(==|=|!=|~=|>=|<=|>|<)\s*{NUMBERS}(\.\*)?\s*(,\s*(==|=|!=|~=|>=|<=|>|<)\s*{NUMBERS}(\.\*)?\s*)*"


def version_parts(text: str) -> list[int]:
    """The numbers of a framework version."""
    return [int(part) for part in re.findall(r"\d+", text)]


def around(clauses: str) -> list[str]:
    """Return versions to try: the versions in ``clauses``, their successors, and the lowest version. If any version satisfies
    ``clauses``, one of the returned versions does."""
    from packaging.version import Version

    found = ["0"]
    for clause in filter(None, clauses.split(",")):
        named = clause.lstrip("=!<>~").removesuffix(".*")
        *line, last = Version(named).release
        release = ".".join(map(str, (*line, last)))
        found += [named, f"{release}.0.0.0.1", ".".join(map(str, (*line, last + 1)))]
    return found
