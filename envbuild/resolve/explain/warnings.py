"""Warnings about an environment that satisfies the request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.versions import numbers
from envbuild.resolve.explain.reasons import no_gpu_build
from envbuild.resolve.explain.suitable_hardware import driver_window
from envbuild.resolve.request.model import Request
from envbuild.resolve.search import addon_builds
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.compatibility import same_packages
from envbuild.resolve.search.hardware import cudnn_without, hardware_rows, hardware_warnings
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.placement import on_libraries
from envbuild.resolve.search.search import Search


def warnings(search: Search, chosen: Candidate) -> tuple[str, ...]:
    """Return all warnings, each once. They are about the request, the hardware, the packages, and rows of the matrix with an
    unknown status."""
    lookup, request = search.lookup, search.request
    found = list(request.warnings)
    for build in chosen.builds:
        found += hardware_warnings(lookup, request, build.row, on_libraries(build.variant, chosen.place.offer.stands_in))
        found += _other_drivers(lookup, request, build)
        found += _native_elsewhere(search, build)
        found += _cudnn_dropped(lookup, request, build)
        found += _bad_for_gpus(search, chosen, build)
    found += addon_builds.warnings(chosen.builds)
    found += package_warnings(chosen.builds)
    found += status_warnings(lookup, request, chosen)
    return tuple(dict.fromkeys(found))


def _other_drivers(lookup: Lookup, request: Request, build: Build) -> Iterator[str]:
    """Say which drivers a build needs on the requested GPUs, if some of these GPUs do not work with the oldest driver of the
    build's CUDA."""
    cuda = lookup.cuda.get(build.variant.cuda)
    known = [(gpu.text, gpu.architecture) for gpu in request.gpus if gpu.architecture is not None]
    if cuda is None or request.driver:
        return
    stated = numbers(cuda.driver_min)[0]
    is_later = any(int(lookup.first_branch(row) or 0) > stated for _, row in known)
    if is_later or any(row.last_driver_branch and int(row.last_driver_branch) < stated for _, row in known):
        window = driver_window(lookup, request, build.variant, any_gpu=False)
        said = (
            f"needs {window}" if window else "may work by minor-version compatibility, with drivers that still support the GPU"
        )
        yield f"On {' and '.join(text for text, _ in known)}, {build.row} {said}."


def _native_elsewhere(search: Search, build: Build) -> Iterator[str]:
    """If the driver must compile the GPU code of the chosen version at the first start, name a version with native code. The
    request must also allow that version."""
    capabilities = [gpu.capability for gpu in search.request.gpus if gpu.capability and build.variant.cuda]
    if all(code_for(build.variant, capability) != "ptx" for capability in capabilities):
        return

    def native(other: Build) -> bool:
        if other.framework is not build.framework:
            return True
        return bool(other.variant.cuda) and all(code_for(other.variant, capability) == "native" for capability in capabilities)

    for candidate in search.solutions(only=native):
        other = next(each for each in candidate.builds if each.framework is build.framework)
        yield f"{other.framework.title} {other.release.version}, which the request also allows, has native code for the GPU."
        return


def _cudnn_dropped(lookup: Lookup, request: Request, build: Build) -> Iterator[str]:
    """Warn if the cuDNN that comes with the framework's packages does not support a requested GPU."""
    for gpu in request.gpus:
        row = cudnn_without(lookup, build.variant, gpu.capability)
        if row is not None:
            yield (
                f"{build.row} comes with cuDNN {row.version}, which supports GPUs of compute capability "
                f"{row.capability_min} and newer: convolutions will fail on {gpu.text} ({gpu.capability})."
            )


def _bad_for_gpus(search: Search, chosen: Candidate, build: Build) -> Iterator[str]:
    """If the request names no device and the release has GPU builds, but the CPU build was chosen, warn about this and say
    why."""
    if build.variant.cuda or search.request.device:
        return
    bad = list(_known_bad(search, build))
    yield from bad
    if not bad and len(chosen.builds) > 1 and any(each.cuda for each in addon_builds.siblings(search.lookup, build)):
        yield f"{build.row} does not use the GPU: {no_gpu_build(search.lookup, chosen, build)}"


def _known_bad(search: Search, build: Build) -> Iterator[str]:
    for option in search.options(search.request.wanted_of(build.framework)):
        if option.build.release is build.release and option.build.variant.cuda:
            for item in option.objections:
                verb = "is" if item.conflict.row == option.build.row else "cannot be used:"
                yield f"{build.row} does not use the GPU: {option.build.row} {verb} {item.conflict.reason}"


def package_warnings(builds: Sequence[Build]) -> Iterator[str]:
    """Warn about builds in one set of packages that require different versions of the same packages."""
    for one, other in same_packages(builds):
        yield (
            f"{one.row} contains CUDA {one.variant.cuda} and {other.row} contains CUDA {other.variant.cuda}, in packages "
            "of the same names. `envbuild lock` finds out whether both can be installed together."
        )


def status_warnings(lookup: Lookup, request: Request, chosen: Candidate) -> list[str]:
    """Warn about rows of unknown status, and about rows whose image was deleted upstream."""
    place = chosen.place
    rows = [(build.row, build.variant.origin) for build in chosen.builds]
    rows.append((place.system.key, place.system.origin))
    tables = (*(lookup.cuda.get(build.variant.cuda) for build in chosen.builds), lookup.pythons.get(place.python.version))
    rows.extend((found.key, found.origin) for found in tables if found is not None)
    if any(build.variant.cuda for build in chosen.builds):
        rows.extend((found.key, found.origin) for _, found in hardware_rows(lookup, request))
    if place.offer.row is not None:
        rows.append((f"base {place.offer.provider} on {place.system.name}", place.offer.row.origin))
    rows.extend(
        (library.row.key, library.row.origin) for library in (place.offer.cudnn, place.offer.nccl) if library and library.row
    )
    found = []
    for name, origin in rows:
        note = f": {origin.note}" if origin.note else ""
        if origin.status == "unknown":
            found.append(f"{name} has not been tested{note or '.'}")
        elif origin.status == "base-deleted":
            found.append(f"{name} was deleted upstream{note or '; it works only with a copy of the image.'}")
    return found
