"""Makes the environment of a chosen candidate: every field, and the canonical name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.platform import PackageRow, RepositoryRow, SystemRow
from envbuild.matrix.types import PinnedWheel, Requirement, Variant
from envbuild.matrix.versions import numbers, within
from envbuild.model.environment import (
    AptPackage,
    AptRepository,
    Base,
    ComputeCapability,
    CudaWheel,
    Environment,
    Framework,
    PinnedFile,
    Python,
    System,
    ToolkitLink,
)
from envbuild.resolve.request.bases import image_slug
from envbuild.resolve.request.model import Request
from envbuild.resolve.search.addon_builds import siblings
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.compatibility import join, need_of, together
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.placement import ChosenLibrary, Offer, Place, offers_on, places
from envbuild.resolve.search.pythons import python_on, remote_file
from envbuild.resolve.search.vendor_pins import choices_of


def environment_of(lookup: Lookup, request: Request, chosen: Candidate) -> Environment:
    """The environment of a candidate. The canonical name determines every field; the request's driver and GPU have no
    influence.

    The frameworks are in the order of the matrix, not of the request.
    """
    order = {table.name: index for index, table in enumerate(lookup.matrix.frameworks)}
    builds = sorted(chosen.builds, key=lambda build: order[build.framework.name])
    place = chosen.place
    cuda = together(chosen.builds).cuda
    newest = max((build.variant.cuda for build in builds if build.variant.cuda), key=numbers, default="")
    row = lookup.cuda.get(newest)
    base = _base(lookup, request, chosen)
    frameworks = (
        _compiled(framework_of(build, place.python.version, cuda, builds), build.variant, place.offer, base) for build in builds
    )
    drivers = [lookup.driver_min(cuda) for cuda in (*(build.variant.cuda for build in builds), base.cuda)]
    return Environment(
        name=canonical_name(builds, place, base, _unusual_libraries(lookup, chosen), _unusual_supply(lookup, request, place)),
        frameworks=tuple(frameworks),
        python=place.python,
        system=_system(place.system),
        cuda=cuda or None,
        cudnn=_version(place.offer.cudnn),
        nccl=_version(place.offer.nccl),
        base=base,
        driver_min=max(filter(None, drivers), key=numbers, default=None),
        compute_capability=_capability([build.variant for build in builds if build.variant.cuda]),
        require_cuda=_require(lookup, newest, row.require if row else "") if newest else None,
        exclude_newer=max(build.release.exclude_newer for build in builds),
    )


def _capability(variants: Sequence[Variant]) -> ComputeCapability | None:
    """The compute capabilities for which all of ``variants`` have GPU code; None if the GPU code of one of them is unknown."""
    if not variants or not all(variant.sass or variant.ptx for variant in variants):
        return None
    if len(variants) == 1:
        return ComputeCapability(sass=variants[0].sass, ptx=variants[0].ptx)
    every = sorted({entry for variant in variants for entry in variant.sass}, key=numbers)
    sass = tuple(entry for entry in every if all(code_for(variant, entry) == "native" for variant in variants))
    first = [min(variant.ptx, key=numbers, default="") for variant in variants]
    return ComputeCapability(sass=sass, ptx=(max(first, key=numbers),) if all(first) else ())


def canonical_name(builds: Sequence[Build], place: Place, base: Base, libraries: Sequence[str], supply: str = "") -> str:
    """The canonical name, which determines every choice. The name contains the base, the library releases and Python's supply
    only if they differ from the defaults.

    After all frameworks, the name has the CUDA version of the last GPU build. If an earlier GPU build is for a different CUDA
    version, that version follows directly after the framework of the earlier build.
    """
    cuda = next((build.variant.cuda for build in reversed(builds) if build.variant.cuda), "")
    named = []
    for build in builds:
        own = f"-cuda{build.variant.cuda}" if build.variant.cuda not in ("", cuda) else ""
        named.append(f"{build.framework.short}-{build.release.version}{own}")
    parts = [
        "+".join(named),
        f"cuda{cuda}" if cuda else "cpu",
        f"py{place.python.version.replace('.', '')}{supply}",
        place.system.name,
        *libraries,
    ]
    if not base.is_default:
        parts.append(image_slug(base.image) if base.provider == "local" else base.provider)
    return "-".join(parts)


def _same_name(lookup: Lookup, chosen: Candidate) -> Iterator[Variant]:
    """Yield each compatible combination of builds that has the candidate's versions and CUDA versions, the best first. Each
    combination is joined into one variant.

    All these combinations have the same canonical name.
    """
    levels = []
    for build in chosen.builds:
        same = [v for v in siblings(lookup, build) if v.cuda == build.variant.cuda and v.origin.status != "known-bad"]
        levels.append([replace(build, variant=variant) for variant in same])
    for builds in itertools.product(*levels):
        need = need_of(lookup, builds[0])
        for build in builds[1:]:
            joined = join(need, need_of(lookup, build))
            if joined is None:
                break
            need = joined
        else:
            yield together(builds)


def _unusual_libraries(lookup: Lookup, chosen: Candidate) -> list[str]:
    """The versions of cuDNN and NCCL that differ from the default versions of this place, as parts of the canonical name."""
    ours = chosen.place
    for variant in _same_name(lookup, chosen):
        for place in places(lookup, variant):
            if _alike(place, ours):
                pairs = (("cudnn", ours.offer.cudnn, place.offer.cudnn), ("nccl", ours.offer.nccl, place.offer.nccl))
                return [f"{name}{have.version}" for name, have, usual in pairs if have and have != usual]
    return []


def _unusual_supply(lookup: Lookup, request: Request, place: Place) -> str:
    """Return the supply of Python, or an empty string if that supply is the default for this version and system."""
    usual = python_on(lookup, place.python.version, place.system, request.image)
    ours = place.python.provided_by
    return "" if isinstance(usual, Python) and usual.provided_by == ours else ours


def _alike(one: Place, other: Place) -> bool:
    """Whether two places are equal except for the releases of cuDNN and NCCL."""
    same = one.system == other.system and one.python.version == other.python.version
    return same and one.offer.provider == other.offer.provider and one.offer.row == other.offer.row


def default_place(lookup: Lookup, chosen: Candidate) -> tuple[Variant, Place] | None:
    """The joined variant and the place that a request for these versions, CUDA, Python and system gets if it names no base."""
    for variant in _same_name(lookup, chosen):
        for place in places(lookup, variant):
            same = place.system.name == chosen.place.system.name and place.python.version == chosen.place.python.version
            if same and not place.offer.deleted:
                return variant, place
    return None


def _base(lookup: Lookup, request: Request, chosen: Candidate) -> Base:
    offer, system = chosen.place.offer, chosen.place.system
    usual, whole = default_place(lookup, chosen), together(chosen.builds)
    row = offer.row
    packaged = row.package_set if row else None
    libraries = [library.package for library in (offer.cudnn, offer.nccl) if library and library.package]
    packages = [*(row.packages if row else ()), *(item.package for item in libraries)]
    compiled = row if row and whole.nvcc else None
    headers = [item.dev for item in libraries if item.dev and compiled]
    names = dict.fromkeys([*(row.repositories if row else ()), *(p.repository for p in packages if p.repository)])
    return Base(
        provider=offer.provider,
        image=request.image or (row.image if row and row.image else system.image),
        is_default=usual is not None and usual[0] == whole and _alike(usual[1], chosen.place),
        repositories=tuple(_repository(lookup.repositories[name]) for name in names),
        packages=tuple(_package(package) for package in packages),
        other_providers=_other_providers(lookup, chosen, offer),
        build_packages=tuple(_package(package) for package in (*compiled.build_packages, *headers)) if compiled else (),
        build_image=compiled.build_image if compiled else "",
        files=tuple(remote_file(lookup, name) for name in (row.files if row else ())),
        installer=remote_file(lookup, row.installer) if row and row.installer else None,
        wheels=_wheels(offer),
        toolkit=_toolkit(offer),
        apt=_apt(offer, whole),
        cuda=offer.stands_in,
        components=packaged.components if packaged else (),
        build_apt=packaged.build_packages if packaged and _uses_nvcc(whole, offer) else (),
    )


def _apt(offer: Offer, whole: Variant) -> tuple[str, ...]:
    """The system's own Debian packages that an offer needs: CUDA itself, or libraries that the offer's wheels need."""
    if offer.row is None:
        return ()
    if offer.row.package_set is not None:  # frameworks that bring CUDA need only the compiler from the system
        return offer.row.package_set.packages if whole.cuda_libraries == "system" else ()
    return offer.row.wheels.apt if offer.row.wheels else ()


def _uses_nvcc(variant: Variant, offer: Offer) -> bool:
    """Whether CUDA's compiler builds ``variant`` on a base that has the compiler. With ``optional_nvcc``, the build also needs
    NCCL as a wheel."""
    is_wheel = (variant.nccl and variant.nccl.taken_from == "wheels") or (offer.nccl and offer.nccl.wheel)
    return variant.nvcc or (variant.optional_nvcc and bool(is_wheel))


def _compiled(framework: Framework, variant: Variant, offer: Offer, base: Base) -> Framework:
    """Return the framework, marked with ``nvcc`` if CUDA's compiler builds it. This is so if it needs the compiler, or if it
    can use a compiler and the base has one."""
    return replace(framework, nvcc=framework.nvcc or (bool(base.build_apt) and _uses_nvcc(variant, offer)))


def _toolkit(offer: Offer) -> tuple[ToolkitLink, ...]:
    links = offer.row.wheels.toolkit if offer.row and offer.row.wheels else ()
    return tuple(ToolkitLink(name=name, target=target) for name, target in links)


def _wheels(offer: Offer) -> tuple[CudaWheel, ...]:
    """The wheels that an offer brings: those of CUDA, cuDNN and NCCL."""
    libraries = (library.wheel.wheel for library in (offer.cudnn, offer.nccl) if library and library.wheel)
    found = (*(offer.row.wheels.wheels if offer.row and offer.row.wheels else ()), *libraries)
    return tuple(CudaWheel(requirement=wheel.requirement, folder=wheel.folder) for wheel in found)


def _other_providers(lookup: Lookup, chosen: Candidate, taken: Offer) -> tuple[str, ...]:
    """The other providers with which the environment could be made, best first: all that offer the versions, CUDA and system
    of ``chosen``, except that of ``taken``. The user's own image (``local``) can always be used, so it is listed, too."""
    found: list[Offer] = []
    for variant in _same_name(lookup, chosen):
        found.extend(offers_on(lookup, variant, chosen.place.system, "")[0])
    ordered = sorted(found, key=lambda offer: (offer.deleted, -offer.preference))
    words = [*(offer.provider for offer in ordered), "local"]
    return tuple(word for word in dict.fromkeys(words) if word != taken.provider)


