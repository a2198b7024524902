"""Joins the needs of several builds that go into one environment, and finds conflicts between two builds.

Builds are compatible if these conditions hold: one Python, one system, one CUDA in the image and one release of each library
suit all builds. No framework is needed in two different builds. The requirements of all builds on the same packages can be met
at once. A build with CUDA in its own packages may have another CUDA than the image.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import NamedTuple

from envbuild.errors import Conflict
from envbuild.matrix.libraries import accepts, describe
from envbuild.matrix.package_pins import NO_VERSION, Pin, brings, contradiction, packages_of, pins_of
from envbuild.matrix.pairs import bad_pair, pairs_with, range_of
from envbuild.matrix.types import FrameworkTable, LibraryNeed, Variant
from envbuild.matrix.versions import numbers, within
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, objection
from envbuild.resolve.search.placement import system_objections

LIBRARIES = ("cudnn", "nccl")


class PresentBuild(NamedTuple):
    """A build in an environment: either a chosen build, or the build of an add-on's base framework."""

    framework: str
    version: str
    variant: str


class JointNeed(NamedTuple):
    """The joint needs of builds. Needs that cannot exclude another build are left out. ``device`` is empty if the builds allow
    any device.

    ``cuda`` is the CUDA version of the libraries that the image must have, or of the nvcc that compiles the build. ``holds``
    are the builds themselves and the builds of their base frameworks. ``cudnn`` and ``nccl`` are pairs: the CUDA version to
    which the library belongs, and the need.
    """

    pythons: tuple[str, ...]
    systems: frozenset[str]
    device: str
    cuda: str
    cudnn: tuple[str, LibraryNeed] | None
    nccl: tuple[str, LibraryNeed] | None
    holds: frozenset[PresentBuild]
    pins: frozenset[Pin]


def need_of(lookup: Lookup, build: Build) -> JointNeed:
    """Return the needs of one build."""
    key = (build.framework.name, build.release.version, build.variant.name, build.variant.upon, build.beside_gpus)
    return lookup.once("need", key, lambda: _need_of(lookup, build))


def _need_of(lookup: Lookup, build: Build) -> JointNeed:
    variant = build.variant
    in_image = variant.cuda if variant.cuda_libraries == "system" or variant.nvcc else ""
    return JointNeed(
        pythons=variant.python,
        systems=frozenset(row.name for row in lookup.matrix.systems if not system_objections(variant, row)),
        device="gpu" if variant.cuda else "" if build.beside_gpus else "cpu",
        cuda=in_image,
        cudnn=(variant.cuda, variant.cudnn) if variant.cudnn else None,
        nccl=(variant.cuda, variant.nccl) if variant.nccl else None,
        holds=holds(build),
        pins=pins_of(build.release, variant),
    )


def holds(build: Build) -> frozenset[PresentBuild]:
    """A build and the builds of its base frameworks."""
    below = (PresentBuild(*under) for under in build.variant.upon)
    return frozenset((PresentBuild(build.framework.name, build.release.version, build.variant.name), *below))


def join(one: JointNeed, other: JointNeed) -> JointNeed | None:
    """The joint needs of both, or None if they are not compatible."""
    if one.cuda and other.cuda and one.cuda != other.cuda:
        return None
    if one.device and other.device and one.device != other.device:
        return None
    systems = one.systems & other.systems
    pythons = one.pythons if one.pythons == other.pythons else _common(one, other)
    held = one.holds | other.holds
    if not systems or not pythons or len({each.framework for each in held}) < len(held):
        return None
    pins = one.pins | other.pins
    if len(pins) > max(len(one.pins), len(other.pins)):
        pythons = tuple(python for python in pythons if not contradiction(pins, python))
    cudnn, nccl = _library(one.cudnn, other.cudnn), _library(one.nccl, other.nccl)
    if not pythons or cudnn == () or nccl == ():
        return None
    return JointNeed(
        pythons=pythons,
        systems=systems,
        device=one.device or other.device,
        cuda=one.cuda or other.cuda,
        cudnn=cudnn or None,
        nccl=nccl or None,
        holds=held,
        pins=pins,
    )


def shared(need: JointNeed) -> JointNeed:
    """Return the part of a need that concerns the whole image. Python and the packages are left out, because each prefix has
    its own."""
    return need._replace(pythons=("",), holds=frozenset(), pins=frozenset())


def _common(one: JointNeed, other: JointNeed) -> tuple[str, ...]:
    return tuple(python for python in one.pythons if python in other.pythons)


