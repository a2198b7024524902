"""The wheels of new releases are measured once, and told in the form of the matrix's rows."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from elf_files import NATIVE, PTX, Shared, container, entry, wheel

from envbuild.errors import InvalidInputError
from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.matrix.online.new_row import MeasuredNeeds
from envbuild.measure import measured_files
from envbuild.model.progress import ignore_progress
from envbuild.updates import wheel_needs
from envbuild.workspace import Workspace

NAME = "widget-1.0-cp36-cp36m-manylinux1_x86_64.whl"


class Source:
    """An index that sends one wheel, and counts how often."""

    def __init__(self, content: bytes) -> None:
        self.content, self.sent = content, 0

    def download(self, file: IndexFile, folder: Path, _: object) -> Path:
        self.sent += 1
        path = folder / file.filename
        path.write_bytes(self.content)
        return path


def place(folder: Path) -> Workspace:
    return Workspace(root=folder, output=folder / "images", home=folder)


def published(name: str = NAME) -> IndexFile:
    return IndexFile(
        index="default", project="widget", filename=name, url="", sha256="", size=None, uploaded="", requires_python="",
        yanked=False, metadata=None,
    )  # fmt: skip


def content(*numbers: int) -> bytes:
    code = container(*(entry(NATIVE, each) for each in numbers), entry(PTX, numbers[-1])) if numbers else b""
    library = Shared(fatbins={".nv_fatbin": code} if code else {}, versions={"libc.so.6": ["GLIBC_2.23"]})
    return wheel({"widget/lib.so": library.data()}, project="widget", version="1.0")


def test_gpu_code_and_glibc_of_a_wheel_that_is_fetched_once(tmp_path: Path) -> None:
    source = Source(content(100, 70))
    with wheel_needs.opened(cast("Index", source), place(tmp_path), ignore_progress) as needs:
        found = needs(published())
        assert found == MeasuredNeeds(native=["7.0", "10.0"], ptx=["7.0"], glibc="2.23")
        assert needs(published()) == found and source.sent == 1
        assert needs.summaries[NAME]["glibc"] == "2.23"
    assert list((tmp_path / "downloads").iterdir()) == []


def test_a_wheel_that_the_workspace_has_measured_is_not_fetched(tmp_path: Path) -> None:
    source = Source(content(70))
    with wheel_needs.opened(cast("Index", source), place(tmp_path), ignore_progress) as needs:
        found = needs(published())
        measured_files.keep(place(tmp_path).measured, list(needs.summaries.values()))
    with wheel_needs.opened(cast("Index", source), place(tmp_path), ignore_progress) as again:
        assert again(published()) == found and source.sent == 1


def test_a_wheel_without_gpu_code_and_one_without_libraries(tmp_path: Path) -> None:
    source = Source(content())
    with wheel_needs.opened(cast("Index", source), place(tmp_path), ignore_progress) as needs:
        assert needs(published("widget-1.0-py3-none-any.whl")) is None and source.sent == 0
        assert needs(published()) == MeasuredNeeds(native=(), ptx=(), glibc="2.23")


def test_a_damaged_wheel_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    source = Source(content(70)[:-30])
    with wheel_needs.opened(cast("Index", source), place(tmp_path), ignore_progress) as needs:
        with pytest.raises(InvalidInputError):
            needs(published())
        assert needs.summaries == {}
    assert list((tmp_path / "downloads").iterdir()) == []
