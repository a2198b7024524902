"""The places where a build can run, best first: operating system, Python, and the base that brings CUDA.

The same functions find possible places and explain why other places are impossible. The rules themselves are in
``matrix.placement``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, cast

from envbuild.matrix.libraries import accepted_releases, accepts, describe, drops
from envbuild.matrix.placement import (
    bases_on,
    can_compile,
    has_fixed_libraries,
    has_glibc,
    has_its_cuda,
    headers_wheel,
    is_for,
    library_inside,
    packages_for,
    wheels_for,
)
from envbuild.matrix.platform import CudaRow, LibraryPackage, LibraryRow, LibraryWheel, ProviderRow, SystemRow
from envbuild.matrix.types import LibraryNeed, Variant
from envbuild.matrix.versions import newest_first, within
from envbuild.model.environment import Python
from envbuild.model.words import Provider
from envbuild.resolve.request.model import BASE, CUDA, GPU, SYSTEM
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, SupportingField, objection, status_objection
from envbuild.resolve.search.pythons import python_on

# The requested versions of cuDNN and NCCL.
Asked = tuple[str, str]
NOT_ASKED: Asked = ("", "")
_NO_HEADERS = " and no wheel of NCCL; to compile, the headers in that wheel are needed"


class ChosenLibrary(NamedTuple):
    """A chosen release of cuDNN or NCCL. ``row`` is None for a library that the framework or an image brings. ``package`` is
    set only if apt installs the library, ``wheel`` only if it comes as a wheel."""

    version: str
    row: LibraryRow | None
    package: LibraryPackage | None
    wheel: LibraryWheel | None = None


class Offer(NamedTuple):
    """A provider on one system, with the libraries that it would bring. ``deleted`` is true if its image was deleted upstream.
    ``cuda`` is the CUDA version that the frameworks are built for."""

    provider: Provider
    row: ProviderRow | None
    cudnn: ChosenLibrary | None
    nccl: ChosenLibrary | None
    cuda: str = ""

    @property
    def deleted(self) -> bool:
        """Whether the image was deleted upstream. Such a provider is used only if the request names it."""
        return self.row is not None and self.row.origin.status == "base-deleted"

    @property
    def stands_in(self) -> str:
        """The CUDA version of the libraries if it is a later minor version than the version that the frameworks are built for;
        else empty."""
        return self.row.cuda if self.row and self.row.cuda != self.cuda else ""

    @property
    def preference(self) -> int:
        """The preference of the provider's row. Offers with a higher preference are chosen first."""
        return self.row.preference if self.row else 0


def on_libraries(variant: Variant, cuda: str) -> Variant:
    """If the build uses CUDA from the system, replace the build's CUDA version by ``cuda``, the version of the libraries.
    ``cuda`` is empty if the libraries have the version that the build is built for."""
    return variant._replace(cuda=cuda) if cuda and variant.cuda_libraries == "system" else variant


class Place(NamedTuple):
    """A place where builds can run: an operating system, a Python, and an offer of a provider."""

    system: SystemRow
    python: Python
    offer: Offer


def places(
    lookup: Lookup,
    variant: Variant,
    image: str = "",
    asked: Asked = NOT_ASKED,
    supply: str = "",
    *,
    gpus: tuple[str, ...] = (),
) -> list[Place]:
    """All possible places of ``variant``, best first. Places with libraries of exactly the variant's CUDA come first. Among
    them, Python's supply decides, then Python's version, the provider and the system. Places whose CUDA comes from a
    distribution's own packages follow all these. Places whose base image was deleted from its registry are at the very end.

    If several releases of a library fit, each place has the best release that satisfies ``asked``. If none satisfies it, the
    place has the best of all releases. With ``supply``, only places are returned whose Python comes from that supply. The
    libraries support the compute capabilities ``gpus``.
    """
    key = (
        variant.python,
        variant.cuda,
        variant.cuda_libraries,
        variant.cudnn,
        variant.nccl,
        variant.glibc,
        variant.systems,
        variant.nvcc,
        variant.beside_wheels,
        variant.optional_nvcc,
        variant.exact_cuda,
        image,
        asked,
        supply,
        gpus,
    )
    found = partial(_places, lookup, variant, image, asked, supply=supply, gpus=gpus)
    return lookup.once("places", key, lambda: sorted(found(), key=partial(_rank, lookup)))


def _places(
    lookup: Lookup, variant: Variant, image: str, asked: Asked, *, supply: str, gpus: tuple[str, ...]
) -> Iterator[Place]:
    for system in lookup.matrix.systems:
        if system_objections(variant, system):
            continue
        offers, _ = offers_on(lookup, variant, system, image, asked, gpus=gpus)
        if not offers:
            continue
        for version in variant.python:
            python = python_on(lookup, version, system, image, supply)
            if isinstance(python, Python):
                for offer in offers:
                    yield Place(system=system, python=python, offer=offer)


