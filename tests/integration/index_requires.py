"""What wheels require according to their metadata, for the projects that rows of the matrix name: tests/contract/requires.yaml.

``python tests/integration/index_requires.py`` asks the index and writes the file again.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.lock.metadata import MetadataReader, UnusableFileError
from envbuild.matrix.online.published import ask, indexed
from envbuild.matrix.online.wheel_metadata import Declared, Key, Reader, collect, declared_of, key_of, library_of
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.model.progress import ignore_progress

FILE = Path(__file__).parents[1] / "contract" / "requires.yaml"
ROOT = Path(__file__).parents[2]


def load(path: Path = FILE) -> dict[Key, Declared]:
    """Read the requirements of each build's wheel from the file."""
    found: dict[Key, Declared] = {}
    for name, projects in yaml.safe_load(path.read_text())["wheels"].items():
        requirement, _, version = name.rpartition("==")
        found[(requirement, version)] = declared_of({project: SpecifierSet(text) for project, text in projects.items()})
    return found


def quoted(facts: Matrix) -> dict[Key, set[str]]:
    """The projects that each build's row names in its requirements, constraints and choices."""
    names: dict[Key, set[str]] = {}
    for framework in facts.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                if indexed(variant):
                    terms = (*variant.requirements, *variant.constraints, *variant.choices)
                    ours = {canonicalize_name(Requirement(each.requirement).name) for each in terms}
                    names.setdefault(key_of(variant, release.version), set()).update(ours)
    return names


def text_of(facts: Matrix, declared: Mapping[Key, Declared], day: str) -> str:
    """The content of the file: each wheel's requirements on projects that its rows name, and on the vendor's libraries."""
    names = quoted(facts)
    wheels = {}
    for key, said in sorted(declared.items()):
        kept = {name: str(said.projects[name]) for name in sorted(said.projects) if name in names[key] or library_of(name)}
        if kept:
            wheels["==".join(key)] = kept
    return yaml.safe_dump({"read": day, "wheels": wheels}, sort_keys=False, width=200, default_flow_style=None)


def main() -> None:
    """Ask the index, and write the file again."""
    facts, index = load_files(ROOT / "matrix.yaml"), Index()
    with tempfile.TemporaryDirectory() as folder:
        metadata = MetadataReader(index, Path(folder), ignore_progress, whole=False)

        def requires_of(file: IndexFile, version: Version) -> tuple[Requirement, ...] | None:
            try:
                return metadata.read(file, version).requires
            except UnusableFileError:
                return None

        published = ask(facts, index.project_files, ignore_progress)
        declared = collect(facts, Reader(published, index.project_files, requires_of), ignore_progress)
    FILE.write_text(text_of(facts, declared, datetime.datetime.now(tz=datetime.UTC).date().isoformat()))
    print(f"{len(declared)} wheels read", file=sys.stderr)


if __name__ == "__main__":
    main()
