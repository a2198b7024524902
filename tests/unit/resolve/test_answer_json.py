"""The JSON for scripts: answers and refusals are valid by their schemas."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envbuild import codec
from envbuild.errors import EnvbuildError, UnknownNameError
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.model.environment import Environment
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.build_list import list_builds
from envbuild.resolve.explanation import explain, explanation_json
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TESTS = Path(__file__).parents[2]
TOY_ENTRY = TESTS / "golden" / "toy" / "matrix.yaml"
TOY = load_files(TOY_ENTRY)
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
    names = [row.name for row in list_builds(TOY) if row.name]
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
    assert caught.value.hint == "Ask for one of the nearest: 3.2, 3.1, 3.0."
    assert caught.value.details[0].startswith("Gizmo 3: 3.2.0, 3.1.0, 3.0.14, 3.0.13") and len(caught.value.details) == 1
    assert caught.value.alternatives[0].name == "gizmo-3.2.0"


def test_an_explanation_says_what_was_passed_over() -> None:
    found = explain(TOY, parse(["widget"], matrix=TOY, driver="384.130"))
    assert found.resolution is not None and found.error is None
    rows = [conflict.row for conflict in found.passed_over]
    assert rows[:3] == ["widget 2.5.1 cpu", "widget 2.5 cpu", "widget 2.0.0.post1 gpu"] == rows[:3]
    reasons = {conflict.row: conflict.reason for conflict in found.passed_over}
    assert "built for CPU" in reasons["widget 2.5 cpu"]
    assert "needs driver 450.51.06" in reasons["widget 2.0.0 gpu"]
    assert "crashes at import" in reasons["widget 1.12.4 gpu"]
    document = explanation_json(found)
    RESOLUTION.validate(document["decision"])
    assert document["passed_over"][0]["row"] == rows[0]


def test_an_explanation_of_a_refusal_is_the_refusal() -> None:
    found = explain(TOY, parse(["wd-1.12-cuda8"], matrix=TOY))
    assert found.resolution is None and found.error is not None
    REFUSAL.validate({"schema": 1, "error": explanation_json(found)["error"]})