def _rank(lookup: Lookup, place: Place) -> tuple[object, ...]:
    order = lookup.matrix.policy.python_from
    supply = order.index(place.python.provided_by) if place.python.provided_by in order else len(order)
    row = lookup.pythons.get(place.python.version)
    return (
        place.offer.deleted,
        place.offer.provider == "debian",
        bool(place.offer.stands_in),
        supply,
        -(row.preference if row else 0),
        newest_first(place.python.version),
        -place.offer.preference,
        -place.system.preference,
        place.system.name,
        place.offer.provider,
        place.offer.row.image if place.offer.row else "",
    )


def system_objections(variant: Variant, system: SystemRow) -> list[Objection]:
    """The objections to a build on a system that hold for every Python and every base."""
    found = []
    if not has_glibc(system, variant):
        reason = f"has glibc {system.glibc}; {variant.package} ({variant.name}) needs {variant.glibc}"
        found.append(objection(SYSTEM, system.key, reason, system.origin.source_of("glibc"), "glibc"))
    if not is_for(variant, system):
        reason = f"{variant.package} ({variant.name}) supports only {', '.join(variant.systems)}"
        found.append(objection(SYSTEM, system.key, reason, variant.origin.source_of("systems")))
    if system.origin.status == "known-bad":
        found.append(objection(SYSTEM, system.key, system.origin.why_bad, system.origin.source))
    return found


def offers_on(
    lookup: Lookup,
    variant: Variant,
    system: SystemRow,
    image: str,
    asked: Asked = NOT_ASKED,
    *,
    gpus: tuple[str, ...] = (),
) -> tuple[list[Offer], dict[str, Objection]]:
    """The providers that can serve a build on a system, and an objection to each provider that cannot. An objection under the
    key ``""`` applies to all providers."""
    if image:
        return [_plain_offer(lookup, variant, "local")], {}
    if variant.cuda_libraries == "none":
        return [_plain_offer(lookup, variant, "distribution")], {}
    cuda = lookup.cuda.get(variant.cuda)
    if cuda is None:
        reason = f"{variant.package} is built for CUDA {variant.cuda}, which the matrix does not contain"
        return [], {"": objection(CUDA, f"cuda {variant.cuda}", reason, variant.origin.source)}
    if variant.cuda_libraries in ("wheels", "bundled"):
        return _with_compilers(variant, cuda, system, _plain_offer(lookup, variant, "wheels"))
    offers: list[Offer] = []
    against: dict[str, Objection] = {}
    for row in bases_on(cuda, system):
        offer = _offer(lookup, variant, system, row, asked=asked, gpus=gpus)
        if isinstance(offer, Offer):
            offers.append(offer)
        else:
            against.setdefault(row.provider, offer)
    if not offers and not against:
        reason = f"no provider has CUDA {cuda.version} for {system.name}"
        against[""] = objection(SYSTEM, cuda.key, reason, cuda.origin.source)
    return offers, against


def _with_compilers(
    variant: Variant, cuda: CudaRow, system: SystemRow, plain: Offer
) -> tuple[list[Offer], dict[str, Objection]]:
    """The ``plain`` offer, unless the build needs a CUDA compiler, and offers of the same base with a compiler if the build can
    use one. Offers with a compiler bring nothing else, because the framework's packages bring CUDA's libraries."""
    build = f"{variant.package} ({variant.name})"
    compiled = f"{build} is compiled by nvcc"
    has_headers = variant.nccl is not None and variant.nccl.taken_from == "wheels"
    uses_compiler = variant.nvcc or (variant.optional_nvcc and has_headers)
    offers: list[Offer] = [] if variant.nvcc else [plain]
    against: dict[str, Objection] = {}
    for row in (each for each in bases_on(cuda, system) if each.package_set is not None):
        key = _key(variant, system, row)
        if row.origin.status == "known-bad":
            against[row.provider] = objection(BASE, key, row.origin.why_bad, row.origin.source)
        elif uses_compiler and row.compiles:
            offers.append(plain._replace(provider=cast(Provider, row.provider), row=row, cuda=variant.cuda))
        else:
            what, lack = ("a compiler", _NO_HEADERS) if variant.optional_nvcc else ("CUDA into the system", "")
            unneeded = f"installs {what}, but {build} has CUDA in its own packages{lack}"
            reason = f"no document says that it contains a compiler, and {compiled}" if variant.nvcc else unneeded
            against[row.provider] = objection(BASE, key, reason, row.origin.source)
    if variant.nvcc and (offers or against):
        key = f"cuda {cuda.version} {plain.provider} {system.name}"
        against[plain.provider] = objection(BASE, key, f"the wheels have no nvcc, and {compiled}", cuda.origin.source)
    elif variant.nvcc:
        reason = f"{system.name} has no nvcc for CUDA {cuda.version} among its own packages, and {compiled}"
        against[""] = objection(SYSTEM, cuda.key, reason, cuda.origin.source)
    return offers, against


