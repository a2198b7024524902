"""Writes the reason for each choice in words, with the document that supports the reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.libraries import describe
from envbuild.matrix.types import LibraryNeed, Variant
from envbuild.matrix.versions import numbers, within
from envbuild.model.environment import Environment
from envbuild.model.resolution import Reason
from envbuild.resolve.request.model import Request
from envbuild.resolve.search import addon_builds
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.compatibility import clashes, together
from envbuild.resolve.search.hardware import expected_driver, limit_objections, only_by_compatibility
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.placement import ChosenLibrary, Offer, Place
from envbuild.resolve.search.release_order import wider_patch


def reasons(lookup: Lookup, request: Request, chosen: Candidate, environment: Environment) -> tuple[Reason, ...]:
    """Return one reason for each choice, in the order in which the choices were made."""
    return tuple(_reasons(lookup, request, chosen, environment))


def _reasons(lookup: Lookup, request: Request, chosen: Candidate, environment: Environment) -> Iterator[Reason]:
    need = together(chosen.builds)
    yield from of_builds(lookup, request, chosen)
    yield from of_libraries(lookup, chosen, environment)
    yield of_python(lookup, request, chosen, need)
    yield from of_place(request, chosen, environment)
    yield of_dependencies(chosen)


def of_builds(lookup: Lookup, request: Request, chosen: Candidate) -> Iterator[Reason]:
    """The reasons for the version and the build of each framework."""
    place = chosen.place
    for build in chosen.builds:
        release = build.release
        if said := request.wanted_of(build.framework).said:
            beside = build.framework.beside
            because = f"the request names {said} together with {beside}, so the build of {said} for {beside} is used"
            yield Reason(choice=build.framework.title, because=because, source=build.framework.origin.source)
        yield Reason(
            choice=f"{build.framework.name} {release.version}",
            because=_version(request, chosen, build),
            source=release.origin.source_of("version"),
        )
        yield Reason(
            choice=_comes_from(build, place),
            because=_package(lookup, request, chosen, build),
            source=build.variant.origin.source_of("package"),
        )
        for choice, because, source in addon_builds.reasons(build):
            yield Reason(choice=choice, because=because, source=source)
        yield from _cuda(build)
        yield from _processor(build)


def of_libraries(lookup: Lookup, chosen: Candidate, environment: Environment) -> Iterator[Reason]:
    """The reasons for the minimum driver, for cuDNN and for NCCL."""
    need, offer = together(chosen.builds), chosen.place.offer
    yield from _driver(lookup, environment)
    yield from _library("cudnn", need.cudnn, offer.cudnn, need)
    yield from _library("nccl", need.nccl, offer.nccl, need)


def of_place(request: Request, chosen: Candidate, environment: Environment) -> Iterator[Reason]:
    """The reasons for the system and the base."""
    place, need = chosen.place, together(chosen.builds)
    yield Reason(
        choice=f"os {place.system.name}",
        because=("it is requested" if request.systems else "it is the preferred system that supports the choices above")
        + f"; its glibc {place.system.glibc} meets the need for glibc {need.glibc} or newer",
        source=place.system.origin.source,
    )
    yield _base(request, chosen, environment)


def of_dependencies(chosen: Candidate) -> Reason:
    """The date limit of packages, and the framework that sets it."""
    latest = max(chosen.builds, key=lambda build: build.release.exclude_newer)
    release = latest.release
    because = (
        f"{latest.framework.title} {release.version} was released on {release.released}; "
        f"only packages published by {release.exclude_newer} are used"
    )
    return Reason(
        choice=f"dependencies until {release.exclude_newer}",
        because=because + ("; with several frameworks, the latest date limit counts" if len(chosen.builds) > 1 else ""),
        source=release.origin.source_of("released"),
    )


def _processor(build: Build) -> Iterator[Reason]:
    """Name the processor features that the binaries need. The reasons name them because no package index states them."""
    variant = build.variant
    if variant.cpu_features:
        yield Reason(
            choice=f"processor with {', '.join(feature.upper() for feature in variant.cpu_features)}",
            because=f'{_built(build)} built for such processors; on others, the program stops with "Illegal instruction"',
            source=variant.origin.source_of("cpu_features"),
        )


def _built(build: Build) -> str:
    """Return the subject and the verb of the sentence for a reason about CUDA or the processor. For an add-on, the subject is
    its base framework, because only the base framework has such binaries."""
    if build.variant.upon:
        name, version, _ = build.variant.upon[-1]
        return f"{name} {version}, its base framework, is"
    return f"{build.variant.package} {build.release.version} is"


def _version(request: Request, chosen: Candidate, build: Build) -> str:
    wanted = request.wanted_of(build.framework)
    matching = [release.version for release in build.framework.releases if wanted.accepts(release)]
    if len(matching) == 1:
        return "the only version that matches the request" if wanted.version else "the only version in the matrix"
    asked = f"of the versions that match {wanted.version.lstrip('=')}" if wanted.version else "of all versions in the matrix"
    earlier = chosen.builds[: chosen.builds.index(build)]
    beside = (
        f" together with {' and '.join(f'{each.framework.name} {each.release.version}' for each in earlier)}" if earlier else ""
    )
    if not matching or matching[0] == build.release.version:
        return f"the newest {asked}"
    if preferred := addon_builds.preferred(chosen.builds, build, matching):
        return f"{asked}, {preferred}"
    if narrowed := _narrowed(request, build):
        return f"{asked}, the newest with native code for all GPUs that its minor version supports{narrowed}"
    native = " with native code for the GPU" if build.variant.cuda and _is_native(request, build.variant) else ""
    return f"{asked}, the newest that satisfies the whole request{beside}{native}"


def _is_native(request: Request, variant: Variant) -> bool:
    """Whether the request names GPUs and the build has native code for all of them."""
    known = request.capabilities
    return bool(known) and all(code_for(variant, capability) == "native" for capability in known)


def _narrowed(request: Request, build: Build) -> str:
    """Name the newer patch releases that were not chosen because they have native code for far fewer GPUs."""
    if request.device == "cpu":
        return ""
    releases = build.framework.releases
    newer = [
        release
        for release in itertools.takewhile(lambda each: each != build.release, releases)
        if request.wanted_of(build.framework).accepts(release) and wider_patch(release, releases) == build.release
    ]
    held = ", ".join(dict.fromkeys(entry for release in newer for each in release.variants if each.cuda for entry in each.sass))
    names = " and ".join(release.version for release in newer)
    return f"; {names} {'has' if len(newer) == 1 else 'have'} native code only for compute capability {held}" if newer else ""


def _comes_from(build: Build, place: Place) -> str:
    variant = build.variant
    if variant.repository:
        return f"source {variant.repository} at {variant.revision}"
    if variant.distribution:
        return f"package {variant.package} {variant.distribution} of {place.system.name}"
    return f"package {variant.pins(build.release.version)[0]}"


def no_gpu_build(lookup: Lookup, chosen: Candidate, build: Build) -> str:
    """Why no GPU build of a release was chosen. If all its GPU builds conflict with all GPU builds of another chosen framework,
    the reason names that conflict."""
    ours = _for_gpus(lookup, build)
    for other in chosen.builds:
        pairs = [(one, another) for one in ours for another in _for_gpus(lookup, other)] if other is not build else []
        against = [clashes(lookup, pair) for pair in pairs]
        if against and all(against):
            told = "; ".join(f"{each.conflict.row} {each.conflict.reason}" for each in against[0])
            return (
                f"no GPU build of it works together with a GPU build of {other.framework.title} {other.release.version}: {told}"
            )
    limit = lookup.matrix.driver_limit
    if ours and limit is not None and all(any(limit_objections(lookup, each.variant)) for each in ours):
        return f"no GPU build works with driver {limit.driver} of the site: {limit.reason}"
    return "no GPU build satisfies the request"


def _for_gpus(lookup: Lookup, build: Build) -> list[Build]:
    return [replace(build, variant=variant) for variant in addon_builds.siblings(lookup, build) if variant.cuda]


def _package(lookup: Lookup, request: Request, chosen: Candidate, build: Build) -> str:
    variant = build.variant
    builds = addon_builds.siblings(lookup, build)
    kinds = {bool(other.cuda) for other in builds}
    same = f"; the package {variant.package} is the same for both" if variant.upon and _is_same_package(build, builds) else ""
    of_base = f" of {variant.upon[0][0]}" if same else ""
    if len(builds) == 1:
        return "the only build of this version"
    if build.beside_gpus:
        return "none of the requested versions has a GPU build"
    if not variant.cuda:
        cause = " was requested" if request.device == "cpu" else f": {no_gpu_build(lookup, chosen, build)}"
        return f"the CPU build{of_base}{cause}{same}"
    if clauses := request.wanted_of(build.framework).cuda or request.cuda:
        return f"the build for CUDA {variant.cuda}{_older_cuda(build, clauses)}"
    preferred = f"a GPU build{of_base} is preferred to the CPU build{same}" if len(kinds) == 2 else "the preferred build"
    return preferred + _by_driver(lookup, request, variant, builds)


def _by_driver(lookup: Lookup, request: Request, variant: Variant, builds: Sequence[Variant]) -> str:
    """Name the expected driver if builds for a newer CUDA were not chosen because of it."""
    others = only_by_compatibility(lookup, request, variant, builds)
    if not any(numbers(other.cuda) > numbers(variant.cuda) for other in others):
        return ""
    _, driver = expected_driver(lookup, request)
    return f"; {driver} runs CUDA {variant.cuda} fully, but newer builds only by minor-version compatibility"


def _is_same_package(build: Build, builds: Sequence[Variant]) -> bool:
    """Whether an add-on's GPU builds and CPU builds install the same file, so that only the base framework differs."""
    variant, version = build.variant, build.release.version
    return not variant.repository and all(each.pins(version) == variant.pins(version) for each in builds)


