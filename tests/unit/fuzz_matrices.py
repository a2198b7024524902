"""Damage the toy matrix: its values, its structure, its bytes. Drawn values are small, so that a failure is readable.

Documents are kept as pairs instead of dicts, so that a key can occur twice. They are written with one row per line.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

import yaml
from hypothesis import strategies as st

Sources = dict[str, bytes]
Path = tuple[Any, ...]

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3.5, 12.10, 10**30, "", " ", "0", "9", "9.0", "90", "11", "11.4", "3.5", "3.11",
    "2.17", "999", "1.12", "1.12.3", "2.0.0.post1", "1!2", "1.0rc1", "v1", "9." + "9" * 30, "1.2.3.4.5.6.7.8.9",
    "\u0663.\u0665", "\u00b2", "3.5\n", "a" * 5000, "\0", "\x85", "\u2028", "é", "😀", "../../etc/passwd", "/abs",
    "-", "--", "cpu", "gpu", "cuda", "local", "apt", "tag", "conda", "wheels", "none", "system", "bundled", "ok",
    "known-bad", "unknown", "base-deleted", "end-of-life", "widget", "gizmo", "wd", "marble12", "granite16.04",
    "cuda-granite", "toy", "nowhere", "https://example.org/x", "pkg:pypi/x@1", "http://", "2018-11-05", "2018-13-45",
    "0000-00-00", "9999-12-31", "1999", [], {}, [None], [[]], [""], ["9.0"], ["3.5", "3.5"], {"": ""},
    {"min": "9", "below": "7"}, {"min": "7"}, {"widget": "1.12.3"}, {"gizmo": "3.1.0"}, {"nothing": "1"}, [{}],
    {"a": {"b": {"c": []}}}, "[", "*a", "&a x", "!!int 3", "<<", "=", "~", "null", "yes", "1e3", "0o17", "0x1f",
    "1_000", "12:30:45", ".inf", ".nan",
]  # fmt: skip
KEYS = [
    "version", "status", "note", "source", "checked", "cuda", "cudnn", "nccl", "python", "upon", "package",
    "variants", "releases", "series", "without", "min", "below", "prefer", "from", "glibc", "systems", "system",
    "capabilities", "sass", "ptx", "driver_min", "max_cuda", "providers", "provider", "apt", "default",
    "cuda_libraries", "include", "framework", "defaults", "sources", "policy", "schema", "repository", "revision",
    "distribution", "local_version", "<<", "=", "", "é", "0", "null", "gpu", "cpu", "extra",
]  # fmt: skip
BYTES = [
    b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\x00", b"\x80", b"\xc3\x28", b"\xed\xa0\x80", b"\t", b"\r", b"\r\n",
    b"\n", b"\x85", b"\xe2\x80\xa8", b" ", b" ", b":", b": ", b"- ", b"? ", b"#", b" #", b"'", b'"', b"[", b"]",
    b"{", b"}", b",", b"|", b">", b"&a ", b"*a", b"!!python/object:os.system ", b"!!str ", b"!x ", b"%YAML 9.9\n",
    b"---\n", b"\n---\na: b\n", b"...\n", b"<<: ", b"@", b"`", b"\\", b"\\x", b"[" * 60, b"{a: " * 45, b"- " * 50,
    b"? " * 45, b"9" * 400, b"\n" * 300, b"~", b"true", b"12.10", b"1e999",
]  # fmt: skip


class Pairs(list[tuple[Any, Any]]):
    """A mapping that may hold a key twice."""


def paired(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, paired(item)) for key, item in value.items())
    return [paired(item) for item in value] if isinstance(value, list) else value


def written(value: Any) -> str:
    """The YAML of a value in flow style on one line. Strings are written as in JSON, which is valid YAML."""
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in value) + "}"
    if isinstance(value, dict):
        return written(paired(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x85", "\\u0085")
    return json.dumps(value)


def document(value: Any) -> str:
    """The YAML of a document: block style at the top, and each row on one line."""
    if not isinstance(value, Pairs):
        return written(value) + "\n"
    lines = []
    for key, item in value:
        if isinstance(item, list) and not isinstance(item, Pairs) and item:
            lines.append(f"{written(key)}:\n" + "".join(f"  - {written(row)}\n" for row in item))
        else:
            lines.append(f"{written(key)}: {written(item)}\n")
    return "".join(lines)


def places(value: Any, path: Path = ()) -> list[Path]:
    """The paths of all values in a document, without that of the document itself."""
    found: list[Path] = []
    items = [item for _, item in value] if isinstance(value, Pairs) else value
    for index, item in enumerate(items if isinstance(value, list) else ()):
        found.append((*path, index))
        found.extend(places(item, (*path, index)))
    return found


def changed(value: Any, path: Path, change: Any) -> Any:
    """The value after ``change(holder, index)`` at a path. Parts of the value that are not on the path are not copied."""
    if not path:
        return value
    holder = type(value)(value)
    if len(path) == 1:
        change(holder, path[0])
        return holder
    at, *rest = path
    if isinstance(holder, Pairs):
        holder[at] = (holder[at][0], changed(holder[at][1], tuple(rest), change))
    else:
        holder[at] = changed(holder[at], tuple(rest), change)
    return holder


class Spoilt:
    """The files after the damage. Its repr is the difference, so that a failure is readable."""

    def __init__(self, sources: Sources, before: Sources) -> None:
        self.sources = sources
        self.before = before

    def __repr__(self) -> str:
        shown: list[str] = []
        for name, content in self.sources.items():
            lines = [repr(text)[2:-1] for text in content.splitlines()]
            old = [repr(text)[2:-1] for text in self.before[name].splitlines()]
            shown += difflib.unified_diff(old, lines, name, name, n=0, lineterm="")
        return "\n".join(shown)[:4000]


class Seed:
    """A matrix to damage. ``spoiled`` names the files that may be damaged; by default all."""

    def __init__(self, sources: Sources, spoiled: list[str] | None = None) -> None:
        self.written = sources
        # Written in the same way as a damaged document, so that the damage is the only difference.
        self.sources = {name: _encoded(document(paired(yaml.safe_load(content)))) for name, content in sources.items()}
        self.names = spoiled or sorted(sources)
        self.documents = {name: paired(yaml.safe_load(content)) for name, content in sources.items()}
        self.places = {name: places(self.documents[name]) for name in self.names}
        self.values = [item for name in self.names for item in _scalars(self.documents[name])]


def _scalars(value: Any) -> list[Any]:
    if isinstance(value, Pairs):
        return [leaf for _, item in value for leaf in _scalars(item)]
    return [leaf for item in value for leaf in _scalars(item)] if isinstance(value, list) else [value]


@st.composite
def misvalued(draw: st.DrawFn, seed: Seed) -> Spoilt:
    """One to three values or keys are dropped, doubled, renamed, exchanged or replaced."""
    documents: dict[str, Any] = {}
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        name = draw(st.sampled_from(seed.names))
        value = documents.get(name, seed.documents[name])
        known = seed.places[name] if name not in documents else places(value)
        if known:
            path = draw(st.sampled_from(known))
            documents[name] = changed(value, path, draw(_changes(seed)))
    files = {name: _encoded(document(value)) for name, value in documents.items()}
    return Spoilt({**seed.sources, **files}, seed.sources)


@st.composite
def _changes(draw: st.DrawFn, seed: Seed) -> Any:
    kind = draw(st.sampled_from(["drop", "double", "rename", "take", "take", "take", "odd", "odd", "swap", "wrap", "add"]))
    word = draw(st.sampled_from(KEYS))
    new = draw(st.sampled_from(seed.values if kind == "take" else VALUES)) if kind in ("take", "odd", "add", "wrap") else None

    def change(holder: Any, at: int) -> None:
        pair = isinstance(holder, Pairs)
        if kind == "drop":
            del holder[at]
        elif kind == "double":
            holder.insert(at, holder[at])
        elif kind == "swap":
            other = (at + 1) % len(holder)
            mine, theirs = holder[at], holder[other]
            holder[at], holder[other] = ((mine[0], theirs[1]), (theirs[0], mine[1])) if pair else (theirs, mine)
        elif kind == "rename" and pair:
            holder[at] = (word, holder[at][1])
        elif kind == "add" and pair:
            holder.insert(at, (word, new))
        elif kind == "wrap":
            holder[at] = (holder[at][0], [holder[at][1]]) if pair else [holder[at]]
        else:
            holder[at] = (holder[at][0], new) if pair else new

    return change


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def garbled(draw: st.DrawFn, seed: Seed) -> Spoilt:
    """Some bytes or lines of a file are removed, repeated, exchanged or inserted."""
    name = draw(st.sampled_from(seed.names))
    content = seed.written[name]
    for _ in range(draw(st.sampled_from([1, 1, 2, 4]))):
        kind = draw(st.sampled_from(["insert", "insert", "drop", "cut", "flip", "line", "text"]))
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        if kind == "insert":
            content = content[:at] + draw(st.sampled_from(BYTES)) + content[at:]
        elif kind == "text":
            content = content[:at] + _encoded(draw(st.text(max_size=3))) + content[at:]
        elif kind == "drop":
            content = content[:at] + content[at + draw(st.integers(1, 8)) :]
        elif kind == "cut":
            content = content[:at] if draw(st.booleans()) else content[at:]
        elif kind == "flip" and content:
            content = content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
        elif content:
            lines = content.splitlines(keepends=True)
            one, other = at % len(lines), draw(st.integers(0, len(lines) - 1))
            lines[one], lines[other] = lines[other], lines[one]
            content = b"".join(lines)
    return Spoilt({**seed.written, name: content}, seed.written)


def cut_out(sources: Sources, series: dict[str, list[str]]) -> Sources:
    """A matrix with only the named series, and with only those rows of the other tables that these series need."""
    documents = [yaml.safe_load(content) for content in sources.values()]
    everything: dict[str, Any] = {}
    frameworks: Sources = {}
    kept: set[tuple[str, str]] = set()
    for file in documents:
        name = file.get("framework", {}).get("name")
        everything.setdefault("sources", {}).update(file.pop("sources", {}))
        if name in series:
            file["series"] = [item for item in file["series"] if item["series"] in series[name]]
            for item in file["series"]:
                item["releases"] = [row for row in item["releases"] if _stands(item.get("upon", {}), row.get("upon", {}), kept)]
                kept |= {(name, row["version"]) for row in item["releases"]}
            frameworks[f"{name}.yaml"] = _encoded(document(paired(file)))
        elif name is None:
            shared = {key: item for key, item in file.pop("defaults", {}).items() if key != "status"}
            file.pop("include", None)
            for table, rows in file.items():
                if isinstance(rows, list):
                    everything.setdefault(table, []).extend({**shared, **row} for row in rows)
                else:
                    everything[table] = rows
    levels = [level for content in frameworks.values() for each in yaml.safe_load(content)["series"] for level in _levels(each)]
    pythons = {python for level in levels for python in level.get("python", [])}
    _keep(everything, {level["cuda"] for level in levels if "cuda" in level}, pythons)
    rest = {table: rows for table, rows in everything.items() if table != "sources"}
    used = json.dumps([rest, *(yaml.safe_load(content) for content in frameworks.values())])
    everything["sources"] = {key: item for key, item in everything["sources"].items() if f'"{key}"' in used}
    return {"matrix.yaml": _encoded(document(paired(everything))), **frameworks}


def _stands(series: dict[str, Any], release: dict[str, Any], kept: set[tuple[str, str]]) -> bool:
    """Whether the default releases of all base frameworks of a release are kept."""
    taken = {}
    for name, said in {**series, **release}.items():
        taken[name] = said if isinstance(said, str) else {**series.get(name, {}), **said}.get("default")
    return all((name, version) in kept or (not version and name in dict(kept)) for name, version in taken.items())


def _levels(series: dict[str, Any]) -> list[dict[str, Any]]:
    """A series, its releases and all variants: the levels that can name a CUDA and Pythons."""
    releases = series["releases"]
    return [series, *releases, *(variant for level in (series, *releases) for variant in level.get("variants", {}).values())]


def _keep(tables: dict[str, Any], cuda: set[str], pythons: set[str]) -> None:
    """Keep the rows that support these CUDA versions and Pythons.

    Of the tables that only list what exists, such as drivers, a few rows are kept.
    """

    def serves(entries: list[str]) -> bool:
        return any((have + ".").startswith(entry + ".") for entry in entries for have in cuda)

    tables["cuda"] = [row for row in tables["cuda"] if row["version"] in cuda]
    systems = {item["system"] for row in tables["cuda"] for item in row["providers"] if "system" in item} | {"debian11"}
    sets = {item.get("wheels") for row in tables["cuda"] for item in row["providers"]}
    tables["wheel_sets"] = [row for row in tables["wheel_sets"] if row["name"] in sets]
    tables["systems"] = [row for row in tables["systems"] if row["name"] in systems]
    tables["pythons"] = [row for row in tables["pythons"] if row["version"] in pythons]
    supplies = [supply for row in tables["pythons"] for supply in row.get("from", [])]
    for supply in supplies:
        supply["files"] = supply.get("files", [])[-1:]
    unpacked = {name for supply in supplies for name in (*supply["files"], supply.get("installer"))}
    tables["archives"] = [row for row in tables["archives"] if row["name"] in unpacked]
    for library in ("cudnn", "nccl"):
        tables[library] = [row for row in tables[library] if "apt" in row and serves(row["cuda"])][-3:]
        for row in tables[library]:
            row["apt"] = [item for item in row["apt"] if serves([item["cuda"]]) and item["system"] in systems]
    named = {name for row in tables["cuda"] for item in row["providers"] for name in item.get("repositories", [])}
    tables["repositories"] = [row for row in tables["repositories"] if row["name"] in named]
    tables["gpus"] = [row for row in tables["gpus"] if "gtx1080ti" in row.get("aliases", [])] + tables["gpus"][:1]
    tables["drivers"] = tables["drivers"][5:40:10]
    tables["driver_rules"] = []
    for row in tables["build_tools"]:
        if "python" in row:
            row["python"] = [python for python in row["python"] if python in pythons]
    tables["build_tools"] = [row for row in tables["build_tools"] if row.get("python", True)]
    tables["source_archives"] = tables["source_archives"][:1]
    tables["gpu_vendors"] = tables["gpu_vendors"][:2]
    known = {row["architecture"] for row in tables["gpus"]}
    tables["architectures"] = [row for row in tables["architectures"] if row["name"] in known] + tables["architectures"][-2:]
