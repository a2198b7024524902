"""Compare the measurements of a wheel with the matrix rows for this wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.matrix.pairs import pairs_with
from envbuild.matrix.types import Added, LibraryNeed, Matrix, Release, Variant
from envbuild.matrix.versions import has_prefix, numbers

# The name of a library for one CUDA version, such as libwidget_cuda118.so. `cuda12` names only a major version.
_FOR_CUDA = re.compile(r"[_-]cu(?:da)?([89]|\d\d)(\d)(?!\d)")


class Compared(NamedTuple):
    """A fact in a row of the matrix, compared with the measurement.

    ``verdict`` is ``agrees``, ``differs``, ``silent`` if the row lacks the fact, or ``unclear`` if the file does not show which
    GPU code is the framework's own.
    """

    framework: str
    version: str
    variant: str
    field: str
    verdict: str
    row: str
    measured: str
    at: str


def compare(matrix: Matrix, measured: Mapping[str, Any], stored: Sequence[Mapping[str, Any]] = ()) -> list[Compared]:
    """Compare a measured wheel with the rows of its release. ``measured`` is a summary (:func:`answer_json.summary`).

    A row states the lowest glibc on which a wheel of the release runs. If this wheel needs a newer glibc, but another wheel in
    ``stored`` does not, the two agree: installers choose this wheel only on newer systems.
    """
    found = []
    for name, release, variant in rows(matrix, measured["project"], measured["version"]):
        added = _added(release, variant, measured["project"])
        for field, said, seen, agrees in _of_add_on(variant, added, measured) if added else _facts(variant, measured):
            is_of_gpus = field in ("native", "ptx")
            unclear = is_of_gpus and (_is_unclear_for(variant, measured) if added else _is_unclear(measured["gpu_code"]))
            by_other = field == "glibc" and said and not agrees and any(_is_for_older(one, measured, said) for one in stored)
            row = f"{said} by another wheel" if by_other else said
            verdict = "silent" if not said else "unclear" if unclear else "agrees" if agrees or by_other else "differs"
            known = Compared(name, release.version, variant.name, field, verdict, row, seen, variant.origin.at)
            found.append(known)
    return found + _compare_processor(matrix, measured)


def _compare_processor(matrix: Matrix, measured: Mapping[str, Any]) -> list[Compared]:
    """Compare the instruction sets that a wheel needs with each row for this wheel. Rows name only instruction sets of the AVX
    family. If the wheel needs none of this family as soon as it is loaded, nothing is compared: functions that are called later
    may still need AVX."""
    seen = [each for each in measured.get("instruction_sets", ()) if each.startswith("avx")]  # older entries lack it
    return [
        Compared(
            name,
            release.version,
            variant.name,
            "cpu_features",
            "silent" if not variant.cpu_features else "agrees" if set(seen) <= set(variant.cpu_features) else "differs",
            " ".join(variant.cpu_features),
            " ".join(seen),
            variant.origin.at,
        )
        for name, release, variant in (rows(matrix, measured["project"], measured["version"]) if seen else ())
    ]


def compared_with_nothing(matrix: Matrix, measured: Mapping[str, Any], found: Iterable[Compared]) -> str:
    """The reason why no fact of the file could be judged; empty if at least one fact was judged."""
    verdicts = {each.verdict for each in found}
    if verdicts & {"agrees", "differs"}:
        return ""
    if "unclear" in verdicts:
        return (
            "it is unclear which GPU code belongs to the framework itself, and its rows state none of the other measured facts"
        )
    if verdicts:
        return "the rows for this file state none of the measured facts"
    if not measured["project"]:
        return "the file is not a wheel, and the matrix has rows only for wheels"
    if not any(rows(matrix, measured["project"], measured["version"])):
        return f"no row of the matrix is for {measured['project']} {measured['version']}"
    return "the rows for this release are about files of other packages"


def rows(matrix: Matrix, project: str, version: str) -> Iterator[tuple[str, Release, Variant]]:
    """The builds that install this version of ``project`` from the default index, or that get their GPU code from
    ``project``. The builds of an add-on have the same wheel, even if their base framework comes from another index, unless that
    index has its own build of the add-on for each of them (``same_local_version``)."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return
    name = canonicalize_name(project)
    for framework in matrix.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                if not variant.pins("") or name not in _packages(variant):
                    continue
                added = _added(release, variant, project)
                if variant.index != "default" and (added is None or added.same_local_version):
                    continue
                if Version(release.version + variant.local_version) == wanted:
                    yield framework.name, release, variant