def _older_cuda(build: Build, clauses: str) -> str:
    """Name the older CUDA versions that the request also allows."""
    fitting = {each.cuda: each for each in build.release.variants if each.cuda and within(each.cuda, clauses)}
    others = [each for each in fitting.values() if numbers(each.cuda) < numbers(build.variant.cuda)]
    if not others:
        return ""
    named = ", ".join(f"{each.cuda} (upstream's own default)" if each.default else each.cuda for each in others)
    return (
        f", the newest that matches {clauses.lstrip('=')}; builds for CUDA {named} exist too: to get one, ask for "
        f"cuda{others[0].cuda}"
    )


def _cuda(build: Build) -> Iterator[Reason]:
    variant = build.variant
    if not variant.cuda:
        return
    where = {
        "system": "its binaries need CUDA libraries in the image",
        "wheels": "its CUDA libraries are in packages that the framework requires",
        "bundled": "its CUDA libraries are in the framework's package",
    }[variant.cuda_libraries]
    yield Reason(
        choice=f"cuda {variant.cuda}",
        because=f"{_built(build)} built for CUDA {variant.cuda}; {where}",
        source=variant.origin.source_of("cuda"),
    )


def _driver(lookup: Lookup, environment: Environment) -> Iterator[Reason]:
    cudas = [cuda for framework in environment.frameworks if (cuda := environment.cuda_of(framework))]
    rows = [row for cuda in cudas if (row := lookup.cuda.get(cuda)) is not None]
    if not rows:
        return
    rows += [row for row in (lookup.cuda.get(environment.base.cuda),) if row is not None]
    row = max(rows, key=lambda row: numbers(row.driver_min))
    rule = lookup.native_rule(row)
    floor = f"; native code runs with driver {rule.driver_min} or newer (minor-version compatibility)" if rule else ""
    is_compiler = bool(environment.base.compiler_cuda) and row.version not in (*cudas, environment.base.libraries_cuda)
    what = f"GPU code is compiled with CUDA {row.release}, which" if is_compiler else f"CUDA {row.release}"
    yield Reason(
        choice=f"driver >= {row.driver_min}",
        because=f"{what} needs this driver or a newer one{floor}",
        source=row.origin.source_of("driver_min"),
    )