def _held_twice(one: Iterable[PresentBuild], other: Iterable[PresentBuild]) -> tuple[PresentBuild, PresentBuild] | None:
    """Two different builds of the same framework, the first from ``one`` and the second from ``other``; None if there are no
    such builds."""
    known = {held.framework: held for held in sorted(one)}
    found = (held for held in sorted(other) if known.get(held.framework, held) != held)
    return next(((known[held.framework], held) for held in found), None)


_Library = tuple[str, LibraryNeed] | None


def _library(one: _Library, other: _Library) -> _Library | tuple[()]:
    """Return the joint need of a library; an empty tuple if no release of the library can satisfy both needs.

    A library in the image must satisfy all builds that use it. A library that comes with a framework does not concern the other
    builds.
    """
    if one is None or other is None:
        return one or other
    ours, theirs = (need.taken_from == "system" for _, need in (one, other))
    if not (ours and theirs):
        return one if ours else other if theirs else _brought(one, other)
    both = _both(one[1], other[1])
    return (one[0], both) if both else ()


def _brought(one: tuple[str, LibraryNeed], other: tuple[str, LibraryNeed]) -> tuple[str, LibraryNeed]:
    """Return the need to show if two frameworks each bring the library. If both install a package of the same name, return the
    joint need, else the need for the newer library."""
    newest = max(one, other, key=_newness)
    wheels = one[1].taken_from == other[1].taken_from == "wheels"
    both = _both(one[1], other[1]) if wheels and one[0].partition(".")[0] == other[0].partition(".")[0] else None
    return (newest[0], both) if both else newest


def _newness(library: tuple[str, LibraryNeed]) -> tuple[object, ...]:
    cuda, need = library
    return numbers(cuda or "0"), numbers(need.prefer or need.minimum or "0"), repr(need)


def _both(one: LibraryNeed, other: LibraryNeed) -> LibraryNeed | None:
    for exact, free in ((one, other), (other, one)):
        if exact.exact:
            return exact if accepts(free, exact.prefer) else None
    minimum = max(one.minimum, other.minimum, key=lambda version: numbers(version or "0"))
    below = min(filter(None, (one.below, other.below)), key=numbers, default="")
    if minimum and below and numbers(minimum) >= numbers(below):
        return None
    both = one._replace(minimum=minimum, below=below, prefer="")
    preferred = [need.prefer for need in (one, other) if need.prefer and accepts(both, need.prefer)]
    return both._replace(prefer=max(preferred, key=numbers, default=""))


def together(builds: Sequence[Build]) -> Variant:
    """Join compatible builds into one variant, to find the places where all of them can run. Fields that have no joint value
    are taken from one of the builds."""
    variants = [build.variant for build in builds]
    if len(variants) == 1:
        return variants[0]
    in_image = [variant for variant in variants if variant.cuda_libraries == "system"]
    gpu = [variant for variant in variants if variant.cuda]
    main = in_image[0] if in_image else max(gpu, key=lambda variant: (variant.nvcc, numbers(variant.cuda)), default=variants[0])
    allowed = [set(variant.systems) for variant in variants if variant.systems]
    wheels = (variant.package for variant in variants if variant.cuda_libraries == "wheels")
    return main._replace(
        name=" + ".join(variant.name for variant in variants),
        package=" + ".join(variant.package for variant in variants),
        python=_shared_pythons(builds),
        cudnn=_merged(variants, "cudnn"),
        nccl=_merged(variants, "nccl"),
        glibc=max((variant.glibc for variant in variants), key=numbers),
        nvcc=any(variant.nvcc for variant in variants),
        optional_nvcc=any(variant.optional_nvcc for variant in variants),
        exact_cuda=any(variant.exact_cuda for variant in variants),
        systems=tuple(sorted(set.intersection(*allowed))) if allowed else (),
        beside_wheels=next(wheels, ""),
    )


def _shared_pythons(builds: Sequence[Build]) -> tuple[str, ...]:
    """Return the Pythons that all builds support and on which the packages of all builds can be installed together."""
    first, *others = (build.variant.python for build in builds)
    pythons = tuple(python for python in first if all(python in each for each in others))
    pins = _joint_pins(builds)
    # Requirements that hold for every Python were already compared when the builds were chosen.
    if not any(only for _, only, _ in pins):
        return pythons
    return tuple(python for python in pythons if not contradiction(pins, python))


