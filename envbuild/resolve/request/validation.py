"""Turns a draft into a request, and refuses versions, CUDA, Python and systems that the matrix does not know."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Literal

from envbuild.errors import Alternative, UsageError
from envbuild.matrix.platform import CudaRow
from envbuild.matrix.similar_names import nearest_versions
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import around, newest_first, version_matches, version_parts, within
from envbuild.resolve.request import addon_names, names
from envbuild.resolve.request.bases import read_base
from envbuild.resolve.request.draft import Draft, FrameworkDraft
from envbuild.resolve.request.model import GpuWanted, Request, Wanted


def finish(matrix: Matrix, draft: Draft, *, hardware: tuple[str | None, list[str]], base: str | None) -> Request:
    """Make the request from a draft and the options."""
    draft.share_last()
    for part in ("cuda", "cudnn", "nccl", "python"):
        _check_consistent(draft, part, draft.get(part))
    doubts: list[str] = []
    said = addon_names.settle(matrix, draft)
    asked = [_wanted(matrix, draft, piece, doubts, said.get(piece.framework.name, "")) for piece in draft.pieces]
    cuda = _known_cuda(matrix, draft.get("cuda"), doubts)
    _check_python(matrix, draft)
    systems = names.find_systems(matrix, draft.get("system")) if draft.get("system") else ()
    if draft.get("system") and not systems:
        raise names.unknown_system(matrix, draft.get("system"))
    provider, image = read_base(draft, base, systems)
    driver, gpus, warnings = _hardware(matrix, *hardware)
    device: Any = _device(draft, bool(driver or gpus))
    if device == "cpu" and (driver or gpus):
        warnings = ["A CPU environment uses no GPU, so the requested driver and GPU were not checked."]
    return Request(
        text=draft.text,
        wanted=tuple(each._replace(cuda="") if each.cuda == cuda else each for each in asked),
        device=device,
        cuda=cuda,
        cudnn=draft.get("cudnn"),
        nccl=draft.get("nccl"),
        python=draft.get("python"),
        python_from=draft.get("python-from"),
        systems=systems,
        system_text=draft.get("system"),
        base=provider,
        image=image,
        driver=driver,
        gpus=tuple(gpus),
        warnings=(*doubts, *warnings),
    )


def _wanted(matrix: Matrix, draft: Draft, piece: FrameworkDraft, doubts: list[str], said: str) -> Wanted:
    version = _exact_if_release(piece.framework, piece.parts.get("version", ""))
    _check_version(piece.framework, version, draft)
    cuda = _known_cuda(matrix, piece.parts.get("cuda", ""), doubts)
    return Wanted(framework=piece.framework, version=version, cuda=cuda, said=said)


def _hardware(matrix: Matrix, driver: str | None, gpus: list[str]) -> tuple[str, list[GpuWanted], list[str]]:
    found, warnings = names.find_driver(matrix, driver) if driver is not None else ("", [])
    wanted = []
    for text in gpus:
        from envbuild.resolve.request.gpus import find_gpu  # imported late: it compiles many patterns

        gpu, doubts = find_gpu(matrix, text)
        wanted.append(gpu)
        warnings.extend(doubts)
    return found, wanted, warnings


def _device(draft: Draft, hardware: bool) -> Literal["", "cpu", "gpu"]:
    said = draft.get("device")
    needs_cuda = any(draft.get(part) for part in ("cuda", "cudnn", "nccl")) or any(
        "cuda" in each.parts for each in draft.pieces
    )
    if said == "cpu" and needs_cuda:
        raise UsageError(
            f"{draft.text!r} asks for both CUDA and a CPU environment.", code="contradiction", hint="Ask for only one of them."
        )
    if said == "cpu":
        return "cpu"
    return "gpu" if said or needs_cuda or hardware else ""


def _exact_if_release(framework: FrameworkTable, clauses: str) -> str:
    """If ``clauses`` are the full version of a release, return them in a form that means only this release: ``==2.15.0`` would
    also mean 2.15.0.post1."""
    version = clauses.removeprefix("==")
    whole = version.count(".") >= 2 and any(release.version == version for release in framework.releases)
    return f"==={version}" if whole else clauses


def _check_version(framework: FrameworkTable, clauses: str, draft: Draft) -> None:
    try:
        if any(version_matches(release.version, clauses) for release in framework.releases):
            return
        _check_consistent(draft, framework.title, clauses)
    except ValueError as error:  # the errors of packaging are ValueErrors; packaging is imported only if needed
        raise UsageError(
            f"{draft.text!r} contains a version that cannot be compared: {error}.", hint="For example: name>=1.12,<2"
        ) from error
    wanted = re.sub(r"^=+", "", clauses)
    known = [release.version for release in framework.releases]
    parts = version_parts(wanted)
    near: dict[tuple[int, ...], str] = {}  # series → its newest release
    for release in framework.releases:
        if any(variant.origin.status != "known-bad" for variant in release.variants):
            near.setdefault(tuple(version_parts(release.version)[: len(parts)]), release.version)
    nearest = nearest_versions(list(near.values()), wanted)[:3]
    instead = [Alternative(name=f"{framework.short}-{version}", changes=f"version {version}") for version in nearest]
    if rule := names.rule_that_leaves_out(framework, clauses):
        from packaging.version import InvalidVersion, Version

        try:
            final = f"{framework.short}-{Version(wanted).base_version}"
        except InvalidVersion:  # the clauses are several conditions, or a range
            final = ""
        raise names.left_out(framework, wanted, rule, sorted(instead, key=lambda each: each.name != final))
    raise names.unknown_version(framework.title, wanted, known, instead)


def _check_consistent(draft: Draft, what: str, clauses: str) -> None:
    """Raise if the clauses for ``what`` contradict each other, so that no version at all can satisfy them."""
    if "," in clauses and not any(version_matches(version, clauses) for version in around(clauses)):
        raise UsageError(
            f"{draft.text!r}: the conditions on {what} contradict each other: {clauses.replace(',', ', ')}.",
            code="contradiction",
            hint=f"An environment contains one version of {what}: write conditions that one version can meet.",
        )


def _known_cuda(matrix: Matrix, clauses: str, doubts: list[str]) -> str:
    """Return the clauses on CUDA. Raise for a version that the matrix does not have. A CUDA version that only builds of other
    frameworks have is not refused here: the search finds this conflict.

    A full release of CUDA (9.0.176) becomes its minor version (9.0). If the row of that version installs another release,
    ``doubts`` gets a remark.
    """
    known = [row.version for row in matrix.cuda]
    if not clauses or any(within(version, clauses) for version in itertools.chain(known, _built_for(matrix))):
        return clauses
    release = clauses.lstrip("=")
    if (row := _cuda_release(matrix, clauses)) is None:
        raise names.unknown_version("CUDA", release, known)
    if release != row.release:
        doubts.append(f"CUDA {release} counts as CUDA {row.version}: envbuild installs only the release {row.release} of it.")
    return f"=={row.version}"


def _check_python(matrix: Matrix, draft: Draft) -> None:
    python = draft.get("python")
    if python and not any(within(row.version, python) for row in matrix.pythons):
        raise names.unknown_version(
            "Python", python.lstrip("="), sorted((row.version for row in matrix.pythons), key=newest_first)
        )


def _built_for(matrix: Matrix) -> Iterator[str]:
    """The CUDA versions of all builds. Such a version may have no row of its own in the matrix."""
    for table in matrix.frameworks:
        for release in table.releases:
            yield from (variant.cuda for variant in release.variants if variant.cuda)


def _cuda_release(matrix: Matrix, clause: str) -> CudaRow | None:
    """Return the CUDA row to which the full release of a toolkit belongs, such as 9.0.176 in ``cuda9.0.176``."""
    wanted = clause.removeprefix("==")
    return next((row for row in matrix.cuda if wanted in (row.release, *(release.version for release in row.releases))), None)