def _plain_offer(lookup: Lookup, variant: Variant, provider: Provider) -> Offer:
    """Return the offer of a base without CUDA libraries. A user's own image is assumed to contain the libraries that the
    framework needs."""
    found = {}
    for library, need in (("cudnn", variant.cudnn), ("nccl", variant.nccl)):
        version = "" if need is None else need.prefer
        if need is not None and not version:
            version = next((row.version for row in library_releases(lookup, library, variant.cuda, need)), "")
        found[library] = ChosenLibrary(version=version, row=None, package=None) if version else None
    return Offer(provider=provider, row=None, cudnn=found["cudnn"], nccl=found["nccl"])


def _offer(
    lookup: Lookup, variant: Variant, system: SystemRow, row: ProviderRow, *, asked: Asked, gpus: tuple[str, ...]
) -> Offer | Objection:
    if against := _base_objection(lookup, variant, system, row):
        return against
    chosen: dict[str, ChosenLibrary | None] = {}
    for library, clauses in zip(("cudnn", "nccl"), asked, strict=True):
        found = _library(lookup, variant, system, row, asked=(library, clauses), gpus=gpus)
        if isinstance(found, Objection):
            return found
        if found is not None and (dropped := _dropped(lookup, variant, library, found.version, gpus)):
            return dropped
        if found is not None and found.wheel and variant.beside_wheels:
            return _same_paths(library, variant, system, row)
        chosen[library] = found
    provider = cast(Provider, row.provider)
    return Offer(provider=provider, row=row, cudnn=chosen["cudnn"], nccl=chosen["nccl"], cuda=variant.cuda)


def _base_objection(lookup: Lookup, variant: Variant, system: SystemRow, row: ProviderRow) -> Objection | None:
    """The objection to a provider that holds for all of its releases of cuDNN and NCCL."""
    key = _key(variant, system, row)
    if row.origin.status == "known-bad":
        return objection(BASE, key, row.origin.why_bad, row.origin.source)
    for name in dict.fromkeys([*row.repositories, *(package.repository for package in row.packages if package.repository)]):
        repository = lookup.repositories.get(name)
        if repository is None:
            return objection(BASE, key, f"names the repository {name}, which the matrix does not contain", row.origin.source)
        if bad := status_objection(f"repository {name}", repository.origin, BASE):
            return bad
    if row.wheels and variant.beside_wheels:
        return _same_paths("CUDA", variant, system, row)
    if not has_its_cuda(row, variant):
        compiles = f"{variant.package} ({variant.name}) compiles code with headers of CUDA {variant.cuda}"
        reason = f"provides CUDA {row.cuda}, but {compiles}"
        return objection(BASE, key, reason, variant.origin.source_of("exact_cuda"))
    if not can_compile(row, variant):
        lack = "the wheels have no nvcc" if row.wheels else "no document says that it contains a compiler"
        reason = f"{lack}, and {variant.package} ({variant.name}) is compiled by nvcc"
        return objection(BASE, key, reason, row.origin.source)
    return None


def _key(variant: Variant, system: SystemRow, row: ProviderRow) -> str:
    return f"cuda {variant.cuda} {row.provider} {system.name}"


def _same_paths(what: str, variant: Variant, system: SystemRow, row: ProviderRow) -> Objection:
    reason = f"installs {what} from wheels that install files at the same paths as the wheels of {variant.beside_wheels}"
    return objection(BASE, _key(variant, system, row), reason, row.origin.source)