def framework_of(build: Build, python: str, cuda: str, beside: Sequence[Build] = ()) -> Framework:
    """Describe a build as a framework of an environment with this Python and CUDA. ``beside`` are the builds in the same
    prefix; ``build`` itself may be one of them."""
    table, release, variant = build.framework, build.release, build.variant
    return Framework(
        name=table.name,
        version=release.version,
        package=variant.package,
        variant=variant.name,
        requirements=(*variant.pins(release.version), *_holding(variant.requirements, python)),
        constraints=(*_holding(variant.constraints, python), *_holding(choices_of(build, beside), python)),
        recipe=table.recipe,
        released=release.released,
        index=variant.index,
        cuda_libraries=variant.cuda_libraries,
        options={**dict(variant.options), **_elsewhere(variant)},
        cuda=variant.cuda if variant.cuda not in ("", cuda) else "",
        nvcc=variant.nvcc,
        compute_capability=_to_compile_for(variant),
        files=tuple(_pinned(wheel) for wheel in variant.files if wheel.python == python),
    )


def _pinned(wheel: PinnedWheel) -> PinnedFile:
    return PinnedFile(filename=wheel.filename, sha256=wheel.sha256, requires=wheel.requires, source=wheel.source)


def _to_compile_for(variant: Variant) -> ComputeCapability | None:
    known = variant.sass or variant.ptx
    return ComputeCapability(sass=variant.sass, ptx=variant.ptx) if variant.repository and known else None