def _library(name: str, need: LibraryNeed | None, chosen: ChosenLibrary | None, variant: Variant) -> Iterator[Reason]:
    if need is None or chosen is None:
        return
    origin = variant.origin
    if need.taken_from == "bundled" and chosen.wheel:
        because = (
            "the framework's binary contains it; the same release is installed as a wheel, to compile GPU code with its headers"
        )
    elif need.taken_from == "bundled":
        because = "it is in the framework's binary, so nothing is installed"
    elif need.taken_from == "wheels":
        because = "packages that the framework requires contain it"
    elif chosen.version == need.prefer:
        because = f"the framework needs {name} {describe(need)}; the matrix prefers this version"
    else:
        because = f"the framework needs {name} {describe(need)}; this is the newest version for this base"
    row = chosen.wheel or chosen.row
    yield Reason(
        choice=f"{name} {chosen.version}", because=because, source=row.origin.source if row else origin.source_of(name)
    )


def of_python(lookup: Lookup, request: Request, chosen: Candidate, variant: Variant) -> Reason:
    """The reason for the Python version. ``variant`` combines the requirements of all chosen builds."""
    place = chosen.place
    supporting = ", ".join(f"{build.variant.package} {build.release.version}" for build in chosen.builds)
    verb = "supports" if len(chosen.builds) == 1 else "support"
    origin = {
        "distribution": f"{place.system.name} contains it",
        "uv": "uv installs a standalone build",
        "conda": "conda installs it",
        "base": "the base image contains it",
    }[place.python.provided_by]
    asked = "requested, and one of" if request.python and within(place.python.version, request.python) else "preferred among"
    row = lookup.pythons.get(place.python.version)
    among = ", ".join(variant.python)
    source = variant.origin.source_of("python") or (row.origin.source if row else "")
    return Reason(
        choice=f"python {place.python.version}",
        because=f"{asked} the versions that {supporting} {verb} ({among}); {origin}",
        source=source,
    )


