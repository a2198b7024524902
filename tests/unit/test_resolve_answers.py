"""What scripts get: answers and refusals against their schemas, the catalogue, explanations, and old decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envbuild import codec, matrix
from envbuild.errors import EnvbuildError, UnknownNameError
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.model import Environment
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.catalogue import Filters, catalogue
from envbuild.resolve.explanation import explain, explanation_json
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TESTS = Path(__file__).parent.parent
TOY_ENTRY = TESTS / "golden" / "toy" / "matrix.yaml"
TOY = matrix.load_files(TOY_ENTRY)
GOLDEN = TESTS / "golden" / "toy"


def schema(name: str) -> Any:
    document = json.loads((files("envbuild.schemas") / name).read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


RESOLUTION, REFUSAL = schema("resolution.json"), schema("refusal.json")


def ask(*texts: str, **options: str) -> Any:
    return resolve(TOY, parse(texts, matrix=TOY, **options))


def compare(path: Path, text: str, update: bool) -> None:
    if update:
        path.write_text(text)
    assert path.read_text() == text


def test_every_environment_answers_by_the_schema() -> None:
    names = [row.name for row in catalogue(TOY) if row.name]
    assert len(names) > 10
    for name in names:
        document = answer_json(ask(name), ["locked"])
        RESOLUTION.validate(document)
        assert document["name"] == name


def test_the_answer_is_the_designed_object(update_golden: bool) -> None:
    document = answer_json(ask("wd-1.12-cuda9"), ["locked", "rendered"])
    assert document["frameworks"][0]["package"] == "widget-gpu"
    assert (document["os"], document["cuda"], document["evidence"]) == ("granite16.04", "9.0", ["locked", "rendered"])
    compare(GOLDEN / "wd-1.12-cuda9.json", json.dumps(document, indent=2) + "\n", update_golden)


def test_the_environment_is_the_same_to_the_byte(update_golden: bool) -> None:
    text = codec.dumps(ask("wd-1.12-cuda9").environment)
    compare(GOLDEN / "wd-1.12-cuda9.environment.json", text, update_golden)
    assert codec.decode(Environment, json.loads(text), "golden") == ask("wd-1.12-cuda9").environment


def test_the_decision_does_not_depend_on_the_hardware_that_was_named() -> None:
    plain = ask("gizmo-3.1-cuda12.4").environment
    assert ask("gizmo-3.1-cuda12.4", driver="525.85.12", gpu="sm_80").environment == plain


@pytest.mark.parametrize(
    "texts", [["wd-1.12-cuda8"], ["wd-9"], ["nothing"], ["wd-1.12-cpu-cuda9"], ["wd-1.12+gizmo"], [""], ["wd-1.12-windows"]]
)
def test_every_refusal_answers_by_the_schema(texts: list[str]) -> None:
    with pytest.raises(EnvbuildError) as caught:
        ask(*texts)
    REFUSAL.validate({"schema": 1, "error": caught.value.to_json()})


def test_reasons_name_every_choice_with_a_document() -> None:
    reasons = ask("wd-1.12-cuda9").reasons
    assert [reason.choice for reason in reasons] == [
        "widget 1.12.3", "package widget-gpu==1.12.3", "cuda 9.0", "processor with AVX", "driver >= 384.81", "cudnn 7.4.2",
        "nccl 2.3.7", "python 3.5", "os granite16.04", "base apt granite:16.04", "dependencies until 2019-07-21",
    ]  # fmt: skip
    assert {reason.choice: reason.source for reason in reasons}["cuda 9.0"] == "https://example.org/cuda-of-widget"
    assert all(reason.source.startswith(("https://", "pkg:")) for reason in reasons)


def test_dependencies_are_never_bounded_by_a_day_after_the_row_was_checked() -> None:
    sources = read_sources(TOY_ENTRY)
    name = "matrix/frameworks/gizmo.yaml"
    fresh = sources[name].replace(b'released: "2025-06-01"', b'released: "2026-11-01"')
    found = compile_matrix({**sources, name: fresh})
    assert next(t for t in found.frameworks if t.name == "gizmo").releases[0].exclude_newer == "2026-11-21"


def test_unknown_versions_are_listed_by_major_where_they_are_many() -> None:
    sources = read_sources(TOY_ENTRY)
    name = "matrix/frameworks/gizmo.yaml"
    more = b"".join(b'\n      - {version: "3.0.%d", released: "2024-02-01"}' % number for number in range(1, 15))
    first = b'- {version: "3.0.0", released: "2024-01-10"}'
    many = compile_matrix({**sources, name: sources[name].replace(first, first + more)})
    with pytest.raises(UnknownNameError) as caught:
        parse(["gizmo-99.1"], matrix=many)
    assert caught.value.hint == "The nearest: 3.2, 3.1, 3.0."
    assert caught.value.details[0].startswith("Gizmo 3: 3.2.0, 3.1.0, 3.0.14, 3.0.13") and len(caught.value.details) == 1
    assert caught.value.alternatives[0].name == "gizmo-3.2.0"


# --- catalogue and explanations --------------------------------------------------------------------------------------


def listed(**filters: str) -> list[str]:
    return [row.name for row in catalogue(TOY, Filters(**filters))]


def test_the_catalogue_has_a_row_for_every_build() -> None:
    rows = catalogue(TOY)
    builds = sum(len(release.variants) for table in TOY.frameworks for release in table.releases)
    assert len(rows) == builds
    states = {(row.version, row.variant): (row.name, row.status) for row in rows}
    assert states["1.12.4", "gpu"] == ("", "known-bad")
    assert states["1.4.0", "gpu"] == ("", "unserved")  # its image was deleted, so that only who insists gets it
    assert states["3.2.0", "cu128"] == ("gizmo-3.2.0-cuda12.8-py312-marble12", "unknown")
    assert states["2.5", "cpu"] == ("wd-2.5-cpu-py311-marble12", "ok")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"framework": "gz", "cuda": "12.4"}, ["gizmo-3.1.0-cuda12.4"]),
        ({"framework": "widget", "cuda": "cuda11"}, ["wd-2.0.0.post1-cuda11.0", "wd-2.0.0-cuda11.0"]),
        ({"framework": "gizmo-3.1", "cuda": "cpu"}, ["gizmo-3.1.0-cpu"]),
        ({"driver": "384.130", "python": "2.7"}, ["wd-1.12.3-cuda9.0", "wd-1.12.0-cuda9.0"]),
        ({"gpu": "sm_120"}, ["gizmo-3.2.0-cuda12.8", "gizmo-3.1.0-cuda12.4", "gizmo-3.1.0-cuda12.8"]),
        ({"system": "granite16.04", "cuda": "cpu"}, ["wd-1.12.3-cpu", "wd-1.12.0-cpu"]),
        ({"status": ("unknown",)}, ["gizmo-3.2.0-cuda12.8"]),
    ],
)
def test_the_catalogue_is_filtered(filters: dict[str, str], expected: list[str]) -> None:
    found = listed(**filters)
    assert [name.split("-py")[0] for name in found] == expected
    if "python" in filters:
        assert all("-py27-" in name for name in found)


def test_a_filter_that_names_nothing_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        listed(framework="wigdet")
    with pytest.raises(UnknownNameError):
        listed(system="windows")


def test_an_explanation_says_what_was_passed_over() -> None:
    found = explain(TOY, parse(["widget"], matrix=TOY, driver="384.130"))
    assert found.resolution is not None and found.error is None
    rows = [conflict.row for conflict in found.passed_over]
    assert rows[:3] == ["widget 2.5.1 cpu", "widget 2.5 cpu", "widget 2.0.0.post1 gpu"] == rows[:3]
    reasons = {conflict.row: conflict.reason for conflict in found.passed_over}
    assert "built for CPU alone" in reasons["widget 2.5 cpu"]
    assert "needs driver 450.51.06" in reasons["widget 2.0.0 gpu"]
    assert "crashes at import" in reasons["widget 1.12.4 gpu"]
    document = explanation_json(found)
    RESOLUTION.validate(document["decision"])
    assert document["passed_over"][0]["row"] == rows[0]


def test_an_explanation_of_a_refusal_is_the_refusal() -> None:
    found = explain(TOY, parse(["wd-1.12-cuda8"], matrix=TOY))
    assert found.resolution is None and found.error is not None
    REFUSAL.validate({"schema": 1, "error": explanation_json(found)["error"]})


# --- old decisions ---------------------------------------------------------------------------------------------------


def against(name: str, *replacements: tuple[str, str, str]) -> list[str]:
    """What a changed matrix says against an environment that the toy decided."""
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
        (WIDGET, 'version: "1.12.3"', 'version: "1.12.5"', "widget 1.12.3: is not in the matrix"),
        (WIDGET, 'options: {level: release}}', 'status: known-bad, note: "wrong"}', "known not to work: wrong"),
        (WIDGET, '["2.7", "3.4", "3.5", "3.6"]', '["2.7", "3.6"]', "no longer 3.5"),
        (WIDGET, 'cuda: "9.0"', 'cuda: "11.0"', "has no build widget-gpu for CUDA 9.0 any more"),
        (WIDGET, "package: widget-gpu\n", "package: widget-new\n", "has no build widget-gpu"),
        (WIDGET, "package: widget-gpu\n", LOCAL, "is now installed as widget-gpu==1.12.3+x"),
        (WIDGET, 'cudnn: {min: "7.1"', 'cudnn: {min: "7.5"', "no longer accepts cudnn 7.4.2"),
        (WIDGET, 'nccl: "2.3.7"', 'nccl: "2.5.6"', "no longer accepts nccl 2.3.7"),
        (WIDGET, 'glibc: "2.17"', 'glibc: "2.25"', "has glibc 2.23"),
        (CUDA, "system: granite16.04\n        repositories", "system: marble10\n        repositories", "apt no longer serves"),
        (SYSTEMS, "name: granite16.04", "name: granite18.04", "system granite16.04: is not in the matrix"),
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


@pytest.mark.parametrize(
    ("image", "slug"),
    [
        ("python:3.6", "python-3.6"), ("my/python:3.6-slim", "my_python-3.6--slim"), ("my-python:3.6", "my--python-3.6"),
        ("my_python:3.6", "my__python-3.6"), ("host:5000/a/b@sha256:0f", "host-5000_a_b_-sha256-0f"),
    ],
)  # fmt: skip
def test_slugs_tell_images_apart(image: str, slug: str) -> None:
    from envbuild.resolve.request.bases import image_slug

    assert image_slug(image) == slug
    long = f"registry.example.org/a/b@sha256:{'0' * 64}"
    assert len(image_slug(long)) <= 60 and image_slug(long) != image_slug(long.replace("a/b", "a/c"))