def _packages(variant: Variant) -> set[str]:
    """The package of a build, and the plugins that contain its GPU code. For example, ``widget[cuda12]`` installs
    ``widget-cuda12-plugin``."""
    project, extras = _requirement(variant)
    return {canonicalize_name(variant.package), *(canonicalize_name(f"{project}-{each}-plugin") for each in extras)}


def _requirement(variant: Variant) -> tuple[str, set[str]]:
    try:
        parsed = Requirement(variant.requirement)
    except InvalidRequirement:
        return variant.package, set()
    return parsed.name, parsed.extras


def _has_code_elsewhere(variant: Variant, measured: Mapping[str, Any]) -> bool:
    """Whether the GPU code of a build is in other packages: in those of its base framework, or in those that its extras
    name."""
    is_pure = all(tag.endswith("-any") for tag in measured["tags"])
    return bool(variant.upon) or (is_pure and bool(_requirement(variant)[1]))


def _facts(variant: Variant, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """For each compared field: its name, the value in the row, the measured value, and whether the two agree."""
    code = measured["gpu_code"]
    if code is not None and variant.cuda_libraries == "none":
        if code["lists"]:
            yield "gpu code", "none", _listed(code["native"], code["ptx"]), False
    elif code is None:
        if not _has_code_elsewhere(variant, measured):
            for field, said in (("native", variant.sass), ("ptx", variant.ptx)):
                if said:
                    yield field, " ".join(said), "none", False
    else:
        silent = not (variant.sass or variant.ptx)
        for field, said, seen in (("native", variant.sass, code["native"]), ("ptx", variant.ptx, code["ptx"])):
            text = "" if silent else " ".join(said) or "none"
            yield (
                field,
                text,
                " ".join(seen) or ("none" if code["lists"] else "not known"),
                set(as_in_rows(seen, field)) == set(as_in_rows(said, field)),
            )
    if measured["glibc"] and not variant.systems:  # a row that lists systems states no glibc
        agrees = bool(variant.glibc) and numbers(measured["glibc"]) <= numbers(variant.glibc)
        yield "glibc", variant.glibc, measured["glibc"], agrees
    yield from _libraries(variant, measured)


def _is_for_older(other: Mapping[str, Any], measured: Mapping[str, Any], glibc: str) -> bool:
    """Whether ``other`` is the wheel of the same release, Python and ABI for systems with ``glibc``."""

    def kind(wheel: Mapping[str, Any]) -> tuple[str, str, set[str]]:
        return wheel["project"], wheel["version"], {tag.rpartition("-")[0] for tag in wheel["tags"]}

    return kind(other) == kind(measured) and bool(other["glibc"]) and numbers(other["glibc"]) <= numbers(glibc)


def _added(release: Release, variant: Variant, project: str) -> Added | None:
    """If ``project`` is the package of an add-on, return what this add-on adds to a build of its base framework, else None."""
    pairs = pairs_with(release, variant.upon[0][0]) if variant.upon else None
    own = pairs.added if pairs is not None and pairs.added.package else None
    return own if own is not None and canonicalize_name(own.package) == canonicalize_name(project) else None


def _of_add_on(variant: Variant, added: Added, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """Compare the file of an add-on, as :func:`_facts` compares other files.

    The build promises to support the GPUs of the base framework, except the GPUs that the add-on's row excludes. For GPUs in
    the row's ``only_ptx``, the file must have PTX but no native code. For all other promised GPUs, the file must have native
    code.

    The file may contain a library for each of several CUDA versions. Then only the libraries for the build's CUDA count, and
    this CUDA must be one of the file's CUDA versions.

    If the file needs a newer glibc than the build has, and the add-on's row states no glibc, the verdict is ``silent``: the
    glibc in the base framework's row says nothing about the add-on.
    """
    code = measured["gpu_code"]
    if code is not None and code["lists"] and variant.cuda:
        lists = [each for each in code["lists"] if not each["of_cuda"]]
        lists = lists if (libraries := _libraries_for(variant.cuda, code)) is None else libraries
        for field, said in (("native", variant.sass), ("ptx", variant.only_ptx)):
            others = [(each, way) for each in said if (way := _way(lists, each)) != field]
            seen = ", ".join(f"{way} for {each}" for each, way in others) or "all of these"
            if said:
                yield field, " ".join(said), seen, not others
    if measured["glibc"]:
        agrees = bool(variant.glibc) and numbers(measured["glibc"]) <= numbers(variant.glibc)
        yield "glibc", variant.glibc if agrees or added.glibc else "", measured["glibc"], agrees
    if measured["cuda"] and variant.cuda:
        yield "cuda", variant.cuda, " ".join(measured["cuda"]), any(has_prefix(variant.cuda, each) for each in measured["cuda"])
    yield from _libraries(variant, {**measured, "cuda": []})


def _libraries_for(cuda: str, code: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Return the libraries that are for this CUDA version, by their names, such as ``libwidget_cuda118.so``. Return None if the
    names do not tell several CUDA versions apart."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in code.get("libraries", ()):
        if match := _FOR_CUDA.search(PurePosixPath(each["path"]).name):
            found.setdefault(f"{match[1]}.{match[2]}", []).append(each)
    return found.get(".".join(cuda.split(".")[:2]), []) if len(found) > 1 else None


def _is_unclear(code: Mapping[str, Any] | None) -> bool:
    return code is not None and code["certainty"] == "unclear"


def _is_unclear_for(variant: Variant, measured: Mapping[str, Any]) -> bool:
    """Whether the measurement of an add-on does not show which GPU code belongs to this build."""
    code = measured["gpu_code"]
    if code is None or "libraries" not in code:  # in older entries, the single libraries were not measured
        return code is not None and len(code["lists"]) > 1 and len(measured["cuda"]) > 1
    return any(_is_unclear(each) for each in _libraries_for(variant.cuda, code) or ())


def _way(lists: Sequence[Mapping[str, Any]], capability: str) -> str:
    """How a GPU with this ``capability`` runs the best of these lists of GPU code: ``native``, ``ptx``, or ``none``. Code for
    exactly this GPU, such as ``9.0a``, also counts as ``native``."""
    major, minor = _capability(capability)
    native = [(_capability(each), each[-1] == "a") for code in lists for each in code["native"]]
    if any((m, n) == (major, minor) or (not is_exact and m == major and n <= minor) for (m, n), is_exact in native):
        return "native"
    ptx = any(each[-1] not in "af" and _capability(each) <= (major, minor) for code in lists for each in code["ptx"])
    return "ptx" if ptx else "none"


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.rstrip("af").partition(".")
    return int(major), int(minor)


def _libraries(variant: Variant, measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    for version in measured["cuda"]:
        yield "cuda", variant.cuda, version, has_prefix(variant.cuda, version)
    for version in measured["cudnn"]:
        said = _cudnn(variant)
        yield "cudnn", said, version, _begin_alike(said, version, 1)
    for each in measured.get("built_with", ()):  # older entries lack it
        if each["library"] != "nccl":
            said = variant.cuda if each["library"] == "cuda" else _cudnn(variant)
            most = 2 if each["library"] == "cuda" else 1  # later releases of a major version of cuDNN can be used
            yield each["library"], said, f"{each['version']} ({each['file']})", _begin_alike(said, each["version"], most)
    need = variant.nccl
    for each in measured["nccl"]:
        version = each["version"]
        yield "nccl", _range(need), version, need is not None and _within(need, version)


def _cudnn(variant: Variant) -> str:
    return variant.cudnn.prefer or variant.cudnn.minimum if variant.cudnn else ""


def _begin_alike(said: str, seen: str, most: int) -> bool:
    """Whether the first ``most`` numbers of two versions are equal, as far as both versions have them."""
    return bool(said) and all(a == b for a, b in zip(said.split(".")[:most], seen.split(".")[:most], strict=False))


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


def as_in_rows(capabilities: Iterable[str], field: str) -> list[str]:
    """Return the capabilities in the form that the rows of the matrix use, in ascending order. ``field`` is ``native`` or
    ``ptx``.

    Code for one exact GPU (9.0a) is listed only if there is none for the plain capability (9.0), because other GPUs cannot use
    it. Native code for a family (10.0f) runs on the family's first GPU, so it is listed as code for this GPU (10.0). PTX for a
    family keeps its name, because later GPUs outside the family cannot use it.
    """
    listed = {each.rstrip("f") if field == "native" else each for each in capabilities}
    plain = [each for each in listed if each.rstrip("af") == each or each.rstrip("af") not in listed]
    return sorted(plain, key=lambda each: (numbers(each.rstrip("af")), each))


def _listed(native: Iterable[str], ptx: Iterable[str]) -> str:
    return " ".join([*native, *(f"{each}+PTX" for each in ptx)])
