"""Judge the answers of the resolver with the plain matrix: is an accepted environment right, and is a refusal right?

It tries every build on every system with every Python and every provider. It shares no code with envbuild.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from brute_world import Build, Row, World
from packaging.version import Version


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The parts of a request. An empty part is free.

    ``frameworks`` are names, each with clauses on its version (``==1.12,<2``) and on its CUDA. ``gpus`` are compute
    capabilities; GPUs of unknown capability are left out. ``host`` is the processor that is part of one of the GPU boards.
    """

    frameworks: tuple[tuple[str, str, str], ...]
    device: str = ""
    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""
    python: str = ""
    systems: tuple[str, ...] = ()
    base: str = ""
    image: str = ""
    driver: str = ""
    gpus: tuple[str, ...] = field(default=())
    host: str = ""


class Place(NamedTuple):
    """A base on which a build can be installed.

    ``cudnn`` and ``nccl`` are the versions that the build may find there; None if the build needs none.
    """

    system: str
    python: str
    provider: str
    image: str
    deleted: bool
    cudnn: tuple[str, ...] | None
    nccl: tuple[str, ...] | None


def number(text: str) -> list[int]:
    parts = [int(part) for part in text.split(".")]
    return parts + [0] * (8 - len(parts))


def under(version: str, line: str) -> bool:
    """Whether a version begins with the parts of ``line``: 9.0 is under 9, and 90 is not."""
    return (version + ".").startswith(line + ".")


@functools.lru_cache(maxsize=500_000)
def satisfies(version: str, clauses: str, order: Any = number) -> bool:
    """Whether a version satisfies the clauses.

    ``==`` and ``!=`` compare only the parts that they name (``==1.12`` includes 1.12.3); ``===`` names one version.
    """
    for clause in filter(None, re.split(r"\s*,\s*", clauses)):
        match = re.fullmatch(r"\s*(===|==|=|!=|~=|>=|<=|>|<)\s*([^\s*]*?)(?:\.\*)?\s*", clause)
        assert match, clause
        sign, bound = match.groups()
        if sign == "===":
            good = version == bound
        elif sign in ("==", "=", "!="):
            good = under(version, bound) == (sign != "!=")
        elif sign == "~=":
            line = bound.rpartition(".")[0]
            good = order(version) >= order(bound) and (not line or under(version, line))
        else:
            ours, theirs = order(version), order(bound)
            good = (sign[0] == ">" and ours > theirs) or (sign[0] == "<" and ours < theirs) or (ours == theirs and "=" in sign)
        if not good:
            return False
    return True


# The fields of a build on which its places depend.
PLACED = ("python", "glibc", "systems", "cuda", "cuda_libraries", "cudnn", "nccl", "nvcc")


