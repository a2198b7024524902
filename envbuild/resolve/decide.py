"""From a chosen candidate to the environment: every field, the canonical name, and the reasons."""

from __future__ import annotations

from dataclasses import replace

from envbuild.matrix.platform import PackageRow, RepositoryRow, SystemRow
from envbuild.matrix.types import Requirement, Variant
from envbuild.matrix.versions import within
from envbuild.model import (
    AptPackage,
    AptRepository,
    Base,
    ComputeCapability,
    Environment,
    Framework,
    Resolution,
    System,
)
from envbuild.resolve.choose import Candidate, solutions
from envbuild.resolve.facts import Facts, code_for, hardware_rows, hardware_warnings, row_of
from envbuild.resolve.overlaid import overlaid
from envbuild.resolve.parse import image_slug
from envbuild.resolve.places import Library, Offer, Place, offers_on, places
from envbuild.resolve.reasons import reasons
from envbuild.resolve.request import Request


def choose(facts: Facts, request: Request) -> Candidate | None:
    """The first candidate in the order of choice that satisfies the whole request, or None.

    A canonical name means itself, also where its version is the beginning of a newer one (2.5 and 2.5.1).
    """
    chosen = next(solutions(facts, request), None)
    version = request.version.removeprefix("==")
    if chosen is None or chosen.release.version == version:
        return chosen
    if version in {release.version for release in request.framework.releases}:
        exact = next(solutions(facts, replace(request, version=f"==={version}")), None)
        if exact is not None and environment_of(facts, request, exact).name.lower() == request.text.lower():
            return exact
    return chosen


def decide(facts: Facts, request: Request, chosen: Candidate) -> Resolution:
    """The resolution for a candidate that satisfies the request."""
    environment = environment_of(facts, request, chosen)
    row = row_of(request.framework.name, chosen.release, chosen.variant)
    hardware = hardware_warnings(facts, request, row, chosen.variant)
    warnings = [
        *request.warnings,
        *hardware,
        *_native_elsewhere(facts, request, chosen),
        *_status_warnings(facts, request, row, chosen),
    ]
    return Resolution(
        request=request.text,
        environment=environment,
        reasons=reasons(facts, request, chosen, environment),
        warnings=tuple(dict.fromkeys(warnings)),
        overlaid=overlaid(facts.matrix, environment, request.gpus),
    )


def environment_of(facts: Facts, request: Request, chosen: Candidate) -> Environment:
    """The environment of a candidate. It depends on what its name says alone, never on the driver or GPU of the request."""
    variant, place = chosen.variant, chosen.place
    cuda = facts.cuda.get(variant.cuda)
    base = _base(facts, request, chosen)
    code = ComputeCapability(sass=variant.sass, ptx=variant.ptx) if variant.sass or variant.ptx else None
    return Environment(
        name=canonical_name(request, chosen, base),
        frameworks=(_framework(request, chosen),),
        python=place.python,
        system=_system(place.system),
        cuda=variant.cuda or None,
        cudnn=_version(place.offer.cudnn),
        nccl=_version(place.offer.nccl),
        base=base,
        driver_min=facts.driver_min(variant.cuda) or None,
        compute_capability=code if variant.cuda else None,
        require_cuda=_require(facts, variant.cuda, cuda.require if cuda else "") if variant.cuda else None,
        exclude_newer=chosen.release.exclude_newer,
    )


def canonical_name(request: Request, chosen: Candidate, base: Base) -> str:
    """The name that spells every choice; the base only where it is not the default."""
    parts = [
        request.framework.short,
        chosen.release.version,
        f"cuda{chosen.variant.cuda}" if chosen.variant.cuda else "cpu",
        f"py{chosen.place.python.version.replace('.', '')}",
        chosen.place.system.name,
    ]
    if not base.is_default:
        parts.append(image_slug(base.image) if base.provider == "local" else base.provider)
    return "-".join(parts)


def default_place(facts: Facts, chosen: Candidate) -> tuple[Variant, Place] | None:
    """What a request for this version, CUDA, Python and system would get if it said nothing of the base."""
    for variant in chosen.release.variants:
        if variant.cuda != chosen.variant.cuda or variant.origin.status == "known-bad":
            continue
        for place in places(facts, variant):
            same = place.system.name == chosen.place.system.name and place.python.version == chosen.place.python.version
            if same and not place.offer.deleted:
                return variant, place
    return None


