"""Convert the measurements of a file to JSON (``schemas/measurement.json``): all of them, or the summary that is stored."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from envbuild.measure.gpu_code import GpuList, OwnCode
from envbuild.measure.measuring import Measured, MeasuredLibrary

# Tools that repair wheels add libraries whose names contain a hash: libcudart-80664282.so.10.2, libcudart.3eda8113.so.13.
_CUDART = re.compile(r"libcudart(?:[-.][0-9a-f]+)?\.so\.(\d{1,4}(?:\.\d{1,4})?)(?:\.\d{1,4})*")
_CUDNN = re.compile(r"libcudnn(?:[-.][0-9a-f]+)?\.so\.(\d{1,4})(?:\.\d{1,4})*")


def as_json(measured: Measured) -> dict[str, Any]:
    """Return all measurements of a file."""
    return {
        **summary(measured),
        "notes": list(measured.notes),
        "wrong_record": [each._asdict() for each in measured.wrong_record],
        "libraries": [_library(each) for each in measured.libraries],
    }


def summary(measured: Measured) -> dict[str, Any]:
    """Return the summary of what a file needs. ``matrix measure --record`` stores it."""
    return {
        "filename": measured.filename,
        "sha256": measured.sha256,
        "size": measured.size,
        "project": measured.project,
        "version": measured.version,
        "tags": list(measured.tags),
        "requires_python": measured.requires_python,
        "glibc": measured.highest("glibc"),
        "glibcxx": measured.highest("glibcxx"),
        "cxxabi": measured.highest("cxxabi"),
        "needed": _outside(measured),
        "cuda": _versions(_CUDART, measured),
        "cudnn": _versions(_CUDNN, measured),
        "libcuda": _libcuda(measured),
        "nccl": [{"version": version, "cuda": cuda} for version, cuda in sorted(_nccl(measured))],
        "built_with": [each._asdict() for each in measured.built_with],
        "instruction_sets": measured.instruction_sets(),
        "gpu_code": _gpu_code(measured),
        **({"unread": list(measured.unread)} if measured.unread else {}),
    }


def _gpu_code(measured: Measured) -> dict[str, Any] | None:
    own = measured.own
    if own is None:
        return None
    versions = {version for library in measured.libraries for version in library.code.ptx_versions}
    return {
        "native": list(own.native),
        "ptx": list(own.ptx),
        "share": own.share,
        "certainty": own.certainty,
        "ptx_versions": sorted(versions, key=lambda text: tuple(map(int, text.split(".")))),
        "lists": [_list(each) for each in measured.lists],
        **({"libraries": [_own(*each) for each in libraries]} if len(libraries := measured.own_of_libraries) > 1 else {}),
    }


def _own(path: str, own: OwnCode) -> dict[str, Any]:
    return {
        "path": path,
        "native": list(own.native),
        "ptx": list(own.ptx),
        "share": own.share,
        "certainty": own.certainty,
    }


def _list(each: GpuList) -> dict[str, Any]:
    return {
        "native": list(each.native),
        "ptx": list(each.ptx),
        "containers": each.containers,
        "bytes": each.size,
        "of_cuda": each.of_cuda,
    }


def _library(library: MeasuredLibrary) -> dict[str, Any]:
    needs = library.needs
    return {
        "path": library.path,
        "size": library.size,
        "soname": needs.soname,
        "needed": list(needs.needed),
        "rpath": list(needs.rpath),
        "runpath": list(needs.runpath),
        "glibc": needs.symbols.glibc,
        "glibcxx": needs.symbols.glibcxx,
        "cxxabi": needs.symbols.cxxabi,
        "libcuda": needs.libcuda,
        "of_nvidia": library.of_nvidia,
        "processor": {
            "certain": list(library.processor.certain),
            "likely": list(library.processor.likely),
            "functions": library.processor.functions,
        },
        "entries": {name: dict(sorted(counts.items())) for name, counts in library.code.counts.items()},
    }


def _outside(measured: Measured) -> list[str]:
    """The libraries that the measured file needs but does not contain. The dynamic loader searches for file names, and does not
    search for a DT_SONAME. So a library whose file has another name than its DT_SONAME does not count as contained under it."""
    held = {PurePosixPath(library.path).name for library in measured.libraries}
    return sorted({name for library in measured.libraries for name in library.needs.needed} - held)


def _versions(pattern: re.Pattern[str], measured: Measured) -> list[str]:
    """The versions in the names of needed libraries. From CUDA 11 on, they are only major versions: all releases of a major
    version have the same library name."""
    names = {name for library in measured.libraries for name in library.needs.needed}
    found = {match[1] for name in names if (match := pattern.fullmatch(name))}
    return sorted({each.partition(".")[0] if int(each.partition(".")[0]) >= 11 else each for each in found})


def _libcuda(measured: Measured) -> str:
    found = {library.needs.libcuda for library in measured.libraries}
    return next((word for word in ("linked", "by name") if word in found), "no")


def _nccl(measured: Measured) -> set[tuple[str, str]]:
    return {library.needs.nccl for library in measured.libraries if library.needs.nccl is not None}