def _joint_pins(builds: Iterable[Build]) -> frozenset[Pin]:
    return frozenset(pin for build in builds for pin in pins_of(build.release, build.variant))


def _merged(variants: Iterable[Variant], library: str) -> LibraryNeed | None:
    needs: list[_Library] = [(variant.cuda, need) for variant in variants if (need := getattr(variant, library)) is not None]
    found = reduce(lambda one, other: _library(one, other) or one, needs) if needs else None
    return found[1] if found else None


def shared_names(lookup: Lookup, frameworks: Sequence[FrameworkTable]) -> frozenset[str]:
    """The frameworks, and the packages (as ``name=``), that occur in builds of several frameworks: only such frameworks and
    packages can cause conflicts."""
    times: Counter[str] = Counter()
    for table in frameworks if len(frameworks) > 1 else ():
        times.update(lookup.once("names", table.name, partial(_names_in, table)))
    return frozenset(name for name, count in times.items() if count > 1)


def _names_in(table: FrameworkTable) -> frozenset[str]:
    builds = [variant for release in table.releases for variant in release.variants]
    below = (under[0] for variant in builds for under in variant.upon)
    return frozenset({table.name, *below, *(f"{package}=" for variant in builds for package in packages_of(variant))})


def reduced(need: JointNeed, names: Collection[str]) -> JointNeed:
    """Return a need without the frameworks and packages that are not in ``names``."""
    return need._replace(
        holds=frozenset(held for held in need.holds if held.framework in names),
        pins=frozenset(pin for pin in need.pins if f"{pin[0]}=" in names),
    )


def same_packages(builds: Sequence[Build]) -> Iterator[tuple[Build, Build]]:
    """Return the pairs of builds that need packages of the same major version of CUDA, but of different minor versions.

    Only one build's packages can be installed: the names of these packages contain only the major version, and many builds pin
    the packages exactly: https://github.com/ICAMS/grace-tensorpotential/issues/23
    """
    pairs = itertools.combinations(builds, 2)
    yield from ((one, other) for one, other in pairs if one.variant.cuda != other.variant.cuda and share_packages(one, other))


def share_packages(one: Build, other: Build) -> bool:
    """Whether both builds bring the same major version of CUDA, in packages with the same names."""
    ours, theirs = one.variant, other.variant
    wheels = ours.cuda_libraries == theirs.cuda_libraries == "wheels"
    return wheels and ours.cuda.partition(".")[0] == theirs.cuda.partition(".")[0]


# --- in words ---------------------------------------------------------------------------------------------------------


def clashes(lookup: Lookup, builds: Sequence[Build]) -> list[Objection]:
    """The conflicts that prevent builds from sharing one environment. Each conflict names the two rows and their sources."""
    found = (item for index, other in enumerate(builds) for item in clashes_with(lookup, other, builds[:index]))
    return list(dict.fromkeys(found))


def clashes_with(lookup: Lookup, build: Build, others: Sequence[Build]) -> list[Objection]:
    """The first conflict of ``build`` with each of the ``others`` in one environment."""
    kinds = (_stands_clash, _device_clash, _cuda_clash, _python_clash, _system_clash, _library_clash, _package_clash)
    return _first_clashes(lookup, build, others, kinds)


def image_clashes(lookup: Lookup, build: Build, others: Sequence[Build]) -> list[Objection]:
    """The first conflict of ``build`` with each of the ``others`` in one image, even in separate prefixes."""
    return _first_clashes(lookup, build, others, (_device_clash, _cuda_clash, _system_clash, _library_clash))


_Side = tuple[Build, JointNeed]
_Clash = Callable[[_Side, _Side], Iterator[Objection]]


def _first_clashes(lookup: Lookup, build: Build, others: Sequence[Build], kinds: Sequence[_Clash]) -> list[Objection]:
    ours = (build, need_of(lookup, build))
    found: list[Objection] = []
    for other in others:
        theirs = (other, need_of(lookup, other))
        found += next(filter(None, (list(clash(theirs, ours)) for clash in kinds)), [])
    return found


def _stands_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    twice = _held_twice(ours[1].holds, theirs[1].holds)
    if twice is None:
        return
    sides = list(zip((ours[0], theirs[0]), twice, reversed(twice), strict=True))
    if told := [found for build, _, other in sides if (found := _pair_clash(build, other))]:
        yield from told
        return
    for build, held, other in sides:
        itself = f"is a different build than {other.framework} {other.version} {other.variant}"
        below = f"is based on {held.framework} {held.version} {held.variant}"
        yield _fact(build, itself if held.framework == build.framework.name else below, "upon")


