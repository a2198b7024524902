"""Compare a measured wheel with the rows of the matrix for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.matrix.types import LibraryNeed, Matrix, Release, Variant
from envbuild.matrix.versions import has_prefix, numbers


class Compared(NamedTuple):
    """A fact of a row and what was measured. ``verdict``: ``agrees``, ``differs``, or ``silent`` if the row lacks it."""

    framework: str
    version: str
    variant: str
    field: str
    verdict: str
    row: str
    measured: str
    at: str


def compare(matrix: Matrix, measured: Mapping[str, Any]) -> list[Compared]:
    """Compare the summary of a wheel (:func:`envbuild.measure.answer.summary`) with each row for its project and version."""
    found = []
    for name, release, variant in rows(matrix, measured["project"], measured["version"]):
        for field, said, seen, agrees in _facts(variant, measured):
            verdict = "silent" if not said else "agrees" if agrees else "differs"
            known = Compared(name, release.version, variant.name, field, verdict, said, seen, variant.origin.at)
            found.append(known)
    return found


def rows(matrix: Matrix, project: str, version: str) -> Iterator[tuple[str, Release, Variant]]:
    """The builds that come from this release of ``project`` on the host's own index."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return
    name = canonicalize_name(project)
    for framework in matrix.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                if variant.index != "default" or not variant.pins("") or canonicalize_name(variant.package) != name:
                    continue
                if Version(release.version + variant.local_version) == wanted:
                    yield framework.name, release, variant


def _facts(variant: Variant, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """Each field, what the row says, what was measured, and whether these agree."""
    code = measured["gpu_code"]
    if code is not None and variant.cuda_libraries == "none":
        yield "gpu code", "none", _listed(code["native"], code["ptx"]), False
    elif code is not None:
        silent = not (variant.sass or variant.ptx)
        for field, said, seen in (("native", variant.sass, code["native"]), ("ptx", variant.ptx, code["ptx"])):
            text = "" if silent else " ".join(said) or "none"
            yield field, text, " ".join(seen) or "none", _plain(seen) == _plain(said)
    if measured["glibc"] and not variant.systems:  # with a list of systems, the row names no glibc
        agrees = bool(variant.glibc) and numbers(measured["glibc"]) <= numbers(variant.glibc)
        yield "glibc", variant.glibc, measured["glibc"], agrees
    yield from _libraries(variant, measured)


def _libraries(variant: Variant, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    for version in measured["cuda"]:
        yield "cuda", variant.cuda, version, has_prefix(variant.cuda, version)
    for version in measured["cudnn"]:
        said = variant.cudnn.prefer or variant.cudnn.minimum if variant.cudnn else ""
        yield "cudnn", said, version, bool(said) and numbers(said)[0] == numbers(version)[0]
    need = variant.nccl
    for each in measured["nccl"]:
        version = each["version"]
        yield "nccl", _range(need), version, need is not None and _within(need, version)


def _range(need: LibraryNeed | None) -> str:
    if need is None:
        return ""
    if need.exact or not need.minimum:
        return need.prefer or need.minimum
    return f">={need.minimum}" + (f",<{need.below}" if need.below else "")


def _within(need: LibraryNeed, version: str) -> bool:
    if need.exact or not need.minimum:
        return has_prefix(version, need.prefer or need.minimum)
    return numbers(need.minimum) <= numbers(version) and not (need.below and numbers(version) >= numbers(need.below))


def _plain(capabilities: Iterable[str]) -> set[str]:
    """The capabilities without those for one exact GPU (9.0a) beside the common one (9.0): rows name the common one."""
    listed = set(capabilities)
    return {each for each in listed if each.rstrip("af") == each or each.rstrip("af") not in listed}


def _listed(native: Iterable[str], ptx: Iterable[str]) -> str:
    return " ".join([*native, *(f"{each}+PTX" for each in ptx)])
