"""A second reader of the matrix's files, to judge the first: plain loops over plain YAML, without envbuild's code.

It knows the rules in the documents (which values are inherited, what an overlay replaces, what `upon` means). It checks
nothing, because it gets only files that the strict reader has accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = {
    "systems": "name", "pythons": "version", "architectures": "capabilities", "drivers": "branch", "driver_rules": "cuda_major",
    "repositories": "name", "cuda": "version", "cudnn": "version", "nccl": "version", "gpus": "name", "package_sets": "name",
}  # fmt: skip
_REQUIREMENTS = ("requirements", "constraints", "asks")
_DOUBTS = ["ok", "end-of-life", "base-deleted", "unknown", "known-bad"]

Row = dict[str, Any]


class Build(NamedTuple):
    """One build of one release, with all inherited values.

    ``holds`` names the builds of the base frameworks that it is an add-on to: framework, version and variant. ``asks`` are its
    requirements on packages, each with the Pythons for which it counts.
    """

    framework: str
    version: str
    name: str
    status: str
    row: Row
    holds: tuple[tuple[str, str, str], ...] = ()
    asks: tuple[tuple[str, str], ...] = ()

    @property
    def cuda(self) -> str:
        return self.row.get("cuda") or ""

    @property
    def libraries(self) -> str:
        return self.row.get("cuda_libraries") or "none"


_TESTED = ("tested", "tested_cpu", "tested_cuda")


class Pairs(NamedTuple):
    """The releases of a base framework that one release of an add-on works with.

    ``taken`` is the default if the request names no release of the base framework: first for CPU, then for CUDA. ``cpu_only``
    and ``cuda_only`` were tested on that device only.
    """

    taken: tuple[str, str]
    tested: frozenset[str]
    allowed: frozenset[str]
    bad: frozenset[str]
    cpu_only: frozenset[str] = frozenset()
    cuda_only: frozenset[str] = frozenset()

    def untested(self, version: str, cuda: str) -> bool:
        """Whether a release is allowed but not tested for ``cuda``, which is empty for CPU."""
        return version in self.allowed | (self.cpu_only if cuda else self.cuda_only)


class World:
    """The tables by the names of their rows, and the builds of every framework.

    ``pairs`` has the pairs of each release with its base frameworks. ``elsewhere`` has its builds upon those releases of a base
    framework that are not its default: they are for environments that contain the base framework, too.
    """

    def __init__(self, sources: Mapping[str, bytes], overlays: Collection[str] = ()) -> None:
        files = [(name, parsed(content), name in overlays) for name, content in sources.items()]
        self.python_from: list[str] = files[0][1]["policy"]["python_from"]
        self.tables: dict[str, dict[str, Row]] = {table: {} for table in _KEYS}
        self.heads: dict[str, Row] = {}
        self._series: dict[str, dict[str, list[tuple[Row, Row]]]] = {}
        for _, document, overlay in files:
            status = (document.get("defaults") or {}).get("status", "ok")
            for table, key in _KEYS.items():
                for row in document.get(table, []):
                    name = str(row[key]).lower()
                    self.tables[table][name] = {"status": status, **(of_newest_release(row) if table == "cuda" else {}), **row}
            if "framework" in document:
                self._framework(document, status, overlay)
        self.builds: dict[str, list[Build]] = {}
        self.pairs: dict[tuple[str, str], dict[str, Pairs]] = {}
        self._elsewhere: dict[tuple[str, str], list[Build]] = {}
        for name in self.heads:
            self._build(name)
        self.elsewhere: dict[str, list[Build]] = {name: [] for name in self.heads}
        for (name, _), builds in self._elsewhere.items():
            self.elsewhere[name] += builds

    @staticmethod
    def read(entry: Path) -> World:
        names = yaml.safe_load(entry.read_text()).get("include", [])
        return World({name: (entry.parent / name).read_bytes() for name in (entry.name, *names)})

    def _framework(self, document: Row, status: str, overlay: bool) -> None:
        head = document["framework"]
        name = head["name"]
        if name not in self.heads or set(head) != {"name"}:
            self.heads[name] = head
        known = self._series.setdefault(name, {})
        for series in document.get("series", []):
            listing = {"status": status, **series}
            before = known.get(series["series"])
            if before and overlay and "variants" not in series:
                before.append((before[0][0], listing))
            else:
                known[series["series"]] = [(listing, listing)]

    def _build(self, name: str) -> list[Build]:
        if name not in self.builds:
            releases: dict[str, list[Build]] = {}
            for parts in self._series[name].values():
                for values, listing in parts:
                    for release in listing["releases"]:
                        releases[release["version"]] = self._release(name, values, listing, release)
            self.builds[name] = [build for builds in releases.values() for build in builds]
        return self.builds[name]

    def _release(self, name: str, values: Row, listing: Row, release: Row) -> list[Build]:
        version, status = release["version"], release.get("status", listing["status"])
        without = release.get("without", [])
        own: list[Build] = []
        for variant in {**values.get("variants", {}), **release.get("variants", {})}:
            theirs, ours = (level.get("variants", {}).get(variant, {}) for level in (values, release))
            if variant not in without:
                found = theirs.get("status", status)
                if "status" in release:  # the status of a build is not better than that of its release
                    found = max(status, found, key=_DOUBTS.index)
                python = release.get("python", values.get("python"))
                row = {"python": python, **theirs, **ours}
                asks = (*_pin(row, version), *_asks(values, release), *_asked(row), *_vendors(row))
                own.append(Build(name, version, variant, ours.get("status", found), row, (), asks))
        taken = {(build.cuda, build.libraries) for build in own}
        found = self._upon([release, values, self.heads[name]], name, version, status)
        names = {build.name for build in own} | set(without)
        return own + [build for key, build in found.items() if key[:2] not in taken and build.name not in names]

    def _upon(self, levels: list[Row], name: str, version: str, status: str) -> dict[tuple[str, str, str], Build]:
        """The builds of a release upon the default builds of its base frameworks.

        If two base frameworks have builds for the same CUDA, the one that is named first is used.
        """
        found: dict[tuple[str, str, str], Build] = {}
        elsewhere: list[Build] = []
        self.pairs[name, version] = {other: self._pairs(levels, other) for other in _said(levels, "upon") or {}}
        for other, pairs in self.pairs[name, version].items():
            taken = {key[:2] for key in found}
            for build in self._build(other):
                goes = build.version in pairs.tested | pairs.allowed and build.name not in levels[0].get("without", [])
                own = self._standing(levels, name, version, status, build) if goes else None
                if own is not None and build.version != pairs.taken[bool(build.cuda)]:
                    elsewhere.append(own)
                elif own is not None and (build.cuda, build.libraries) not in taken:
                    found[build.cuda, build.libraries, build.name] = own
        self._elsewhere[name, version] = elsewhere
        return found

    def _pairs(self, levels: list[Row], other: str) -> Pairs:
        """Read ``upon``. ``upon: {other: "1.0"}`` is this release alone.

        The long form says which releases were tested, are allowed and are known bad. In the long form, a key of the release
        replaces that of its series.
        """
        layers = [level["upon"][other] for level in levels if other in level.get("upon", {})]
        if isinstance(layers[0], str):
            return Pairs((layers[0], layers[0]), frozenset(layers[:1]), frozenset(), frozenset())
        said: Row = {}
        for layer in layers:
            ours = {} if isinstance(layer, str) else dict(layer)
            if said.keys() & set(_TESTED):
                ours = {key: value for key, value in ours.items() if key not in _TESTED}
            said = {**ours, **said}
        known = list(dict.fromkeys(build.version for build in self._build(other)))
        bad = _within(known, [item["versions"] for item in said.get("known_bad", [])])
        both, cpu, cuda = (frozenset(known) & frozenset(said.get(key, [])) for key in _TESTED)
        tested = both | cpu | cuda
        allowed = _within(known, [said["allows"]] if said.get("allows") else []) - tested - bad
        first = [said.get("default") or max(ours or tested or allowed, key=Version) for ours in (both | cpu, both | cuda)]
        return Pairs((first[0], first[1]), tested, allowed, bad, tested - both - cuda, tested - both - cpu)

    def _standing(self, levels: list[Row], name: str, version: str, status: str, build: Build) -> Build | None:
        """A release's build upon a build of its base framework; None if they have no Python in common."""
        theirs, package = _said(levels, "python"), _said(levels, "package")
        pythons = [python for python in build.row["python"] if not theirs or python in theirs]
        if not pythons:
            return None
        row = {**build.row, "python": pythons, "package": package or build.row["package"]}
        asks = (*build.asks, *_asks(levels[1], levels[0]))
        if package:
            row["local_version"] = build.row.get("local_version", "") if _said(levels, "local_version") == "same" else ""
            row |= {"requirement": row["package"], "repository": _said(levels, "repository"), "distribution": None}
            row["nvcc"] = _said(levels, "nvcc")
        bad = [
            each for each in _said(levels, "bad_capabilities") or [] if row.get("cuda") in each.get("cuda", [row.get("cuda")])
        ]
        row["bad_capabilities"] = [*build.row.get("bad_capabilities", []), *bad]
        if only_ptx := _said(levels, "only_ptx"):
            if code := build.row.get("capabilities"):  # builds for CPUs have none
                row["capabilities"] = {
                    "sass": [each for each in code["sass"] if each not in only_ptx],
                    "ptx": [*code.get("ptx", []), *only_ptx],
                }
            asks = (*_pin(row, version), *asks)
        holds = ((build.framework, build.version, build.name), *build.holds)
        return Build(name, version, build.name, max(status, build.status, key=_DOUBTS.index), row, holds, asks)