class Judge:
    """The matrix with which answers are judged."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._places: dict[tuple[str, str], list[Place]] = {}
        self._kinds: dict[int, tuple[Row, str]] = {}
        self._neutral: dict[tuple[str, str], bool] = {}

    # --- the hardware of a build --------------------------------------------------------------------------------------

    def row(self, table: str, name: str) -> Row | None:
        return self.world.tables[table].get(name)

    def good(self, row: Row | None) -> bool:
        return row is None or row.get("status") != "known-bad"

    def reaches(self, driver: str, minimum: str) -> bool:
        """Whether a driver is at least ``minimum``. A shortened version stands for the newest driver that begins with it."""
        given = [int(part) for part in driver.split(".")]
        return given >= [int(part) for part in minimum.split(".")][: len(given)]

    def runs(self, build: Build, wish: Wish) -> bool:
        """Whether a build runs with the driver and on the GPUs of the request."""
        row = self.row("cuda", build.cuda)
        if not build.cuda or row is None:
            return not build.cuda or not wish.driver
        if wish.host:
            return False
        old = bool(wish.driver) and not self.reaches(wish.driver, row["driver_min"])
        if wish.driver:
            rule = self.row("driver_rules", build.cuda.split(".")[0])
            if old and not (rule and self.good(rule) and self.reaches(wish.driver, rule["driver_min"])):
                return False
            if not self.good(self.row("drivers", wish.driver.split(".")[0])):
                return False
            if not wish.gpus and not self.keeps_a_gpu(build, row, wish.driver):
                return False
        return all(self.runs_on(build, row, wish.driver, old, gpu) for gpu in wish.gpus)

    def keeps_a_gpu(self, build: Build, cuda: Row, driver: str) -> bool:
        """Whether the driver has not dropped all GPUs on which a build runs with some driver. A build without any such GPU was
        not dropped.
        """
        rows = self.world.tables["architectures"].values()
        run_on = [row for row in rows if any(self.runs_on(build, cuda, "", False, gpu) for gpu in row["capabilities"])]
        lasts = [int(row.get("last_driver_branch") or 10_000) for row in run_on]
        return not lasts or max(lasts) >= number(driver)[0]

    def runs_on(self, build: Build, cuda: Row, driver: str, old_driver: bool, gpu: str) -> bool:
        code = build.row.get("capabilities")
        sass, ptx = (code.get("sass", []), code.get("ptx", [])) if code else ([], [])
        native = any(number(gpu)[0] == number(item)[0] and number(gpu) >= number(item) for item in sass)
        compiled = any(number(item) <= number(gpu) for item in ptx)
        if any(number(gpu) == number(item) for bad in build.row.get("bad_capabilities", []) for item in bad["capabilities"]):
            return False
        if (sass or ptx) and not native and (not compiled or old_driver):
            return False
        rows = [row for row in self.world.tables["architectures"].values() if number(gpu) in map(number, row["capabilities"])]
        if not rows:
            return number(gpu) >= number(cuda["capabilities"]["min"])
        (row,) = rows
        if row.get("last_cuda") and number(build.cuda) > number(row["last_cuda"]):
            return False
        if driver and row.get("last_driver_branch") and number(driver)[0] > number(row["last_driver_branch"])[0]:
            return False
        if driver and not self.knows(driver, row):
            return False
        oldest = number(row["ptx_from"]) if "ptx_from" in row else number(row["first_cuda"])[:1]
        return self.good(row) and (native or number(build.cuda) >= oldest)

    def knows(self, driver: str, architecture: Row) -> bool:
        """Whether a driver's branch supports the architecture: it is not older than the first branch with the architecture's
        first CUDA.
        """
        rows = self.world.tables["drivers"].values()
        knowing = [number(row["branch"]) for row in rows if number(row["max_cuda"]) >= number(architecture["first_cuda"])]
        return not knowing or number(driver.split(".", maxsplit=1)[0]) >= min(knowing)

    # --- the places of a build ----------------------------------------------------------------------------------------

    def places(self, build: Build, image: str = "") -> list[Place]:
        """All places of a build, including those whose image was deleted."""
        key = (self.kind(build), image)
        if key not in self._places:
            self._places[key] = list(self._all_places(build, image))
        return self._places[key]

    def kind(self, build: Build) -> str:
        """A text of the fields on which the places of a build depend. Builds with equal texts have equal places."""
        row, known = self._kinds.get(id(build.row), (None, ""))
        if row is not build.row:
            known = repr([build.row.get(key) for key in PLACED])
            self._kinds[id(build.row)] = (build.row, known)  # keeps the row, so that no other row gets its id
        return known

    def _all_places(self, build: Build, image: str) -> Iterator[Place]:
        for system, version in itertools.product(self.world.tables["systems"].values(), build.row["python"]):
            name = system["name"].lower()
            wanted = [item.lower() for item in build.row.get("systems", [])]
            if number(system["glibc"]) < number(build.row["glibc"]) or (wanted and name not in wanted):
                continue
            if not self.good(system) or not self.good(self.row("pythons", version)):
                continue
            if image:
                yield Place(name, version, "local", image, False, *self.carried(build))
            elif self.supplies(system, version):
                yield from self._provided(build, system, version)

    def supplies(self, system: Row, version: str) -> list[tuple[str, str]]:
        """The Pythons of this version on a system: (supply, path of the executable)."""
        found = [("distribution", item["executable"]) for item in system.get("pythons", []) if item["version"] == version]
        for item in (self.row("pythons", version) or {}).get("from", []):
            if item["by"] in self.world.python_from and number(item["glibc"]) <= number(system["glibc"]):
                found.append((item["by"], item["executable"]))
        return found

    def _provided(self, build: Build, system: Row, version: str) -> Iterator[Place]:
        name = system["name"].lower()
        cuda = self.row("cuda", build.cuda)
        if build.libraries == "none":
            yield Place(name, version, "distribution", system["image"], False, *self.carried(build))
        elif cuda is not None and self.good(cuda):
            if build.libraries != "system":
                if not build.row.get("nvcc") or self.compilers(cuda, name):
                    provider = "debian" if build.row.get("nvcc") else "wheels"
                    yield Place(name, version, provider, system["image"], False, *self.carried(build))
                return
            for provider in cuda.get("providers", []):
                status = provider.get("status", cuda["status"])
                libraries = [self.brought(build, provider, name, library) for library in ("cudnn", "nccl")]
                serves = provider["provider"] in ("apt", "tag", "conda") and provider.get("system", name).lower() == name
                serves = serves and (not build.row.get("nvcc") or "build_packages" in provider or "build_image" in provider)
                if serves and status != "known-bad" and self.installable(provider) and [] not in libraries:
                    cudnn, nccl = (None if item is None else tuple(item) for item in libraries)
                    image = provider.get("image") or system["image"]
                    yield Place(name, version, provider["provider"], image, status == "base-deleted", cudnn, nccl)

    def compilers(self, cuda: Row, system: str) -> list[str]:
        """The CUDA versions of the nvcc that a system's own packages have for this CUDA."""
        rows = [row for row in cuda.get("providers", []) if row.get("status", cuda["status"]) != "known-bad"]
        sets = [each for row in rows if (each := self.row("package_sets", row.get("package_set", ""))) is not None]
        return [each["cuda"] for each in sets if each["system"].lower() == system and each.get("build_packages")]

    def installable(self, provider: Row) -> bool:
        """Whether every repository that the provider names has a row that is not known bad."""
        used = [*provider.get("repositories", []), *(item.get("repository") for item in provider.get("packages", []))]
        return all(self.known_repository(name) for name in used)

    def known_repository(self, name: str | None) -> bool:
        row = self.row("repositories", name.lower()) if name else None
        return not name or (row is not None and self.good(row))

    def carried(self, build: Build) -> tuple[tuple[str, ...] | None, ...]:
        """The versions of cuDNN and NCCL that come with the framework.

        That is the version in its row, or else the newest one that it can use.
        """
        found: list[tuple[str, ...] | None] = []
        for library in ("cudnn", "nccl"):
            need = build.row.get(library)
            said = need if isinstance(need, str) else (need or {}).get("prefer")
            fitting = [row["version"] for row in self.fitting(build, library)]
            newest = (max(fitting, key=number),) if fitting else None
            found.append(None if need is None else (said,) if said else newest)
        return tuple(found)

    def fitting(self, build: Build, library: str) -> list[Row]:
        """The rows of a library that a build can use."""
        need, rows = build.row.get(library), self.world.tables[library].values()
        return [
            row
            for row in rows
            if need is not None
            and self.good(row)
            and accepts(need, row["version"])
            and any(under(build.cuda, entry) for entry in row["cuda"])
        ]

    def brought(self, build: Build, provider: Row, system: str, library: str) -> list[str] | None:
        """The versions of a library that a provider can install: None if the build needs none, an empty list if none is
        possible.
        """
        need = build.row.get(library)
        if need is None:
            return None
        if isinstance(need, dict) and need.get("from", "system") != "system":
            return [need["prefer"]] if need.get("prefer") else None
        if provider["provider"] == "tag" or provider.get("files"):
            inside = provider.get(library, "")
            return [inside] if inside and accepts(need, inside) else []
        rows = self.fitting(build, library)
        return [row["version"] for row in rows if provider["provider"] == "conda" or self.packaged(build, row, system)]

    def packaged(self, build: Build, row: Row, system: str) -> bool:
        return any(
            item["system"].lower() == system
            and under(build.cuda, item["cuda"])
            and item.get("status", row["status"]) != "known-bad"
            and self.known_repository(item.get("repository"))
            for item in row.get("apt", [])
        )

    # --- builds and places of a request -------------------------------------------------------------------------------

    def neutral(self, wish: Wish, framework: str, clauses: str) -> bool:
        """Whether a framework may stand beside GPU builds although it has no build for GPUs.

        That holds if the request names several frameworks, and no requested version of this one has a build for CUDA.
        """
        if len(wish.frameworks) == 1:
            return False
        if (framework, clauses) not in self._neutral:
            asked = (build for build in self.world.builds[framework] if satisfies(build.version, clauses, Version))
            self._neutral[framework, clauses] = not any(build.cuda for build in asked)
        return self._neutral[framework, clauses]

    def known(self, wish: Wish, framework: str) -> Iterator[Build]:
        """The builds of a framework that the environment of the request can contain.

        A build upon a base framework's release that is not its default counts only if the request names that release, too.
        """
        yield from self.world.builds[framework]
        asked = {name: clauses for name, clauses, _ in wish.frameworks}
        for build in self.world.elsewhere[framework]:
            name, version, _ = build.holds[0]
            if name in asked and satisfies(version, asked[name], Version):
                yield build

    def bases(self, wish: Wish) -> list[str]:
        """The base frameworks that the request does not name, if a requested add-on can use another release of them than its
        default one.
        """
        asked = {name for name, _, _ in wish.frameworks}
        builds = (
            build
            for name, clauses, _ in wish.frameworks
            for build in self.world.elsewhere[name]
            if satisfies(build.version, clauses, Version)
        )
        return sorted({build.holds[0][0] for build in builds} - asked)

    def builds(self, wish: Wish, framework: str, clauses: str, cuda: str) -> Iterator[Build]:
        """The builds of a framework that satisfy the request and run on its hardware."""
        neutral = self.neutral(wish, framework, clauses)
        for build in self.known(wish, framework):
            wrong = wish.device == "cpu" if build.cuda else wish.device == "gpu" and not neutral
            if wrong or build.status == "known-bad" or not satisfies(build.version, clauses, Version):
                continue
            if build.cuda and not satisfies(build.cuda, cuda or wish.cuda):
                continue
            if wish.device == "cpu" or self.runs(build, wish):
                yield build

    def fits(self, place: Place, wish: Wish) -> bool:
        """Whether a place satisfies the request. A deleted image is used only if the request names it."""
        if wish.systems and place.system not in wish.systems:
            return False
        if not satisfies(place.python, wish.python):
            return False
        if wish.base != place.provider if wish.base else place.deleted:
            return False
        if place.provider in ("apt", "tag", "conda") and wish.device != "cpu":
            for library, have in (("cudnn", place.cudnn), ("nccl", place.nccl)):
                if have is not None and not any(self.serves_gpus(library, version, wish.gpus) for version in have):
                    return False
        return all(
            not said or any(satisfies(version, said) for version in have or ())
            for said, have in ((wish.cudnn, place.cudnn), (wish.nccl, place.nccl))
        )

    def serves_gpus(self, library: str, version: str, gpus: tuple[str, ...]) -> bool:
        """Whether a release of a library supports the GPUs. Without a row or a documented minimum it does."""
        least = (self.row(library, version) or {}).get("capability_min")
        return not least or all(number(gpu) >= number(least) for gpu in gpus)


def accepts(need: Any, version: str) -> bool:
    """Whether a version satisfies the need: a text is the one version, a mapping is an interval."""
    if isinstance(need, str):
        return number(need) == number(version)
    return number(need.get("min") or "0") <= number(version) and (
        not need.get("below") or number(version) < number(need["below"])
    )
