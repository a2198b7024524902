"""For every row that an answer depends on: known bad rows are refused, and unknown ones are mentioned."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import ConflictError
from envbuild.matrix import checks
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Matrix
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

SOURCES = read_sources(Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml")
ASKED = {"driver": "384.130", "gpu": "gtx1080ti", "base": "apt", "system": "granite16.04"}
# Row → its file, a text in the row, and the same text with a status.
ROWS = {
    "system": ("matrix/systems.yaml", "    status: end-of-life\n", "    status: {}\n"),
    "python": ("matrix/systems.yaml", '{version: "3.5", preference: 20', '{version: "3.5", preference: 20, status: {}'),
    "cuda": ("matrix/cuda.yaml", '    driver_min: "384.81"\n', '    driver_min: "384.81"\n    status: {}\n'),
    "base": ("matrix/cuda.yaml", "      - provider: apt\n", "      - status: {}\n        provider: apt\n"),
    "cudnn": ("matrix/cuda.yaml", '  - version: "7.4.2"\n', '  - version: "7.4.2"\n    status: {}\n'),
    "driver": ("matrix/hardware.yaml", '{branch: "384"', '{branch: "384", status: {}'),
    "architecture": ("matrix/hardware.yaml", "{name: Bee", "{status: {}, name: Bee"),
    "gpu": ("matrix/hardware.yaml", "{name: ForceG", "{status: {}, name: ForceG"),
    "build": ("matrix/frameworks/widget.yaml", 'cuda: "9.0"', 'status: {}\n        cuda: "9.0"'),
}


def marked(row: str, status: str) -> Matrix:
    file, before, after = ROWS[row]
    text = SOURCES[file].decode()
    assert before in text
    flow = "{" in before
    words = f"{status}, note: told" if flow else f"{status}\n{' ' * (len(after) - len(after.lstrip(' -')))}note: told"
    if row == "build":
        words = f"{status}\n        note: told"
    return compile_matrix({**SOURCES, file: text.replace(before, after.replace("{}", words), 1).encode()})


def ask(found: Matrix, **more: str) -> Request:
    return parse(["wd-1.12.3-cuda9.0-py35"], matrix=found, **{**ASKED, **more})


@pytest.mark.parametrize("row", ROWS)
def test_a_row_that_is_known_bad_refuses_what_rests_on_it(row: str) -> None:
    found = marked(row, "known-bad")
    if row == "cudnn":  # another cuDNN release is chosen
        assert resolve(found, ask(found)).environment.cudnn == "7.6.4"
        return
    with pytest.raises(ConflictError) as refused:
        resolve(found, ask(found))
    # Each system has an objection, and the error names only one of them.
    assert row == "system" or any("known not to work: told" in conflict.reason for conflict in refused.value.conflicts)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_that_is_unproved_is_chosen_and_said(row: str) -> None:
    found = marked(row, "unknown")
    assert any("has not been tested: told" in warning for warning in resolve(found, ask(found)).warnings)


def test_a_known_bad_package_or_repository_of_a_library_is_passed_over() -> None:
    text = SOURCES["matrix/cuda.yaml"].decode()
    bad = text.replace(
        '{cuda: "9.0", system: granite16.04, name: libcudnn7, version: "7.4.2',
        '{status: known-bad, note: told, cuda: "9.0", system: granite16.04, name: libcudnn7, version: "7.4.2',
    )
    assert bad != text
    found = compile_matrix({**SOURCES, "matrix/cuda.yaml": bad.encode()})
    assert resolve(found, ask(found)).environment.cudnn == "7.6.4"
    bad = text.replace("{name: ml-granite", "{status: known-bad, note: told, name: ml-granite")
    found = compile_matrix({**SOURCES, "matrix/cuda.yaml": bad.encode()})
    with pytest.raises(ConflictError) as refused:
        resolve(found, ask(found))
    assert any("known not to work: told" in conflict.reason for conflict in refused.value.conflicts)


def test_a_lock_on_a_cuda_that_turned_out_bad_is_refused() -> None:
    found = compile_matrix(SOURCES)
    environment = resolve(found, ask(found)).environment
    assert checks.check(found) == [] == recheck(found, environment)
    for row in ("cuda", "python", "system", "base", "build"):
        assert any("told" in conflict.reason for conflict in recheck(marked(row, "known-bad"), environment)), row


def test_a_refusal_names_a_fact_even_where_there_is_no_system() -> None:
    text = SOURCES["matrix/systems.yaml"].decode()
    bare = text[: text.index("systems:\n")] + text[text.index("pythons:\n  - {version") :]
    found = compile_matrix({**SOURCES, "matrix/systems.yaml": bare.encode()})
    with pytest.raises(ConflictError) as refused:
        resolve(found, parse(["wd-1.12"], matrix=found))
    assert refused.value.conflicts
