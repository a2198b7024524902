"""The compiled copy of the matrix saves reading YAML, and is always checked before use."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild import disk_cache, files
from envbuild.errors import InvalidInputError
from envbuild.matrix import cache
from envbuild.matrix.reading import loader
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Matrix, NameHint, Requirement
from envbuild.workspace import Workspace

TOY_ENTRY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"
SOURCES = read_sources(TOY_ENTRY)
TOY = compile_matrix(SOURCES)
CUDA = "matrix/cuda.yaml"
SYSTEMS = "matrix/systems.yaml"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    for name, content in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Workspace(root=root, output=tmp_path / "out", home=tmp_path / "home")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records each time that YAML is read."""
    counted: list[int] = []
    original: Callable[..., Matrix] = loader.compile_matrix

    def count(*args: object) -> Matrix:
        counted.append(1)
        return original(*args)

    monkeypatch.setattr(loader, "compile_matrix", count)
    return counted


def copies(workspace: Workspace) -> list[Path]:
    return sorted(workspace.matrix_cache.glob("*.json"))


def test_packing_is_a_round_trip() -> None:
    assert cache.unpack(json.loads(json.dumps(cache.pack(TOY)))) == TOY


def test_rows_of_two_classes_with_the_same_values_stay_two_rows() -> None:
    rows = (Requirement("a", "b", "c"), NameHint("a", "b", "c"))
    assert rows[0] == rows[1]  # named tuples with equal values are equal, whatever their class
    assert [type(row) for row in cache.unpack(cache.pack(rows))] == [Requirement, NameHint]


def test_a_table_is_read_when_it_is_first_looked_at(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.load(workspace)
    parts: list[int] = []
    original = disk_cache.CachedParts.part
    monkeypatch.setattr(disk_cache.CachedParts, "part", lambda self, number: parts.append(number) or original(self, number))
    found = cache.load(workspace)
    assert parts == [0]
    assert (tuple(found.gpus), tuple(found.gpus)) == (TOY.gpus, TOY.gpus)
    assert len(parts) == 2


def test_the_second_load_reads_no_yaml(workspace: Workspace, reads: list[int]) -> None:
    assert cache.load(workspace) == TOY == cache.load(workspace)
    assert len(reads) == 1


def test_any_changed_source_is_noticed(workspace: Workspace, reads: list[int]) -> None:
    cache.load(workspace)
    path = workspace.root / CUDA
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"384.81"', b'"384.82"'))  # same length; the next line restores the time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert next(row for row in cache.load(workspace).cuda if row.version == "9.0").driver_min == "384.82"
    assert len(reads) == 2
    (workspace.root / SYSTEMS).unlink()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        cache.load(workspace)


def test_sources_are_read_again_only_if_their_stamp_is_new(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    original, read = files.read_bytes, []
    monkeypatch.setattr(files, "read_bytes", lambda path, *rest: read.append(path.suffix) or original(path, *rest))
    monkeypatch.setattr(disk_cache, "SETTLED_NS", 0)  # files count as unchanged without waiting
    cache.load(workspace)
    read.clear()
    assert cache.load(workspace) == TOY
    assert ".yaml" not in read
    (workspace.root / CUDA).touch()  # a new modification time, the same bytes
    assert cache.load(workspace) == TOY
    assert read.count(".yaml") == len(SOURCES)


def test_a_stamp_of_files_that_changed_just_now_is_not_trusted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "stamp", lambda _places: ("same", time.time_ns()))  # as with a clock that stands still
    cache.load(workspace)
    path = workspace.root / CUDA
    path.write_bytes(path.read_bytes().replace(b'"384.81"', b'"384.82"'))
    assert next(row for row in cache.load(workspace).cuda if row.version == "9.0").driver_min == "384.82"


def beside(workspace: Workspace, folder: Path) -> Workspace:
    """Another checkout with the same files and the same cache folder."""
    shutil.copytree(workspace.root, folder)
    return replace(workspace, root=folder)


def test_a_copy_serves_every_checkout_with_the_same_files(workspace: Workspace, tmp_path: Path, reads: list[int]) -> None:
    cache.load(workspace)
    other = beside(workspace, tmp_path / "other")
    assert cache.load(other) == TOY and cache.fingerprint(other) == TOY.fingerprint
    assert len(reads) == 1
    path = other.root / CUDA
    path.write_bytes(path.read_bytes().replace(b'"384.81"', b'"384.82"'))
    assert next(row for row in cache.load(other).cuda if row.version == "9.0").driver_min == "384.82"
    assert cache.load(workspace) == TOY
    assert len(reads) == 2


def test_a_copy_with_an_overlay_serves_only_checkouts_with_this_overlay(
    workspace: Workspace, tmp_path: Path, reads: list[int]
) -> None:
    overlay = tmp_path / "site.yaml"
    overlay.write_bytes(b"schema: 1\n")
    other = beside(workspace, tmp_path / "other")
    for number, (place, overlays) in enumerate([(workspace, [overlay]), (other, []), (beside(other, tmp_path / "third"), [])]):
        cache.load(place, overlays)
        assert len(reads) == min(number + 1, 2)
    cache.load(other, [overlay])
    assert len(reads) == 2


def test_a_table_that_is_damaged_later_is_read_from_the_sources(workspace: Workspace, reads: list[int]) -> None:
    cache.load(workspace)
    (copy,) = copies(workspace)
    copy.write_bytes(copy.read_bytes().replace(b"384.81", b"384.80"))
    found = cache.load(workspace)
    assert (tuple(found.gpus), len(reads)) == (TOY.gpus, 1)
    assert (tuple(found.cuda), len(reads)) == (TOY.cuda, 2)
    assert tuple(cache.load(workspace).cuda) == TOY.cuda
    assert len(reads) == 2  # the copy was written again


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "header", "foreign", "directory"])
def test_a_damaged_copy_is_not_believed(workspace: Workspace, reads: list[int], damage: str) -> None:
    cache.load(workspace)
    (copy,) = copies(workspace)
    content = copy.read_bytes()
    header, payload = content.split(b"\n", 1)
    damaged = {
        "truncate": content[: len(content) // 2],
        "flip": content.replace(b"384.81", b"384.80"),
        "empty": b"",
        "header": b"[]\n" + payload,
        "foreign": header + b"\n[]",
        "directory": None,
    }[damage]
    if damaged is None:
        copy.unlink()
        copy.mkdir()
    else:
        copy.write_bytes(damaged)
    assert cache.load(workspace) == TOY
    assert len(reads) == 2


def test_a_copy_of_another_program_is_not_believed(
    workspace: Workspace, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.load(workspace)
    monkeypatch.setattr(disk_cache, "FORMAT", 99)
    assert cache.load(workspace) == TOY
    assert len(reads) == 2


def test_a_home_that_cannot_be_written_only_costs_time(workspace: Workspace, reads: list[int]) -> None:
    workspace.home.write_text("a file where a folder should be")
    assert cache.load(workspace) == TOY == cache.load(workspace)
    assert len(reads) == 2


def test_a_broken_matrix_is_refused_every_time_and_leaves_no_copy(workspace: Workspace) -> None:
    (workspace.root / CUDA).write_text("cuda: [")
    for _ in range(2):
        with pytest.raises(InvalidInputError):
            cache.load(workspace)
    assert copies(workspace) == []


def test_old_copies_are_removed(workspace: Workspace) -> None:
    for number in range(20):
        overlay = workspace.root / f"overlay{number}.yaml"
        overlay.write_text("{}")
        cache.load(workspace, [overlay])
    assert len(copies(workspace)) == 16
