"""Fetch and verify the files of the smoke test's public data sets, or find them in a folder.

Names, sizes, checksums and mirrors come from the guest's table (``datasets.json``). The guest verifies the files again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.errors import BuildError, PublishError, UnknownNameError, UsageError
from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress

_PIECE = 8 << 20
_TABLE = Path(__file__).parent / "smoke" / "datasets" / "datasets.json"
TABLE_VARIABLE = "ENVBUILD_SMOKE_DATASETS"  # names another table; the guest reads this variable too


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """One file of a data set. A fact that the publisher of the file does not state is empty or None."""

    name: str
    size: int | None
    sha256: str
    md5: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A data set.

    ``folders`` are the subfolders in which its files may be. ``wanted`` are the names of the files to fetch. ``mirrors`` are
    the servers that have these files.
    """

    name: str
    title: str
    about: str
    folders: tuple[str, ...]
    known: tuple[DataFile, ...]
    wanted: tuple[str, ...]
    mirrors: tuple[str, ...]

    def file(self, name: str) -> DataFile:
        """Return the facts about the file ``name``."""
        return next(each for each in self.known if each.name == name)

    @property
    def size(self) -> int:
        """The number of bytes to fetch."""
        return sum(self.file(name).size or 0 for name in self.wanted)


def load(path: str = "") -> dict[str, Dataset]:
    """Read the table of data sets at ``path`` (default: the guest's table). Return a map from names to data sets."""
    table: Mapping[str, Any] = json.loads(Path(path or _TABLE).read_text(encoding="utf-8"))
    return {name: _dataset(name, row) for name, row in table.items()}


def _dataset(name: str, row: Mapping[str, Any]) -> Dataset:
    known = tuple(
        DataFile(name=file, size=fact.get("bytes"), sha256=fact.get("sha256", ""), md5=fact.get("md5", ""))
        for file, fact in row["files"].items()
    )
    return Dataset(
        name=name,
        title=row["title"],
        about=row["about"],
        folders=tuple(row["folders"]),
        known=known,
        wanted=tuple(row["fetch"]),
        mirrors=tuple(row["mirrors"]),
    )


def choose(table: Mapping[str, Dataset], name: str) -> Dataset:
    """Return the data set of that name; raises :class:`UnknownNameError`."""
    if name not in table:
        raise UnknownNameError(f"There is no data set {name!r}.", hint=f"The data sets are: {', '.join(table)}.")
    return table[name]


def found(table: Mapping[str, Dataset], folder: Path) -> dict[str, Path]:
    """Return every file below ``folder`` that the guest would read: path below ``folder`` → full path.

    Raises :class:`UsageError` if there is no such file.
    """
    places = {
        f"{below}/{known.name}".lstrip("/"): folder / below / known.name
        for dataset in table.values()
        for below in dataset.folders
        for known in dataset.known
    }
    present = {place: path for place, path in places.items() if path.is_file()}
    if not present:
        titles = " or ".join(dataset.title for dataset in table.values())
        raise UsageError(
            f"{folder} contains no file of {titles}.",
            code="no-data",
            hint=f"To download a data set, run `envbuild data fetch {next(iter(table))} --to {folder}`. `envbuild data list` "
            "shows all names.",
        )
    return present


def is_whole(known: DataFile, path: Path) -> bool:
    """Whether the file exists and has the right content."""
    return (
        path.is_file() and (known.size is None or path.stat().st_size == known.size) and _digest(path, known) == _wanted(known)
    )


def fetch(dataset: Dataset, folder: Path, index: Index, on_progress: OnProgress = ignore_progress) -> list[Path]:
    """Fetch and verify the files of the data set into ``folder``; intact files that exist are kept.

    An interrupted download is continued, even from another mirror or in another run. Raises
    :class:`PublishError` (``data-unreachable``) if a file cannot be had from any mirror.
    """
    paths = []
    for name in dataset.wanted:
        target = folder / name
        with files.locked(folder / f".{name}.fetching", as_news("download", on_progress)):
            if not is_whole(dataset.file(name), target):
                _from_a_mirror(dataset, dataset.file(name), target, index, on_progress)
        paths.append(target)
    return paths


def _from_a_mirror(dataset: Dataset, known: DataFile, target: Path, index: Index, on_progress: OnProgress) -> None:
    reasons = []
    for mirror in dataset.mirrors:
        try:
            _download(f"{mirror}{known.name}", known, target, index, on_progress)
        except OSError as error:
            raise files.explain_os_error(error, target) from error
        except BuildError as error:
            if error.code == "no-space":
                raise
            reasons.append(f"{mirror}{known.name}: {error.message}")
        else:
            return
    raise PublishError(
        f"{known.name} of {dataset.title} could not be fetched.",
        code="data-unreachable",
        details=reasons,
        hint="Repeat the command when one of these addresses can be reached: finished downloads are kept. Or download the file "
        f"on another machine and copy it to {target.parent}. Without the data set, the smoke test trains on generated images.",
    )


def _download(url: str, known: DataFile, target: Path, index: Index, on_progress: OnProgress) -> None:
    part = target.with_name(f".{target.name}.partial")
    if not _in_pieces(url, known, part, index, on_progress):
        whole = index.download(IndexFile.pinned(url, known.name, known.sha256), target.parent, on_progress)
        whole.replace(part)
    got = _digest(part, known)
    if got != _wanted(known):
        part.unlink()
        raise BuildError(
            f"this address has a different file: its checksum is {got} instead of {_wanted(known)}.", code="hash-differs"
        )
    part.replace(target)


def _in_pieces(url: str, known: DataFile, part: Path, index: Index, on_progress: OnProgress) -> bool:
    """Continue the download of ``part`` until it is complete; return False if the server cannot send parts of files."""
    with files.open_to_append(part) as out:
        if known.size is not None and out.tell() > known.size:
            out.truncate(0)
        while True:
            have = os.fstat(out.fileno()).st_size
            piece = index.read_range(url, have, have + _PIECE - 1) if have != known.size else (b"", have)
            if piece is None:
                return False
            if not piece[0] and have < piece[1]:
                raise BuildError(f"the download was interrupted after {have} bytes.", code="index-unreachable")
            out.write(piece[0])
            out.flush()
            have += len(piece[0])
            on_progress(Progress(stage="download", message=known.name, done=have, total=piece[1], unit="bytes"))
            if have >= piece[1]:
                os.fsync(out.fileno())
                return True


def _wanted(known: DataFile) -> str:
    return known.sha256 or known.md5


def _digest(path: Path, known: DataFile) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256" if known.sha256 else "md5").hexdigest()
