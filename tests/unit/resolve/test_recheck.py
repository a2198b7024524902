"""Whether the matrix still accepts an earlier decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TOY_ENTRY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"
TOY = load_files(TOY_ENTRY)


def ask(*texts: str, **options: str) -> Any:
    return resolve(TOY, parse(texts, matrix=TOY, **options))


def against(name: str, *replacements: tuple[str, str, str]) -> list[str]:
    """The objections of a changed matrix to an environment that was decided with the toy matrix."""
    sources = dict(read_sources(TOY_ENTRY))
    for file, old, new in replacements:
        assert old.encode() in sources[file], old
        sources[file] = sources[file].replace(old.encode(), new.encode())
    return [f"{item.row}: {item.reason}" for item in recheck(compile_matrix(sources), ask(name).environment)]


LOCAL = 'package: widget-gpu\n        local_version: "+x"\n'
WIDGET, CUDA, SYSTEMS = "matrix/frameworks/widget.yaml", "matrix/cuda.yaml", "matrix/systems.yaml"


def test_a_decision_outlives_preferences() -> None:
    newer = '- {version: "1.12.9", released: "2020-01-01"}\n      - {version: "1.12.3"'
    assert against("wd-1.12-cuda9", (WIDGET, '- {version: "1.12.3"', newer)) == []
    assert against("wd-1.12-cuda9", (SYSTEMS, "preference: 30", "preference: 1")) == []
    assert against("wd-1.12-cuda9", (WIDGET, 'prefer: "7.4.2"', 'prefer: "7.6.4"')) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (WIDGET, 'version: "1.12.3"', 'version: "1.12.5"', "widget 1.12.3: is no longer in the matrix"),
        (WIDGET, 'options: {level: release}}', 'status: known-bad, note: "wrong"}', "known not to work: wrong"),
        (WIDGET, '["2.7", "3.4", "3.5", "3.6"]', '["2.7", "3.6"]', "no longer 3.5"),
        (WIDGET, 'cuda: "9.0"', 'cuda: "11.0"', "no longer has a build widget-gpu for CUDA 9.0"),
        (WIDGET, "package: widget-gpu\n", "package: widget-new\n", "no longer has a build widget-gpu"),
        (WIDGET, "package: widget-gpu\n", LOCAL, "is now installed as widget-gpu==1.12.3+x"),
        (WIDGET, 'cudnn: {min: "7.1"', 'cudnn: {min: "7.5"', "no longer accepts cudnn 7.4.2"),
        (WIDGET, 'nccl: "2.3.7"', 'nccl: "2.5.6"', "no longer accepts nccl 2.3.7"),
        (WIDGET, 'glibc: "2.17"', 'glibc: "2.25"', "has glibc 2.23"),
        (CUDA, "system: granite16.04\n        repositories", "system: marble10\n        repositories", "no longer provides"),
        (SYSTEMS, "name: granite16.04", "name: granite18.04", "system granite16.04: is no longer in the matrix"),
        (SYSTEMS, '{version: "3.5", packages: [python3]', '{version: "3.4", packages: [python3]', "not 3.5"),
    ],
)  # fmt: skip
def test_a_decision_that_the_facts_left_behind(file: str, old: str, new: str, expected: str) -> None:
    found = against("wd-1.12-cuda9", (file, old, new))
    assert any(expected in item for item in found), found


def test_a_decision_on_ones_own_image_needs_no_provider() -> None:
    own = ask("wd-1.12-cuda9-py35-granite16.04", base="my/cuda:9").environment
    assert recheck(TOY, own) == []
    own = replace(own, python=replace(own.python, provided_by="distribution"))
    assert recheck(TOY, replace(own, base=replace(own.base, provider="conda"))) == []
    assert recheck(TOY, replace(own, base=replace(own.base, provider="tag"))) != []
