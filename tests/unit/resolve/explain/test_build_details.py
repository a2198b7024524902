"""Details of each framework in an answer: its base framework, and its own CUDA, libraries and GPU code."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from envbuild.cli import wording
from envbuild.matrix.gpu_code import only_by_ptx
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.model.resolution import Details, GpuCode
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.explain.build_details import details_of
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TOY = Path(__file__).parents[3] / "golden" / "toy"
SEVERAL = load_files(TOY / "several.yaml")
SCHEMA = jsonschema.Draft202012Validator(json.loads((files("envbuild.schemas") / "resolution.json").read_text()))


def answer(*words: str, **options: str) -> dict[str, Any]:
    found = answer_json(resolve(SEVERAL, parse(words, matrix=SEVERAL, **options)), ())
    SCHEMA.validate(found)
    return found


def rows(found: dict[str, Any]) -> list[str]:
    """The table of the text, with one space between cells."""
    return [" ".join(line.split()) for line in wording.environment(found).partition("\n\nwhy\n")[0].splitlines()[2:]]


def test_what_a_framework_stands_upon_is_named() -> None:
    found = answer("shade-2.2.4")
    assert found["frameworks"][0]["upon"] == [{"name": "widget", "version": "1.12.3", "variant": "gpu", "pair": "tested"}]
    assert rows(found)[:2] == ["shade 2.2.4", "upon widget 1.12.3"]
    because = {reason["choice"]: reason["because"] for reason in found["reasons"]}
    assert because["cuda 9.0"].startswith("widget 1.12.3, its base framework, is built for")
    assert because["processor with AVX"].startswith("widget 1.12.3, its base framework, is built for")


def test_what_is_in_the_environment_itself_is_named_once() -> None:
    assert not [row for row in rows(answer("shade-2.2.4+wd-1.12.3")) if row.startswith("upon")]
    assert [row for row in rows(answer("shade+shutter")) if row.startswith("upon")] == ["upon widget 1.12.0"]


def test_differing_cuda_and_libraries_are_told_of_each() -> None:
    found = answer("wd-1.12-cuda9.0+lantern-1.0-cuda8")
    assert [(each["cuda"], each["cudnn"], each["nccl"]) for each in found["frameworks"]] == [
        ("8.0", None, None),
        ("9.0", "7.4.2", "2.3.7"),
    ]
    assert [row for row in rows(found) if row.split()[0] in ("cuda", "9.0", "cudnn")] == [
        "cuda 8.0 lantern",
        "9.0 widget",
        "cudnn 7.4.2",
    ]
    beside = answer("wd-1.12-cuda9.0+lantern-1.0-cuda9.0")
    assert beside["cudnn"] == "7.4.2"
    assert [each["cudnn"] for each in beside["frameworks"]] == ["7.1.2", "7.4.2"]
    assert "cudnn 7.1.2 lantern" in rows(beside) and "cuda 9.0" in rows(beside)


def test_differing_gpu_code_is_told_of_each() -> None:
    found = answer("wd-1.12-cuda9.0+lantern-1.0-cuda8")
    assert found["compute_capability"]["sass"] == ["3.5", "6.0"]
    assert [each["compute_capability"] for each in found["frameworks"]] == [
        {"sass": ["3.5", "6.0"], "ptx": ["6.0"]},
        {"sass": ["3.5", "6.0", "7.0"], "ptx": ["7.0"]},
    ]
    assert rows(found)[-3:-1] == [
        "gpu 3.5, 6.0 lantern (and newer by PTX of 6.0)",
        "3.5, 6.0, 7.0 widget (and newer by PTX of 7.0)",
    ]


def test_gpus_on_which_an_add_on_has_only_ptx_are_told() -> None:
    found = answer("shade-2.2.4")
    code = GpuCode(sass=("7.5", "9.0"), ptx=(), only_ptx=("10.0", "12.0"))
    both = GpuCode(sass=("7.0", "9.0", "10.0"), ptx=(), only_ptx=())
    details = [Details(upon=(), cudnn=None, nccl=None, compute_capability=each) for each in (code, both, None)]
    assert only_by_ptx(details[:1]) == ("10.0", "12.0")
    assert only_by_ptx(details) == ("10.0",)  # the other framework has no code for 12.0
    found["compute_capability"] = {"sass": ["7.5", "9.0"], "ptx": [], "only_ptx": ["10.0", "12.0"]}
    found["frameworks"][0]["compute_capability"] = found["compute_capability"]
    SCHEMA.validate(found)
    assert "gpu 7.5, 9.0 (and 10.0, 12.0 only by PTX)" in rows(found)


def test_one_framework_alone_has_what_the_environment_has() -> None:
    found = answer("wd-1.12-cuda9.0")
    own = found["frameworks"][0]
    assert all(own[key] == found[key] for key in ("cuda", "cudnn", "nccl", "compute_capability"))
    assert own["upon"] == [] and answer("wd-1.12-cpu")["frameworks"][0]["constraints"][-1] == "quiet"


def test_a_locked_decision_is_told_of_as_a_new_one() -> None:
    resolution = resolve(SEVERAL, parse(["shade-2.2.4"], matrix=SEVERAL))
    assert details_of(SEVERAL, resolution.environment) == resolution.details
    without = SEVERAL._replace(frameworks=())
    nothing = Details(upon=(), cudnn=None, nccl=None, compute_capability=None)
    assert details_of(without, resolution.environment) == (nothing,)


def test_the_day_that_bounds_the_dependencies_names_its_framework() -> None:
    def reason(found: Any, *words: str) -> str:
        (told,) = [each for each in resolve(found, parse(words, matrix=found)).reasons if "until" in each.choice]
        return f"{told.choice}: {told.because}"

    assert reason(SEVERAL, "wd-1.12.3") == (
        "dependencies until 2019-07-21: Widget 1.12.3 was released on 2019-06-21; "
        "only packages published by 2019-07-21 are used"
    )
    joint = reason(SEVERAL, "shade-2.2.4", "lantern-1.0.0")
    assert "Shade 2.2.4 was released on 2019-06-28" in joint and joint.endswith(
        "; with several frameworks, the latest date limit counts"
    )
    name = "several/lantern.yaml"
    sources = read_sources(TOY / "several.yaml")
    later = sources[name].replace(b'released: "2018-12-07"}', b'released: "2018-12-07", exclude_newer: "2021-04-15"}')
    told = reason(compile_matrix({**sources, name: later}), "shade-2.2.4", "lantern-1.0.0")
    assert told == (
        "dependencies until 2021-04-15: Lantern 1.0.0 was released on 2018-12-07; only packages published by 2021-04-15 "
        "are used; with several frameworks, the latest date limit counts"
    )