def _base(facts: Facts, request: Request, chosen: Candidate) -> Base:
    offer, system = chosen.place.offer, chosen.place.system
    usual = default_place(facts, chosen)
    row = offer.row
    libraries = [library.package for library in (offer.cudnn, offer.nccl) if library and library.package]
    packages = [*(row.packages if row else ()), *(item.package for item in libraries)]
    names = dict.fromkeys([*(row.repositories if row else ()), *(p.repository for p in packages if p.repository)])
    return Base(
        provider=offer.provider,
        image=request.image or (row.image if row and row.image else system.image),
        is_default=usual == (chosen.variant, chosen.place),
        repositories=tuple(_repository(facts.repositories[name]) for name in names),
        packages=tuple(_package(package) for package in packages),
        other_providers=_other_providers(facts, chosen, offer),
    )


def _other_providers(facts: Facts, chosen: Candidate, taken: Offer) -> tuple[str, ...]:
    """The providers that would serve the same version, CUDA and system, best first; an image of one's own always would."""
    found: list[Offer] = []
    for variant in chosen.release.variants:
        if variant.cuda == chosen.variant.cuda and variant.origin.status != "known-bad":
            found.extend(offers_on(facts, variant, chosen.place.system, "")[0])
    ordered = sorted(found, key=lambda offer: (offer.deleted, -offer.preference))
    words = [*(offer.provider for offer in ordered), "local"]
    return tuple(word for word in dict.fromkeys(words) if word != taken.provider)


def _framework(request: Request, chosen: Candidate) -> Framework:
    table, release, variant = request.framework, chosen.release, chosen.variant
    python = chosen.place.python.version
    return Framework(
        name=table.name,
        version=release.version,
        package=variant.package,
        variant=variant.name,
        requirements=(*variant.pins(release.version), *_holding(variant.requirements, python)),
        constraints=_holding(variant.constraints, python),
        recipe=table.recipe,
        released=release.released,
        index=variant.index,
        cuda_libraries=variant.cuda_libraries,
        options={**dict(variant.options), **_elsewhere(variant)},
    )


def _elsewhere(variant: Variant) -> dict[str, str]:
    """Where a recipe gets a build that is on no package index; the keys are those of the matrix."""
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


def _version(library: Library | None) -> str | None:
    return library.version if library else None


def _require(facts: Facts, cuda: str, stated: str) -> str:
    """What the container runtime asks of the driver: any of the major where minor-version compatibility holds."""
    major = cuda.partition(".")[0]
    return stated or (f"cuda>={major}.0" if major in facts.rules else f"cuda>={cuda}")


def _native_elsewhere(facts: Facts, request: Request, chosen: Candidate) -> list[str]:
    """A version that needs no compiling at the first start, where the chosen one does and the request leaves the choice."""
    capabilities = [gpu.capability for gpu in request.gpus if gpu.capability and chosen.variant.cuda]
    if all(code_for(chosen.variant, capability) != "ptx" for capability in capabilities):
        return []
    for other in solutions(facts, request):
        if other.variant.cuda and all(code_for(other.variant, capability) == "native" for capability in capabilities):
            return [f"{request.framework.title} {other.release.version}, which the request allows too, has native code for it."]
    return []


def _status_warnings(facts: Facts, request: Request, row: str, chosen: Candidate) -> list[str]:
    place = chosen.place
    rows = [(row, chosen.variant.origin), (place.system.key, place.system.origin)]
    tables = (facts.cuda.get(chosen.variant.cuda), facts.pythons.get(place.python.version))
    rows.extend((found.key, found.origin) for found in tables if found is not None)
    if chosen.variant.cuda:
        rows.extend((found.key, found.origin) for _, found in hardware_rows(facts, request))
    if place.offer.row is not None:
        rows.append((f"base {place.offer.provider} on {place.system.name}", place.offer.row.origin))
    rows.extend(
        (library.row.key, library.row.origin) for library in (place.offer.cudnn, place.offer.nccl) if library and library.row
    )
    found = []
    for name, origin in rows:
        note = f": {origin.note}" if origin.note else ""
        if origin.status == "unknown":
            found.append(f"{name} has not been proved{note or '.'}")
        elif origin.status == "base-deleted":
            found.append(f"{name} was deleted upstream{note or '; it works only where a copy is kept.'}")
    return found