def _of_wheels(offer: Offer, system: str) -> str:
    if offer.row is None:
        return "a plain distribution, because CUDA comes with the framework's packages"
    return f"{system}, with CUDA {offer.row.cuda} from NVIDIA's wheels{_minor_versions(offer)}"


def _of_debian(offer: Offer, environment: Environment) -> str:
    system, base = environment.system.name, environment.base
    if offer.row is None or not base.components:
        return ""
    packages = f"from Debian's own packages ({' and '.join(base.components)})"
    if not base.apt:
        return f"{system}, with nvcc of CUDA {offer.row.cuda} {packages} to compile GPU code; nothing of it stays in the image"
    compiler = ", and nvcc to compile GPU code" if base.build_apt else ""
    return f"{system}, with CUDA {offer.row.cuda} {packages}{compiler}{_minor_versions(offer)}"


def _minor_versions(offer: Offer) -> str:
    if not offer.stands_in:
        return ""
    return f"; programs that are built for CUDA {offer.cuda} run on these libraries by minor-version compatibility"


def _base(request: Request, chosen: Candidate, environment: Environment) -> Reason:
    offer, system, cuda = chosen.place.offer, chosen.place.system, environment.cuda
    what = {
        "distribution": "a plain distribution, because nothing of CUDA is needed",
        "wheels": _of_wheels(offer, system.name),
        "apt": f"{system.name}, with exact versions of NVIDIA's packages for CUDA {cuda}",
        "tag": f"an image that contains CUDA {cuda}",
        "conda": f"conda packages of CUDA {cuda}",
        "debian": _of_debian(offer, environment),
        "local": "the requested image; its contents are checked after the build",
    }[offer.provider]
    others = ", ".join(environment.base.other_providers)
    insisted = "requested: " if request.base else ""
    return Reason(
        choice=f"base {offer.provider} {environment.base.image}",
        because=f"{insisted}{what}" + (f"; other possible providers: {others}" if others else ""),
        source=offer.row.origin.source if offer.row else system.origin.source,
    )