def _said(levels: list[Row], key: str) -> Any:
    return next((level[key] for level in levels if key in level), None)


def _within(versions: list[str], conditions: list[str]) -> frozenset[str]:
    """The versions that satisfy one of the conditions, such as ``>=1.15,<2.13``."""
    sets = [SpecifierSet(each) for each in conditions]
    return frozenset(each for each in versions if any(one.contains(each, prereleases=True) for one in sets))


def _pin(row: Row, version: str) -> list[tuple[str, str]]:
    """The requirement of the build itself, if it comes from a package index."""
    if row.get("repository") or row.get("distribution"):
        return []
    return [(f"{row.get('requirement') or row['package']}=={version}{row.get('local_version') or ''}", "")]


def _asked(row: Row) -> list[tuple[str, str]]:
    found = [item for key in _REQUIREMENTS for item in row.get(key, [])]
    return [(item, "") if isinstance(item, str) else (item["requirement"], item.get("python", "")) for item in found]


def _vendors(row: Row) -> list[tuple[str, str]]:
    """Requirements for cuDNN and NCCL if they come as the vendor's wheels, whose names end in CUDA's major version."""
    found = []
    for library in ("cudnn", "nccl"):
        need = row.get(library) or {}
        plain = {"min": f"=={need}.*"} if isinstance(need, str) else {}
        bounds = plain or {key: sign + need[key] for key, sign in (("min", ">="), ("below", "<")) if key in need}
        if need and (plain or need).get("from", row.get("cuda_libraries")) == "wheels":
            found.append((f"nvidia-{library}-cu{row['cuda'].split('.')[0]} {','.join(bounds.values())}", ""))
    return found


def _asks(series: Row, release: Row) -> list[tuple[str, str]]:
    """The requirements of a release: for each key the list of the release, or else that of the series."""
    levels = {key: release.get(key, series.get(key, [])) for key in _REQUIREMENTS}
    return _asked(levels)


def of_newest_release(cuda: Row) -> Row:
    """The values that a row of a minor version takes from its newest release."""
    releases = sorted(cuda.get("releases", []), key=lambda row: [int(part) for part in row["version"].split(".")])
    return {"driver_min": releases[-1].get("driver_min")} if releases else {}


_PARSED: dict[bytes, Any] = {}


def parsed(content: bytes) -> Any:
    """The document as plain values. Results are cached, because most mutated matrices differ in one file."""
    if content not in _PARSED:
        if len(_PARSED) > 64:
            _PARSED.clear()
        _PARSED[content] = yaml.load(content.decode(), Loader=_LOADER)
    return _PARSED[content]