def _elsewhere(variant: Variant) -> dict[str, str]:
    """For a build that does not come from a package index, return where it comes from, as options of the recipe. The keys are
    the fields of the matrix row."""
    keys = ("repository", "revision", "distribution")
    return {key: value for key in keys if (value := getattr(variant, key))}


def _holding(requirements: tuple[Requirement, ...], python: str) -> tuple[str, ...]:
    return tuple(item.requirement for item in requirements if within(python, item.python))


def _system(row: SystemRow) -> System:
    return System(
        name=row.name,
        family=row.family,
        version=row.version,
        codename=row.codename,
        image=row.image,
        glibc=row.glibc,
        bootstrap_suite=row.bootstrap_suite,
        init_package=row.init_package,
        init=row.init,
        packages=row.packages,
    )


def _repository(row: RepositoryRow) -> AptRepository:
    return AptRepository(
        name=row.name,
        url=row.url,
        suite=row.suite,
        components=row.components,
        key_url=row.key_url,
        key_fingerprint=row.key_fingerprint,
    )


def _package(row: PackageRow) -> AptPackage:
    return AptPackage(name=row.name, version=row.version, repository=row.repository, url=row.url, sha256=row.sha256)


def _version(library: ChosenLibrary | None) -> str | None:
    return library.version if library else None


def _require(lookup: Lookup, cuda: str, stated: str) -> str:
    """The condition on the driver for the container runtime (NVIDIA_REQUIRE_CUDA). With minor-version compatibility, any driver
    for the same major version of CUDA is enough."""
    major = cuda.partition(".")[0]
    return stated or (f"cuda>={major}.0" if major in lookup.rules else f"cuda>={cuda}")
