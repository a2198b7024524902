"""Stamps of programs and files change with every change, and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild import disk_cache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "deep/b.py", "deep/data.yaml"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    return tmp_path / "src"


@pytest.mark.parametrize("changed", ["a.py", "deep/b.py"])
def test_a_program_is_all_its_modules_those_of_subpackages_too(folder: Path, changed: str) -> None:
    before = disk_cache.program(folder)
    assert disk_cache.program(folder) == before
    (folder / changed).write_text("22")
    assert disk_cache.program(folder) != before


@pytest.mark.parametrize("change", ["content", "new file", "removed", "renamed", "replaced"])
def test_a_stamp_changes_with_files_at_any_depth(folder: Path, change: str) -> None:
    before, _ = disk_cache.stamp([folder])
    assert disk_cache.stamp([folder])[0] == before
    path = folder / "deep/data.yaml"
    times = path.stat()
    if change == "content":
        path.write_text("2")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif change == "new file":
        (folder / "deep/more").touch()
    elif change == "removed":
        path.unlink()
    elif change == "renamed":
        path.rename(folder / "deep/other.yaml")
    else:
        path.rename(folder.parent / "old")
        path.write_text("1")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert disk_cache.stamp([folder])[0] != before


def test_what_python_compiles_is_no_change_and_absent_places_are_none(folder: Path) -> None:
    before = disk_cache.stamp([folder, folder / "absent"])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/a.pyc").write_text("x")
    assert disk_cache.stamp([folder, folder / "absent"]) == before
    assert disk_cache.stamp([folder / "absent"])[1] == 0


def test_the_newest_change_is_told(folder: Path) -> None:
    os.utime(folder / "a.py", ns=(0, 2**62))
    assert disk_cache.stamp([folder])[1] == 2**62
