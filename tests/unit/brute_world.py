"""A second reading of the matrix's files, for judging the first: plain loops over plain YAML, with none of the program's code.

It knows the rules that the documents state (what hands its values down to what, what an overlay replaces, what standing upon
another framework means) and checks nothing: it is given what the strict reading accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = {
    "systems": "name", "pythons": "version", "architectures": "capabilities", "drivers": "branch", "driver_rules": "cuda_major",
    "repositories": "name", "cuda": "version", "cudnn": "version", "nccl": "version", "gpus": "name",
}  # fmt: skip
_DOUBTS = ["ok", "end-of-life", "base-deleted", "unknown", "known-bad"]

Row = dict[str, Any]


class Build(NamedTuple):
    """One build of one release, everything handed down.

    ``holds`` names the builds that it stands upon: framework, version and variant. ``asks`` is what it asks of packages, each
    with the Pythons on which it does.
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


class World:
    """The tables by the names of their rows, and the builds of every framework."""

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
        for name in self.heads:
            self._build(name)

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
                if "status" in release:  # a release is no better than it says of itself
                    found = max(status, found, key=_DOUBTS.index)
                python = release.get("python", values.get("python"))
                row = {"python": python, **theirs, **ours}
                asks = (*_pin(row, version), *_asks(values, release), *_asked(row), *_vendors(row))
                own.append(Build(name, version, variant, ours.get("status", found), row, (), asks))
        taken = {(build.cuda, build.libraries) for build in own}
        found = self._upon([release, values, self.heads[name]], name, version, status)
        names = {build.name for build in own} | set(without)
        return own + [build for key, build in found.items() if key not in taken and build.name not in names]

    def _upon(self, levels: list[Row], name: str, version: str, status: str) -> dict[tuple[str, str], Build]:
        """The builds of what a release stands upon, as its own."""

        def said(key: str) -> Any:
            return next((level[key] for level in levels if key in level), None)

        found: dict[tuple[str, str], Build] = {}
        for other, wanted in (said("upon") or {}).items():
            for build in self._build(other):
                pythons = [python for python in build.row["python"] if not said("python") or python in said("python")]
                if build.version != wanted or not pythons:
                    continue
                row = {**build.row, "python": pythons, "package": said("package") or build.row["package"]}
                worse = max(status, build.status, key=_DOUBTS.index)
                asks = (*build.asks, *_asks(levels[1], levels[0]))
                if said("package"):
                    row["local_version"] = build.row.get("local_version", "") if said("local_version") == "same" else ""
                    row |= {"requirement": row["package"], "repository": said("repository"), "distribution": None}
                    asks = (*_pin(row, version), *asks)
                holds = ((other, wanted, build.name), *build.holds)
                own = Build(name, version, build.name, worse, row, holds, asks)
                found.setdefault((build.cuda, build.libraries), own)
        return found


def _pin(row: Row, version: str) -> list[tuple[str, str]]:
    """The build itself, where a package index has it."""
    if row.get("repository") or row.get("distribution"):
        return []
    return [(f"{row.get('requirement') or row['package']}=={version}{row.get('local_version') or ''}", "")]


def _asked(row: Row) -> list[tuple[str, str]]:
    found = [*row.get("requirements", []), *row.get("constraints", [])]
    return [(item, "") if isinstance(item, str) else (item["requirement"], item.get("python", "")) for item in found]


def _vendors(row: Row) -> list[tuple[str, str]]:
    """What of cuDNN and NCCL comes in the vendor's wheels, which are named after CUDA's major."""
    found = []
    for library in ("cudnn", "nccl"):
        need = row.get(library) or {}
        plain = {"min": f"=={need}.*"} if isinstance(need, str) else {}
        bounds = plain or {key: sign + need[key] for key, sign in (("min", ">="), ("below", "<")) if key in need}
        if need and (plain or need).get("from", row.get("cuda_libraries")) == "wheels":
            found.append((f"nvidia-{library}-cu{row['cuda'].split('.')[0]} {','.join(bounds.values())}", ""))
    return found


def _asks(series: Row, release: Row) -> list[tuple[str, str]]:
    """Of the requirements, and of the constraints: the release's list, else the series'."""
    levels = {key: release.get(key, series.get(key, [])) for key in ("requirements", "constraints")}
    return _asked(levels)


def of_newest_release(cuda: Row) -> Row:
    """What the newest release of a minor says for all of it."""
    releases = sorted(cuda.get("releases", []), key=lambda row: [int(part) for part in row["version"].split(".")])
    return {"driver_min": releases[-1].get("driver_min")} if releases else {}


_PARSED: dict[bytes, Any] = {}


def parsed(content: bytes) -> Any:
    """A document as plain values. What was read is kept: most mutated matrices differ in one file."""
    if content not in _PARSED:
        if len(_PARSED) > 64:
            _PARSED.clear()
        _PARSED[content] = yaml.load(content.decode(), Loader=_LOADER)
    return _PARSED[content]
