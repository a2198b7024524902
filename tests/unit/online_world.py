"""A small package index for the toy matrix, for tests of comparisons and proposals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from envbuild.errors import UnknownNameError
from envbuild.index.project_pages import IndexFile
from envbuild.matrix.online.differences import IndexDifference, compare
from envbuild.matrix.online.new_row import MeasuredNeeds, RowSources, not_measured
from envbuild.matrix.online.proposals import Proposal, propose
from envbuild.matrix.online.published import Published, ask, packages
from envbuild.matrix.online.wheel_metadata import Reader, collect
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Matrix

ENTRY = Path(__file__).parent.parent / "golden" / "toy" / "matrix.yaml"
SOURCES = {name: content.decode() for name, content in read_sources(ENTRY).items()}
TOY = compile_matrix({name: text.encode() for name, text in SOURCES.items()})
WIDGET = "matrix/frameworks/widget.yaml"


def file(name: str, day: str, *, yanked: bool = False) -> IndexFile:
    return IndexFile(
        index="default", project=name.split("-", maxsplit=1)[0].replace("_", "-"), filename=name, url="", sha256="", size=None,
        uploaded=f"{day}T10:00:00Z", requires_python="", yanked=yanked, metadata=None,
    )  # fmt: skip


def whole_index() -> dict[str, list[IndexFile]]:
    """An index with exactly the releases of the toy matrix."""
    found: dict[str, list[IndexFile]] = {}
    for framework in TOY.frameworks:
        for name in packages(framework):
            found[name] = []
        for release in framework.releases:
            for variant in release.variants:
                if variant.index == "default":
                    for python in variant.python:
                        tag = f"cp{python.replace('.', '')}"
                        stem = f"{variant.package.replace('-', '_')}-{release.version}-{tag}-{tag}"
                        platform = f"manylinux_{variant.glibc.replace('.', '_')}_x86_64"
                        found[variant.package].append(file(f"{stem}-{platform}.whl", release.released))
    return found


Says = Mapping[str, list[str]]  # beginning of a wheel's name → its requirements


def reader(index: dict[str, list[IndexFile]], published: Published, says: Says) -> Reader:
    def requires_of(file: IndexFile, version: Version) -> list[Requirement]:
        texts = next((texts for name, texts in says.items() if file.filename.startswith(f"{name}-")), [])
        return [Requirement(text) for text in texts]

    def files_of(project: str) -> list[IndexFile]:
        if project not in index:
            raise UnknownNameError("no such project")
        return index[project]

    return Reader(published, files_of, requires_of)


def findings(index: dict[str, list[IndexFile]], says: Says | None = None, facts: Matrix = TOY) -> list[IndexDifference]:
    published = ask(facts, index.__getitem__, lambda _: None)
    return compare(facts, published, collect(facts, reader(index, published, says or {}), lambda _: None))


def proposal(
    index: dict[str, list[IndexFile]],
    sources: dict[str, str] = SOURCES,
    says: Says | None = None,
    needs_of: Callable[[IndexFile], MeasuredNeeds | None] = not_measured,
) -> Proposal:
    facts = compile_matrix({name: text.encode() for name, text in sources.items()})
    published = ask(facts, index.__getitem__, lambda _: None)
    asked = reader(index, published, says or {})
    found = compare(facts, published, collect(facts, asked, lambda _: None))
    source = RowSources(matrix=facts, published=published, reader=asked, today="2026-11-21", needs_of=needs_of)
    return propose(source, sources, found)
