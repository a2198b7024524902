"""The releases that the package index had of each project on one day. tests/contract/index has one file per project.

``python tests/integration/index_lists.py`` asks the index and writes the files again. The diff shows what upstream has
published since then.
"""

from __future__ import annotations

import datetime
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile

FOLDER = Path(__file__).parents[1] / "contract" / "index"


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The releases of a project, oldest first. ``yanked`` are the releases of which all files were withdrawn.

    ``framework`` is the framework of the matrix whose releases these are.
    """

    project: str
    framework: str
    read: str
    releases: tuple[str, ...]
    yanked: tuple[str, ...]

    @property
    def text(self) -> str:
        """The content of the file."""
        head = f'project: {self.project}\nframework: {self.framework}\nsource: "pkg:pypi/{self.project}"\nread: "{self.read}"\n'
        return head + _words("releases", self.releases) + _words("yanked", self.yanked)


def _words(key: str, versions: Sequence[str]) -> str:
    return (
        f"{key}: >-\n{textwrap.fill(' '.join(versions), 120, initial_indent='  ', subsequent_indent='  ')}\n"
        if versions
        else ""
    )


def load(path: Path) -> Listing:
    """Read the listing from a file."""
    found = yaml.safe_load(path.read_text())
    return Listing(
        project=found["project"],
        framework=found["framework"],
        read=found["read"],
        releases=tuple(found["releases"].split()),
        yanked=tuple(found.get("yanked", "").split()),
    )


def every() -> list[Listing]:
    """All listings, sorted by project."""
    return [load(path) for path in sorted(FOLDER.glob("*.yaml"))]


def of_files(project: str, framework: str, files: Iterable[IndexFile], day: str) -> Listing:
    """Make the listing from the files that an index offers now."""
    withdrawn: dict[Version, bool] = {}
    for file in files:
        try:
            wheel = file.filename.endswith(".whl")
            version = parse_wheel_filename(file.filename)[1] if wheel else parse_sdist_filename(file.filename)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue  # eggs, installers, and names that current tools cannot parse
        withdrawn[version] = withdrawn.get(version, True) and file.yanked
    order = sorted(withdrawn)
    return Listing(
        project=project,
        framework=framework,
        read=day,
        releases=tuple(map(str, order)),
        yanked=tuple(str(version) for version in order if withdrawn[version]),
    )


def main(words: Sequence[str]) -> None:
    """Write the files again; an argument ``project=framework`` adds a project."""
    known = {listing.project: listing.framework for listing in every()}
    for word in words:
        project, _, framework = word.partition("=")
        known[project] = framework
    index, day = Index(), datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    index.prefetch(known)
    for project, framework in sorted(known.items()):
        text = of_files(project, framework, index.project_files(project), day).text
        (FOLDER / f"{project}.yaml").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
