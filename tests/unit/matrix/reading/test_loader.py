"""Loading the facts: inheritance, all problems at once, overlays, and a compiled copy that is always checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError, Problem
from envbuild.matrix import checks
from envbuild.matrix.reading import loader
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.matrix.types import Matrix, Release

TOY_ENTRY = Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml"
SOURCES = read_sources(TOY_ENTRY)
TOY = compile_matrix(SOURCES)
WIDGET = "matrix/frameworks/widget.yaml"
CUDA = "matrix/cuda.yaml"
HARDWARE = "matrix/hardware.yaml"
SYSTEMS = "matrix/systems.yaml"
PACKAGES = 'packages: [{name: cuda-libraries-11-0, version: "11.0.3-1", repository: cuda-marble}]'


def changed(name: str, *replacements: tuple[str, str]) -> dict[str, bytes]:
    """The toy matrix with some words of one file replaced."""
    text = SOURCES[name].decode()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return {**SOURCES, name: text.encode()}


def problems_of(sources: dict[str, bytes]) -> list[Problem]:
    with pytest.raises(InvalidInputError) as caught:
        compile_matrix(sources)
    return list(caught.value.problems)


def checked(sources: dict[str, bytes]) -> list[str]:
    return [problem.message for problem in checks.check(compile_matrix(sources))]


def release(found: Matrix, version: str) -> Release:
    return next(row for table in found.frameworks for row in table.releases if row.version == version)


def test_the_toy_is_consistent() -> None:
    assert checks.check(TOY) == []


def test_versions_are_ordered_newest_first() -> None:
    widget = next(table for table in TOY.frameworks if table.name == "widget")
    assert [row.version for row in widget.releases] == [
        "2.5.1", "2.5", "2.0.0.post1", "2.0.0", "1.12.4", "1.12.3", "1.12.2", "1.12.0", "1.4.0",
    ]  # fmt: skip
    assert [row.version for row in TOY.cuda] == ["12.8", "12.4", "11.4", "11.0", "9.0", "8.0"]
    assert [row.name for row in TOY.systems] == ["marble12", "marble10", "granite16.04"]


def test_values_are_handed_down_and_overridden() -> None:
    plain, override = release(TOY, "1.12.0"), release(TOY, "1.12.2")
    gpu = plain.variants[0]
    assert dict(gpu.options) == {"level": "series", "api": "1", "keep": "yes"}
    assert dict(override.variants[0].options)["level"] == "variant"
    assert override.variants[0].python == ("3.5",)
    assert override.variants[0].cuda == gpu.cuda == "9.0"
    assert [variant.name for variant in override.variants] == ["gpu"]
    assert [item.requirement for item in plain.variants[1].constraints] == ["helper<3", "proto<3.21", "quiet"]
    assert (plain.exclude_newer, override.exclude_newer) == ("2018-12-05", "2019-04-18")


def test_provenance_is_inherited_and_resolved_to_documents() -> None:
    gpu = release(TOY, "1.12.0").variants[0]
    assert gpu.origin.sources == ("pkg:pypi/widget-gpu@1.12.0",)
    assert gpu.origin.source_of("cuda") == "https://example.org/cuda-of-widget"
    assert release(TOY, "1.12.3").origin.source == "https://example.org/widget"
    bad = release(TOY, "1.12.4").variants[0].origin
    assert (bad.status, bad.note, bad.checked) == ("known-bad", "crashes at import", "2026-11-21")
    assert gpu.origin.at.startswith(f"{WIDGET}:")


def test_many_problems_are_reported_at_once_with_file_and_line() -> None:
    sources = changed(WIDGET, ('cuda: "8.0"', "cuda: 8.0"), ('glibc: "2.17", cap', 'glbc: "2.17", cap'), ("2018-11-05", "soon"))
    sources[SYSTEMS] = sources[SYSTEMS].replace(b"toy-systems\n", b"nowhere\n", 1)
    sources[CUDA] += b"\nsurprise: 1\n"
    found = problems_of(sources)
    assert {problem.where for problem in found} == {WIDGET, SYSTEMS, CUDA}
    messages = "\n".join(map(str, found))
    for expected in (
        'cuda: YAML reads 8.0 as a number: quote it, "8.0"',
        "glibc is missing",
        "glbc: unknown key, did you mean glibc?",
        "unknown source 'nowhere'",
        "surprise: unknown key",
        "'soon' is not a date",
    ):
        assert expected in messages, messages
    wrong = next(problem for problem in found if "8.0" in problem.message)
    assert "cuda: 8.0" in sources[WIDGET].decode().splitlines()[wrong.line - 1]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (WIDGET, 'version: "1.12.2"', 'version: "1.12.3"', "release 1.12.3 is defined twice"),
        (WIDGET, 'version: "1.12.2"', 'version: "one"', "'one' is not a version"),
        (WIDGET, "without: [cpu]", "without: [tpu]", "`without` leaves out 'tpu'"),
        (WIDGET, "without: [cpu]", "without: [cpu, gpu]", "the release has no build"),
        (WIDGET, "cuda_libraries: none", "cuda_libraries: wheels", "its `cuda_libraries` is wheels"),
        (WIDGET, 'note: "crashes at import"', 'note: ""', "needs a `note`"),
        (WIDGET, "status: known-bad", "status: bad", "'bad' is not one of"),
        (WIDGET, 'released: "2019-04-18"', 'released: "2019-04"', "not a full date"),
        (WIDGET, "options: {level: release}", "options: {level: 1}", "YAML reads 1 as an integer"),
        (WIDGET, 'python: ">=3.6"', 'python: "newer"', "does not have the expected form"),
        (CUDA, 'version: "11.0"\n', 'version: "9.0"\n', "cuda 9.0 is defined twice"),
        (CUDA, "provider: conda", "provider: magic", "'magic' is not one of"),
        (CUDA, "EB693B3035CD5710E231E123A4B469963BF863CC", "EB69", "does not have the expected form"),
        (SYSTEMS, 'title: "Made-up systems", ', "", "title is missing"),
        (SYSTEMS, 'url: "https://example.org/systems"', "url: nowhere", "does not have the expected form"),
        ("matrix.yaml", "schema: 1", "schema: 2", "can read only schema 1"),
        ("matrix.yaml", "policy: {", "polcy: {", "policy is missing"),
        ("matrix.yaml", "[distribution, uv]", "[distribution, magic]", "'magic' is not one of"),
    ],
)
def test_each_kind_of_broken_row(name: str, old: str, new: str, message: str) -> None:
    found = problems_of(changed(name, (old, new)))
    assert any(message in problem.message and problem.line for problem in found), list(map(str, found))


def test_a_row_without_source_or_date_is_refused() -> None:
    found = problems_of(changed(HARDWARE, ('defaults: {source: [toy], checked: "2026-11-21", status: ok}', "defaults: {}")))
    assert any("has no source" in problem.message for problem in found)
    assert any("when it was checked" in problem.message for problem in found)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (WIDGET, 'cuda: "9.0"', 'cuda: "9.1"', "the matrix has no CUDA 9.1"),
        (WIDGET, '["2.7", "3.4", "3.5", "3.6"], cuda_l', '["2.7", "3.9"], cuda_l', "the matrix has no Python 3.9"),
        (WIDGET, 'glibc: "2.28"', 'glibc: "2.99"', "can be used: none has glibc 2.99 or newer"),
        (WIDGET, 'cudnn: {min: "8.0"}', 'cudnn: {min: "9"}', "no provider has the cuDNN and NCCL"),
        (WIDGET, 'python: ["3.6"], cuda: "11.0"', 'python: ["3.4"], cuda: "11.0"', "do not have Python 3.4"),
        (WIDGET, 'sass: ["3.5", "6.0"], ptx: ["6.0"]', 'sass: ["3.5", "6.4"]', "of the matrix has capability 6.4"),
        (WIDGET, "aliases: [wd, widget]", "aliases: [widget, gizmo]", "widget cannot have the name gizmo: it belongs"),
        (WIDGET, "aliases: [wd, widget]", "aliases: [widget]", "the short name wd is missing"),
        (WIDGET, 'exclude_newer: "2021-01-01"', 'exclude_newer: "2020-01-01"', "is earlier than its release"),
        (CUDA, "repositories: [cuda-granite, ml-", "repositories: [gone, ml-", "the matrix has no repository gone"),
        (CUDA, "repositories: [cuda-granite, ml-granite]", "repositories: [ml-granite]", "missing from its `repos"),
        (CUDA, PACKAGES, "packages: []", "cannot be installed"),
        (CUDA, '    driver_min: "384.81"', '    driver_min: "999.81"', "is new enough for CUDA 9.0"),
        (CUDA, 'driver_min: "450.51.06"', 'driver_min: "384.1"', "is new enough for|is lower than"),
        (CUDA, 'cuda: ["8.0"]', 'cuda: ["8.1"]', "the matrix has no CUDA 8.1"),
        (CUDA, '{cuda: "11", system: marble10', '{cuda: "9.0", system: marble10', "CUDA 9.0, which is missing"),
        (HARDWARE, 'capabilities: ["7.5"]', 'capabilities: ["7.5", "6.1"]', "capability 6.1 already belongs to"),
        (HARDWARE, 'last_cuda: "11.4"', 'last_cuda: "4.0"', "is older than first_cuda"),
        (HARDWARE, 'architecture: Bee, capability: "6.1"', 'architecture: Ant, capability: "6.1"', "Ant does not have"),
        (HARDWARE, "aliases: [k80]", "aliases: [gtx1080ti]", "gtx1080ti is already used"),
        (HARDWARE, 'branch: "450", max_cuda: "11.0"', 'branch: "450", max_cuda: "9.0"', "is lower than in the older row 410"),
        (SYSTEMS, "name: marble12", "name: marble-12", "a system cannot be called marble-12"),
    ],
)  # fmt: skip
def test_inconsistencies_across_tables(name: str, old: str, new: str, message: str) -> None:
    import re

    found = checked(changed(name, (old, new)))
    assert any(re.search(message, text) for text in found), found


def test_builds_that_would_share_a_name_are_refused() -> None:
    found = checked(changed("matrix/frameworks/gizmo.yaml", ('cuda: "12.8"', 'cuda: "12.4"')))
    assert any("would have the same name" in text for text in found)


def test_an_overlay_replaces_rows_and_adds_others(tmp_path: Path) -> None:
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(
        'defaults: {source: "https://example.org/mine", checked: "2026-11-21"}\n'
        'cuda:\n  - {version: "12.4", driver_min: "550.1", capabilities: {min: "5.0", max: "9.0"}}\n'
        '  - {version: "13.0", driver_min: "580.1", capabilities: {min: "7.5", max: "12.0"}}\n'
    )
    found = load_files(TOY_ENTRY, [overlay])
    rows = {row.version: row for row in found.cuda}
    assert rows["12.4"].driver_min == "550.1" and "13.0" in rows and len(rows) == len(TOY.cuda) + 1
    overlay.write_text(overlay.read_text() * 2)
    with pytest.raises(InvalidInputError):
        load_files(TOY_ENTRY, [overlay])


@pytest.mark.parametrize(
    ("include", "message"),
    [("../outside.yaml", "is outside"), ("absent.yaml", "cannot be read"), ("matrix/cuda.yaml, matrix/cuda.yaml", "twice")],
)
def test_includes_that_lead_nowhere(tmp_path: Path, include: str, message: str) -> None:
    entry = tmp_path / "matrix.yaml"
    (tmp_path / "matrix").mkdir()
    (tmp_path / "matrix" / "cuda.yaml").write_text("{}")
    entry.write_text(f"schema: 1\ninclude: [{include}]\n")
    with pytest.raises(InvalidInputError) as caught:
        load_files(entry)
    assert any(message in problem.message for problem in caught.value.problems)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_files(tmp_path / "matrix.yaml")


def test_a_matrix_file_that_nobody_includes_is_reported(tmp_path: Path) -> None:
    (tmp_path / "matrix" / "frameworks").mkdir(parents=True)
    (tmp_path / "matrix.yaml").write_text("schema: 1\ninclude: [matrix/frameworks/named.yaml]\n")
    for stem in ("named", "forgotten"):
        (tmp_path / "matrix" / "frameworks" / f"{stem}.yaml").write_text("")
    (tmp_path / "matrix" / "0123.json").write_text("{}")
    found = loader.unnamed_files(tmp_path / "matrix.yaml")
    assert [problem.where for problem in found] == ["matrix/0123.json", "matrix/frameworks/forgotten.yaml"]
    assert "include" in found[0].message