def _library(
    lookup: Lookup, variant: Variant, system: SystemRow, row: ProviderRow, *, asked: tuple[str, str], gpus: tuple[str, ...]
) -> ChosenLibrary | Objection | None:
    """A provider's library that satisfies a need; None if nothing is needed. ``asked`` has the library's name and its requested
    version."""
    library, clauses = asked
    need = variant.cudnn if library == "cudnn" else variant.nccl
    if need is None:
        return None
    if need.taken_from != "system":
        wheel = headers_wheel(lookup.libraries["nccl"], need, row) if library == "nccl" and variant.optional_nvcc else None
        return ChosenLibrary(version=need.prefer, row=None, package=None, wheel=wheel) if need.prefer else None
    if has_fixed_libraries(row):
        return _inside_tag(variant, system, row, library, need)
    found = library_releases(lookup, library, variant.cuda, need)
    serving = [release for release in found if not any(drops(release, gpu) for gpu in gpus)]
    candidates = sorted(serving, key=lambda release: not within(release.version, clauses))
    brought = (made for candidate in candidates if (made := _brought(lookup, variant, system, row, candidate)) is not None)
    if (chosen := next(brought, None)) is not None:
        return chosen
    if found and not serving:
        return _dropped(lookup, variant, library, found[0].version, gpus)
    if found:
        headers = " with its headers" if variant.nvcc else ""
        reason = f"has no package of {library} {describe(need)}{headers} for CUDA {variant.cuda} on {system.name}"
        if row.cuda:
            reason = f"has no wheel of {library} {describe(need)}{headers} for CUDA {row.cuda}"
        return objection(SYSTEM, found[0].key, reason, found[0].origin.source)
    reason = f"the matrix has no {library} {describe(need)} for CUDA {variant.cuda}"
    return objection(CUDA, f"{library} for cuda {variant.cuda}", reason, variant.origin.source_of(library))


def _brought(
    lookup: Lookup, variant: Variant, system: SystemRow, row: ProviderRow, release: LibraryRow
) -> ChosenLibrary | None:
    """The release as a provider installs it: by apt, as a wheel or in another way; None if the provider does not have the
    release."""
    if row.cuda:
        wheels = [item for item in wheels_for(release, row) if item.origin.status != "known-bad"]
        usable = wheels and not variant.nvcc  # a compiler does not find the headers in a wheel
        return ChosenLibrary(version=release.version, row=release, package=None, wheel=wheels[0]) if usable else None
    if row.provider != "apt":
        return ChosenLibrary(version=release.version, row=release, package=None)
    for package in packages_for(release, variant.cuda, system):
        if _installable(lookup, package) and (package.dev or not variant.nvcc):
            return ChosenLibrary(version=release.version, row=release, package=package)
    return None


def _dropped(lookup: Lookup, variant: Variant, library: str, version: str, gpus: tuple[str, ...]) -> Objection | None:
    """The objection to a library in the image that no longer supports one of the GPUs; None if it supports all of them."""
    need = variant.cudnn if library == "cudnn" else variant.nccl
    row = next((each for each in lookup.libraries[library] if each.version == version), None)
    if row is None or need is None or need.taken_from != "system":
        return None
    lost = [capability for capability in gpus if drops(row, capability)]
    if not lost:
        return None
    reason = f"supports GPUs of compute capability {row.capability_min} or newer, not {', '.join(lost)}"
    return objection(GPU, row.key, reason, row.origin.source_of("capability_min"), "cudnn" if library == "cudnn" else "nccl")


def _installable(lookup: Lookup, package: LibraryPackage) -> bool:
    """Whether the matrix has the repository of a package, and neither the package nor the repository is known bad."""
    name = package.package.repository
    origins = [package.origin, *([lookup.repositories[name].origin] if name in lookup.repositories else ())]
    return (not name or name in lookup.repositories) and all(origin.status != "known-bad" for origin in origins)


def _inside_tag(
    variant: Variant, system: SystemRow, row: ProviderRow, library: str, need: LibraryNeed
) -> ChosenLibrary | Objection:
    """Return the library that an image already contains if it satisfies the need, else an objection. If no source names the
    library, the objection says that the library is unknown, not that it is unsuitable."""
    inside = library_inside(row, library)
    if inside and accepts(need, inside):
        return ChosenLibrary(version=inside, row=None, package=None)
    wanted = f"{variant.package} needs {library} {describe(need)}"
    named = row.image or f"the base of provider {row.provider}"
    known = f"{named} contains {library} {inside}; {wanted}"
    reason = known if inside else f"no source says which {library} {named} contains; {wanted}"
    if row.origin.status == "base-deleted":
        reason += "; also, the image was deleted upstream"
    field: SupportingField = "cudnn" if library == "cudnn" else "nccl"
    return objection(BASE, _key(variant, system, row), reason, row.origin.source, field)


def library_releases(lookup: Lookup, library: str, cuda: str, need: LibraryNeed) -> list[LibraryRow]:
    """Return the releases that satisfy a need. The preferred release comes first, then the newest releases."""
    rows = accepted_releases((row for row in lookup.libraries[library] if row.origin.status != "known-bad"), need, cuda)
    return sorted(rows, key=lambda row: row.version != need.prefer)
