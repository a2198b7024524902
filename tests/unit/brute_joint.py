"""Judge whole environments: one build of each requested framework, all in one place. All combinations are tried.

Builds must share one Python, one system, one CUDA in the image, and one release of each library there. All or none are for
GPUs. If two builds use the same base framework, they must use the same build of it. For each package there must be a version
that all of them accept.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from brute_force import Judge, Place, Wish, number, satisfies
from brute_world import Build
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

Libraries = tuple[str, ...] | None


def solutions(judge: Judge, wish: Wish) -> Iterator[tuple[tuple[Build, ...], Place]]:
    """Every choice of builds and place that satisfies a wish.

    If there is none: every choice that also contains base frameworks of add-ons, in releases other than the default ones.
    """
    first = next(found := _solutions(judge, wish), None)
    if first is not None:
        yield first
        yield from found
        return
    for more in _subsets(judge.bases(wish)):
        yield from _solutions(judge, with_frameworks(wish, more))


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)


def with_frameworks(wish: Wish, names: Sequence[str]) -> Wish:
    """Add frameworks, each in any version, to the wish."""
    return replace(wish, frameworks=(*wish.frameworks, *((name, "", "") for name in names)))


def _solutions(judge: Judge, wish: Wish) -> Iterator[tuple[tuple[Build, ...], Place]]:
    levels = [list(judge.builds(wish, *each)) for each in wish.frameworks]
    nowhere: set[tuple[str, ...]] = set()  # kinds of builds without a common place (see Judge.kind)
    known: dict[tuple[int, int], bool] = {}  # by the ids of two builds, which exist while this runs

    def fit(one: Build, other: Build) -> bool:
        key = (id(one), id(other))
        if key not in known:
            known[key] = go_together(judge, wish, one, other)
        return known[key]

    for builds in _choices(fit, levels, ()):
        if wish.device == "gpu" and not any(build.cuda for build in builds):
            continue
        kinds = tuple(map(judge.kind, builds))
        if kinds in nowhere:
            continue
        found = [place for place in shared(judge, builds, wish.image) if judge.fits(place, wish)]
        if not found:
            nowhere.add(kinds)
        for place in found:
            if not contradict(builds, place.python):
                yield builds, place


def _choices(
    fit: Callable[[Build, Build], bool], levels: Sequence[Sequence[Build]], chosen: tuple[Build, ...]
) -> Iterator[tuple[Build, ...]]:
    if not levels:
        if not contradict(chosen):
            yield chosen
        return
    for build in levels[0]:
        rest = [[other for other in level if fit(build, other)] for level in levels[1:]]
        if all(rest):
            yield from _choices(fit, rest, (*chosen, build))


def go_together(judge: Judge, wish: Wish, one: Build, other: Build) -> bool:
    """Whether two builds can be in one environment if there are no others."""
    if all(build.libraries == "system" or build.row.get("nvcc") for build in (one, other)) and one.cuda != other.cuda:
        return False
    if bool(one.cuda) != bool(other.cuda):
        neutral = {name for name, clauses, _ in wish.frameworks if judge.neutral(wish, name, clauses)}
        if (other if one.cuda else one).framework not in neutral:
            return False
    if not set(one.row["python"]) & set(other.row["python"]):
        return False
    held: dict[str, tuple[str, str]] = {}
    for build in (one, other):
        for framework, version, variant in (build[:3], *build.holds):
            if held.setdefault(framework, (version, variant)) != (version, variant):
                return False
    return True


def contradict(builds: Sequence[Build], python: str = "") -> bool:
    """Whether the builds require versions of a package that exclude each other. Without ``python``, this must be so on every
    Python that the builds have in common."""
    if len(builds) == 1:
        return False
    pythons = {python} if python else set.intersection(*(set(build.row["python"]) for build in builds))
    return not any(_can_install(frozenset(ask for build in builds for ask in build.asks), python) for python in pythons)


@functools.lru_cache(maxsize=20_000)
def _can_install(asks: frozenset[tuple[str, str]], python: str) -> bool:
    packages: dict[str, set[str]] = {}
    for requirement, pythons in asks:
        match = re.match(r"\s*([\w.-]+)\s*(\[.*?\])?\s*([^;@]*)", requirement)
        if match and match[3].strip(" ()") and satisfies(python, pythons):
            packages.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), set()).add(match[3].strip(" ()"))
    return all(_has_version(frozenset(wanted)) for wanted in packages.values())


@functools.lru_cache(maxsize=20_000)
def _has_version(wanted: frozenset[str]) -> bool:
    """Whether some version is in all of the sets. Candidates are the named versions and those just above or below them."""
    try:
        allowed = SpecifierSet(",".join(wanted))
        named = [Version(item.version.removesuffix(".*")) for item in allowed]
    except (InvalidSpecifier, InvalidVersion):
        return True
    tried = ["0", *map(str, named)]
    for version in named:
        digits = list(version.release)
        tried += [".".join(map(str, [*digits[:at], digits[at] + 1])) for at in range(len(digits))]
        tried += [".".join(map(str, [*digits, 0, 1])), ".".join(map(str, [*digits[:-1], max(digits[-1] - 1, 0), 999]))]
    return any(allowed.contains(version, prereleases=True) for version in tried)


def shared(judge: Judge, builds: Sequence[Build], image: str = "") -> list[Place]:
    """The places where all builds can be installed.

    Libraries in the image come from a base that suits all builds that use them.
    """
    if len(builds) == 1:
        return judge.places(builds[0], image)
    users = [_in_image(build) for build in builds if build.libraries == "system"]
    if users and any(build.row.get("nvcc") for build in builds):  # the base of the CUDA libraries must have the compiler, too
        users[0] = users[0]._replace(row={**users[0].row, "nvcc": True})
        builds = [build if build.libraries == "system" else build._replace(row={**build.row, "nvcc": None}) for build in builds]
    newest = max(builds, key=lambda build: (bool(build.row.get("nvcc")), number(build.cuda or "0")))
    common = {place.system + " " + place.python for place in judge.places(builds[0], image)}
    for build in builds[1:]:
        common &= {place.system + " " + place.python for place in judge.places(build, image)}
    found = [place for place in judge.places((users or [newest])[0], image) if place.system + " " + place.python in common]
    for build in users[1:]:
        found = [both for place in found for other in judge.places(build, image) if (both := _both(place, other))]
    return [_with_their_own(judge, place, builds, users, image) for place in found]


def _both(one: Place, other: Place) -> Place | None:
    libraries: list[Libraries] = []
    for ours, theirs in ((one.cudnn, other.cudnn), (one.nccl, other.nccl)):
        if ours is None or theirs is None:
            libraries.append(theirs if ours is None else ours)
            continue
        libraries.append(tuple(version for version in ours if version in theirs))
        if not libraries[-1]:
            return None
    return one._replace(cudnn=libraries[0], nccl=libraries[1]) if one[:5] == other[:5] else None


def _in_image(build: Build) -> Build:
    """The build with only those library needs that the image must meet, without those that the framework brings itself."""
    needs = {key: build.row.get(key) for key in ("cudnn", "nccl")}
    carried = [key for key, need in needs.items() if isinstance(need, dict) and need.get("from", "system") != "system"]
    return build._replace(row={key: value for key, value in build.row.items() if key not in carried}) if carried else build


def _with_their_own(judge: Judge, place: Place, builds: Sequence[Build], users: Sequence[Build], image: str) -> Place:
    """Add the versions of libraries inside frameworks if the image has none: the environment may name any of these versions."""
    found: list[Libraries] = []
    for at, library in ((5, "cudnn"), (6, "nccl")):
        installed = any(user.row.get(library) is not None for user in users)
        inside = [version for build in builds for other in judge.places(build, image) for version in other[at] or ()]
        known: Libraries = place[at]
        found.append(known if installed or not inside else tuple({*(known or ()), *inside}))
    return place._replace(cudnn=found[0], nccl=found[1])


# --- an answer --------------------------------------------------------------------------------------------------------


def lies(judge: Judge, wish: Wish, environment: Any, warnings: tuple[str, ...]) -> list[str]:
    """The false statements of an accepted environment, in words.

    The answer is empty if every condition that the environment depends on is satisfied.
    """
    found: list[str] = []
    builds: list[Build] = []
    versions = {item.name: item.version for item in environment.frameworks}
    if more := sorted(set(versions) - {name for name, _, _ in wish.frameworks}):
        if set(more) - set(judge.bases(wish)) or next(_solutions(judge, wish), None) is not None:
            found.append(f"{more} are in it, for which nobody asked and without which it would do")
        wish = with_frameworks(wish, more)
    for name, clauses, cuda in wish.frameworks:
        ours = next((item for item in environment.frameworks if item.name == name), None)
        known = [
            build
            for build in judge.known(wish, name)
            if ours and (build.version, build.name) == (ours.version, ours.variant)
            if all(versions.get(framework, version) == version for framework, version, _ in build.holds)
        ]
        if not ours or not known:
            return [f"there is no build of {name} in it that the matrix has upon what else is in it"]
        (build,) = known
        builds.append(build)
        if build not in judge.builds(wish, name, clauses, cuda):
            found.append(f"{build[:4]} is not what was asked for, is bad, or does not run on the driver and GPUs")
        if (environment.cuda_of(ours) or "", ours.package, ours.cuda_libraries) != (
            build.cuda,
            build.row["package"],
            build.libraries,
        ):
            found.append(f"{name} is another package, for another CUDA, or brings it in another way")
        found += [
            f"{environment.name} does not say {word}" for word in (build.version, build.cuda) if word not in environment.name
        ]
        found += _untold(judge, build, environment, warnings)
        found += _untested(judge, build, warnings)
    if contradict(builds) or not all(go_together(judge, wish, one, other) for one, other in combinations(builds, 2)):
        found.append(f"{[build[:3] for build in builds]} do not go together")
    return [*found, *_place(judge, wish, builds, environment)]


def _place(judge: Judge, wish: Wish, builds: Sequence[Build], environment: Any) -> Iterator[str]:
    if not any(judge.fits(place, wish) and is_in(place, environment) for place in shared(judge, builds, wish.image)):
        yield f"no place that was asked for, and where all can live, is {environment.name}"
    cudas = {build.cuda for build in builds}
    if environment.base.provider == "debian":  # the newest driver is that of the compiler
        compiled = [judge.row("cuda", build.cuda) for build in builds if build.row.get("nvcc")]
        cudas |= {version for row in compiled if row for version in judge.compilers(row, environment.system.name)}
    drivers = [row["driver_min"] for cuda in cudas if (row := judge.row("cuda", cuda))]
    if (environment.driver_min or "") != max(drivers, key=number, default=""):
        yield f"it needs another driver than {environment.driver_min}"
    system, python = judge.world.tables["systems"][environment.system.name], environment.python
    if not wish.image and (python.provided_by, python.executable) not in judge.supplies(system, python.version):
        yield f"{system['name']} has no {python.executable} by {python.provided_by}"
    for word in (environment.system.name, f"py{python.version.replace('.', '')}"):
        if word not in environment.name:
            yield f"{environment.name} does not say {word}"


def is_in(place: Place, environment: Any) -> bool:
    """Whether an environment is at this place, with library versions that are possible there."""
    base, python = environment.base, environment.python
    here = (environment.system.name, python.version, base.provider, base.image)
    libraries = ((environment.cudnn, place.cudnn), (environment.nccl, place.nccl))
    return place[:4] == here and all(have in may if may else have is None for have, may in libraries)


def _untold(judge: Judge, build: Build, environment: Any, warnings: tuple[str, ...]) -> Iterator[str]:
    """Rows with the status `unknown` that no warning mentions."""
    told = " ".join(warnings)
    rows = {f"{build.framework} {build.version} {build.name}": build.status}
    for table, name in (("systems", environment.system.name), ("pythons", environment.python.version), ("cuda", build.cuda)):
        if row := judge.row(table, name):
            rows[f"{table.removesuffix('s')} {row.get('name', row.get('version'))}"] = row.get("status", "ok")
    yield from (
        f"{name} is unproved, which is not said" for name, status in rows.items() if status == "unknown" and name not in told
    )


def _untested(judge: Judge, build: Build, warnings: tuple[str, ...]) -> Iterator[str]:
    """Pairs that nobody tested or allows, pairs that are known bad, and untested pairs with a wrong warning or none."""
    told = f"{build.framework} {build.version} on "
    for framework, version, _ in build.holds[:1]:
        pairs = judge.world.pairs[build.framework, build.version][framework]
        said = any(each.startswith(f"{told}{framework} {version}: upstream allows this combination") for each in warnings)
        if version in pairs.bad or version not in pairs.tested | pairs.allowed:
            yield f"{told}{framework} {version} does not work, or nobody allows it"
        elif said != pairs.untested(version, build.cuda):
            yield f"{told}{framework} {version} was {'tested' if said else 'not tested'}, and the warnings say otherwise"


def wish_of(request: Any) -> Wish:
    """The wish that envbuild has read from a request. Other tests check this reading with requests whose meaning is known."""
    return Wish(
        frameworks=tuple((each.framework.name, each.version, each.cuda) for each in request.wanted),
        device=request.device,
        cuda=request.cuda,
        cudnn=request.cudnn,
        nccl=request.nccl,
        python=request.python,
        systems=request.systems,
        base=request.base,
        image=request.image,
        driver=request.driver,
        gpus=tuple(gpu.capability for gpu in request.gpus if gpu.capability),
        host=next((gpu.board.host for gpu in request.gpus if gpu.board and gpu.board.host), ""),
    )