def _pair_clash(build: Build, other: PresentBuild) -> Objection | None:
    """The reason why a build cannot be based on ``other``; found only if the build's row lists the compatible releases."""
    pairs = pairs_with(build.release, other.framework)
    if pairs is None or len(pairs.tested) + len(pairs.allowed) + len(pairs.bad) < 2 or build.framework.name == other.framework:
        return None
    if bad := bad_pair(pairs, other.version):
        return objection(None, build.row, f"does not work with {other.framework} {other.version}: {bad.why}", bad.source)
    if other.version in (*pairs.tested, *pairs.allowed):
        return None
    return objection(None, build.row, f"works with {range_of(pairs)}, but not with {other.version}", pairs.allows_source)


def _device_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    if {ours[1].device, theirs[1].device} == {"cpu", "gpu"}:
        for build, need in (ours, theirs):
            kind = "a build for CPUs" if need.device == "cpu" else "a build for GPUs"
            yield _fact(build, f"is {kind}; an environment is either for GPUs or for CPUs", "cuda")


def _cuda_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    if ours[1].cuda and theirs[1].cuda and ours[1].cuda != theirs[1].cuda:
        for build, need in (ours, theirs):
            yield _fact(build, f"needs CUDA {need.cuda} in the image, which can contain only one CUDA", "cuda")


def _python_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    if not _common(ours[1], theirs[1]):
        for build, need in (ours, theirs):
            yield _fact(build, f"supports Python {', '.join(need.pythons)}", "python")


def _system_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    if ours[1].systems.isdisjoint(theirs[1].systems):
        for build, need in (ours, theirs):
            only = f"supports only {', '.join(build.variant.systems)}"
            some = f"needs glibc {build.variant.glibc}: {', '.join(sorted(need.systems)) or 'no system has it'}"
            yield _fact(build, only if build.variant.systems else some, "systems" if build.variant.systems else "glibc")


def _library_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    for library in LIBRARIES:
        needs = [getattr(need, library) for _, need in (ours, theirs)]
        if _library(*needs) == ():
            for (build, _), need in zip((ours, theirs), needs, strict=True):
                yield _fact(
                    build, f"needs {library} {describe(need[1])} in the image, which can contain only one version", library
                )


def _package_clash(ours: _Side, theirs: _Side) -> Iterator[Objection]:
    yield from package_clashes((ours[0], theirs[0]), _common(ours[1], theirs[1]))


def package_clashes(builds: Sequence[Build], pythons: Sequence[str]) -> Iterator[Objection]:
    """The requirements because of which builds cannot share one set of packages. Nothing is yielded if the builds can share one
    set on at least one of ``pythons``."""
    pins = _joint_pins(builds)
    packages = {python: contradiction(pins, python) for python in pythons}
    if packages and all(packages.values()):
        for package in sorted(set(packages.values())):
            python = next(python for python, found in packages.items() if found == package)
            yield from (_asks(build, package, python) for build in builds)


def _fact(build: Build, reason: str, field: str) -> Objection:
    return objection(None, build.row, reason, build.variant.origin.source_of(field))


def _asks(build: Build, package: str, python: str) -> Objection:
    """Return what a build requires of a package if it runs on ``python``."""
    for item in (*build.variant.requirements, *build.variant.constraints, *build.variant.asks):
        if not within(python, item.python):
            continue
        only = build.variant._replace(requirements=(item,), constraints=(), asks=(), repository="-", cudnn=None, nccl=None)
        if any(name == package for name, _, _ in pins_of(build.release, only)):
            pythons = f" on Python {item.python}" if item.python else ""
            said = f"asks for {item.requirement}{pythons}"
            if item.requirement == f"{package}{NO_VERSION}":
                said = f"must not share a set of packages with {package}{pythons}"
            if not item.source:
                said = f"must have {item.requirement}{pythons} because of its row ({build.variant.origin.at})"
            source = item.source or build.variant.origin.source_of("constraints")
            return Objection(None, Conflict(row=build.row, reason=said, source=source))
    if package in brings(build.variant):
        library = package.split("-")[1]
        return _fact(build, f"gets {library} {describe(getattr(build.variant, library))} from {package}", library)
    return _fact(build, f"is installed as {', '.join(build.variant.pins(build.release.version))}", "package")
