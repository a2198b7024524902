"""CUDA from conda packages: the contents of a row, the resulting environment, and that its files are downloaded like others."""

from __future__ import annotations

from pathlib import Path

import pytest
from overlay_files import HEAD, TOY_ENTRY, overlay

from envbuild import codec
from envbuild.errors import ConflictError, Problem
from envbuild.matrix import checks
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.model.environment import Environment
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

ROWS = (
    HEAD
    + """\
archives:
  - {name: toolkit-9.0, url: "https://conda.anaconda.org/forge/linux-64/toolkit-9.0.conda", sha256: "AAAA"}
  - {name: unpacker, url: "https://github.com/example/unpacker", sha256: "BBBB"}
cuda:
  - version: "9.0"
    driver_min: "384.81"
    capabilities: {min: "3.0", max: "7.2"}
    providers:
      - {provider: conda, system: granite16.04, installer: unpacker, files: [toolkit-9.0], cudnn: "7.4.2", nccl: "2.3.7"}
""".replace("AAAA", "a" * 64).replace("BBBB", "b" * 64)
)


def toy(tmp_path: Path, text: str = ROWS) -> Matrix:
    return load_files(TOY_ENTRY, [overlay(tmp_path, text)])


def decided(tmp_path: Path, text: str = ROWS) -> Environment:
    found = toy(tmp_path, text)
    return resolve(found, parse(["wd-1.12-cuda9-granite16.04"], matrix=found, base="conda")).environment


def test_an_environment_holds_the_files_and_the_program_that_unpacks_them(tmp_path: Path) -> None:
    environment = decided(tmp_path)
    base = environment.base
    assert (base.provider, [file.sha256 for file in base.files]) == ("conda", ["a" * 64])
    assert base.installer is not None
    assert base.installer.url == "https://github.com/example/unpacker"
    assert (base.image, environment.cudnn) == (environment.system.image, "7.4.2")
    assert codec.decode(Environment, codec.encode(environment), "environment") == environment


def test_another_library_than_the_framework_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConflictError):
        decided(tmp_path, ROWS.replace('nccl: "2.3.7"', 'nccl: "2.5.6"'))


@pytest.mark.parametrize(
    ("was", "instead", "message"),
    [
        ("installer: unpacker, ", "", "cannot be installed: it has neither `image` nor `files` with `installer`"),
        ("files: [toolkit-9.0]", "files: [toolkit-9.1]", "the matrix has no archive toolkit-9.1"),
    ],
)
def test_a_row_without_pinned_files_is_named(tmp_path: Path, was: str, instead: str, message: str) -> None:
    assert not [each for each in _problems(tmp_path, ROWS) if "conda" in each.message or "archive" in each.message]
    assert any(message in each.message for each in _problems(tmp_path, ROWS.replace(was, instead)))


def _problems(tmp_path: Path, text: str) -> list[Problem]:
    return checks.check(toy(tmp_path, text))
