"""The requirements of wheels compared with rows, and rows that are proposed from them."""

from __future__ import annotations

import pytest
from online_world import SOURCES, TOY, file, findings, proposal, reader, whole_index
from packaging.specifiers import SpecifierSet

from envbuild.errors import InvalidInputError
from envbuild.index.project_pages import IndexFile
from envbuild.matrix import checks
from envbuild.matrix.online import waiting
from envbuild.matrix.online.differences import compare
from envbuild.matrix.online.new_row import MeasuredNeeds, RowSources
from envbuild.matrix.online.proposals import Proposal
from envbuild.matrix.online.published import ask
from envbuild.matrix.online.wheel_metadata import Reader, admits, collect
from envbuild.matrix.reading.loader import compile_matrix

GIZMO = "matrix/frameworks/gizmo.yaml"
STAND = "matrix/frameworks/stand.yaml"
CUDA, CUDNN, NCCL = "nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.21.5"
STANDING = """
defaults: {source: ["https://example.org/stand"], checked: "2026-11-21", status: ok}
framework: {name: stand, title: Stand, short: stand, aliases: [stand], recipe: stand}
series:
  - series: "1.0"
    package: stand
    releases:
      - {version: "1.0.0", released: "2025-02-01", upon: {gizmo: "3.1.0"}}
"""


def index_with(*files: IndexFile) -> dict[str, list[IndexFile]]:
    found = whole_index()
    for each in files:
        found.setdefault(each.project, []).append(each)
    return found


@pytest.mark.parametrize(
    ("conditions", "line", "admitted"),
    [
        ("==12.4.127", "12.4", True),
        ("==12.4.127", "12.1", False),
        (">=12.1.55", "12.1", True),
        (">=12.1.55", "12.8", True),
        (">=12.1.55,<13.0", "13.0", False),
        ("==9.1.0.70", "9.1.0", True),
        ("==9.10.2.21", "9.1", False),
        (">=9.8,<10", "9.7.1", False),
        ("~=9.0", "9.26.0", True),
        ("==12.*", "12.9", True),
    ],
)
def test_a_line_is_admitted_where_some_release_of_it_is(conditions: str, line: str, admitted: bool) -> None:
    assert admits(SpecifierSet(conditions), line) == admitted


@pytest.mark.parametrize(
    "says",
    [
        [CUDA, CUDNN, NCCL, "gizmovision==0.16.0"],
        [CUDA, f"{CUDNN}; sys_platform == 'linux'", f"{NCCL}; platform_machine == 'x86_64'"],
        ["cuda-toolkit[cublas]==12.4.1", CUDNN, NCCL],
        ["nvidia-cuda-runtime-cu12>=12.1.55,<13", "nvidia-cudnn-cu12>=9.0,<10", "nvidia-nccl-cu12>=2.18.1"],
        [CUDA, CUDNN, NCCL, "nvidia-cudnn-cu11==8.5.0.96; sys_platform == 'win32'"],
        ["chips[runtime]<5"],
    ],
)
def test_wheels_that_agree(says: list[str]) -> None:
    chips = [file("chips-4.0-py3-none-any.whl", "2025-01-01"), file("chips-5.0-py3-none-any.whl", "2025-01-01")]
    inner = {"chips-4.0": [f"{CUDA}; extra == 'runtime'", CUDNN, NCCL], "chips-5.0": ["nvidia-cudnn-cu12==1.0"]}
    assert findings(index_with(*chips), {"gizmo-3.1.0": says, **inner}) == []


@pytest.mark.parametrize(
    ("says", "kind", "message"),
    [
        ([CUDA.replace("12.4", "12.6")], "cuda", "the row says CUDA 12.4, but the wheel requires ==12.6.127"),
        (["cuda-toolkit==12.8.0"], "cuda", "requires ==12.8.0"),
        ([CUDA, "nvidia-cudnn-cu12==9.10.2.21", NCCL], "cudnn", "the row says cudnn 9.1.0, but the wheel requires ==9.10.2.21"),
        ([CUDA, CUDNN, "nvidia-nccl-cu12==2.27.3"], "nccl", "the row says nccl 2.21.5"),
        ([CUDA, CUDNN], "nccl", "but the wheel does not require such a package"),
        ([CUDA, CUDNN, NCCL, "gizmovision (==0.15.0)"], "beside", "the row says gizmovision==0.16.0, but the wheel requires"),
    ],
)
def test_wheels_that_ask_for_something_else(says: list[str], kind: str, message: str) -> None:
    found = [each for each in findings(whole_index(), {"gizmo-3.1.0": says}) if each.kind == kind]
    assert found and message in found[0].message and found[0].wrong
    assert (found[0].framework, found[0].version, found[0].package) == ("gizmo", "3.1.0", "gizmo")
    assert found[0].at.startswith(f"{GIZMO}:")


def test_a_python_that_the_tag_has_and_requires_python_has_not() -> None:
    index = whole_index()
    index["widget"] = [
        each if "-1.12.3-" not in each.filename else _with_pythons(each, ">=3.5,!=3.6.*") for each in index["widget"]
    ]
    found = findings(index)
    assert {each.kind for each in found} == {"python"} and "2.7, 3.4, 3.6" in found[0].message


def _with_pythons(each: IndexFile, requires: str) -> IndexFile:
    return IndexFile(**{**{name: getattr(each, name) for name in IndexFile.__slots__}, "requires_python": requires})


def edited(old: str, new: str) -> dict[str, str]:
    assert old in SOURCES[GIZMO]
    return {**SOURCES, GIZMO: SOURCES[GIZMO].replace(old, new)}


@pytest.mark.parametrize(
    ("cudnn", "kind", "message"),
    [("9.5.0.1", "known", "the wheel says so by mistake"), ("9.1.0.70", "stale", "explains a difference in cudnn")],
)
def test_a_row_may_say_why_it_differs_and_must_differ_then(cudnn: str, kind: str, message: str) -> None:
    sources = edited('released: "2025-01-29"', 'released: "2025-01-29", contradicts: {cudnn: "the wheel says so by mistake"}')
    facts = compile_matrix({name: text.encode() for name, text in sources.items()})
    (found,) = findings(whole_index(), {"gizmo-3.1.0": [CUDA, f"nvidia-cudnn-cu12=={cudnn}", NCCL]}, facts)
    assert found.kind == kind and message in found.message and found.wrong == (kind == "stale")


def test_a_new_row_has_what_the_wheel_asks_for_with_its_source() -> None:
    index = index_with(file("gizmo-3.1.1-cp312-cp312-manylinux_2_28_x86_64.whl", "2025-04-04"))
    sources = edited('["==3.1.1"]', '["==3.1.9"]')
    says = {"gizmo-3.1.1": ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cudnn-cu12>=9.7.1.26,<10", NCCL]}
    found = proposal(index, sources, says)
    assert found.added == (("gizmo", "3.1.1", GIZMO),)
    after = compile_matrix({name: text.encode() for name, text in found.after.items()})
    release = next(r for table in after.frameworks for r in table.releases if (table.name, r.version) == ("gizmo", "3.1.1"))
    build = next(variant for variant in release.variants if variant.name == "cu124")
    assert (build.cuda, build.python, build.origin.status) == ("12.8", ("3.12",), "unknown")
    assert build.cudnn is not None and (build.cudnn.minimum, build.cudnn.below, build.cudnn.taken_from) == (
        "9.7.1",
        "10",
        "wheels",
    )
    assert [each.requirement for each in build.choices] == ["nvidia-cudnn-cu12==9.7.1.26"]
    assert {build.origin.source_of(key) for key in ("cuda", "cudnn", "nccl")} == {"pkg:pypi/gizmo@3.1.1"}
    assert "CUDA and its libraries as the wheel requires" in build.origin.note
    assert checks.check(after) == [] and proposal(index, dict(found.after), says).diff == ""


@pytest.mark.parametrize(
    ("asks", "version"), [(["gizmo==3.1.0"], "3.1.0"), (["gizmo>=3.0"], "3.2.0"), (["gizmo==9.0"], "3.1.0")]
)
def test_a_new_row_stands_upon_what_its_wheel_asks_for(asks: list[str], version: str) -> None:
    index = index_with(file("stand-1.0.0-py3-none-any.whl", "2025-02-01"), file("stand-1.0.1-py3-none-any.whl", "2025-07-02"))
    found = proposal(index, {**SOURCES, STAND: STANDING}, {"stand-1.0.1": asks})
    assert found.added == (("stand", "1.0.1", STAND),)
    assert f'{{version: "1.0.1", released: "2025-07-02", upon: {{gizmo: "{version}"}}, checked:' in found.after[STAND]


def add_on(now: MeasuredNeeds, before: MeasuredNeeds | None) -> tuple[Proposal, str]:
    """Return the proposal for a new release of an add-on, and why the release waits. Without ``before``, the wheel of the
    earlier release is damaged."""
    wheels = {version: file(f"stand-{version}-py3-none-manylinux_2_24_x86_64.whl", day) for version, day in
              (("1.0.0", "2025-02-01"), ("1.0.1", "2025-07-02"))}  # fmt: skip
    needs = {wheels["1.0.0"].filename: before, wheels["1.0.1"].filename: now}
    index, sources = index_with(*wheels.values()), {**SOURCES, STAND: STANDING}
    facts = compile_matrix({name: text.encode() for name, text in sources.items()})
    published = ask(facts, index.__getitem__, lambda _: None)
    says = reader(index, published, {})

    def needs_of(wheel: IndexFile) -> MeasuredNeeds | None:
        if needs.get(wheel.filename, CODE) is None:
            raise InvalidInputError(f"{wheel.filename} ends early.", code="measure-damaged")
        return needs.get(wheel.filename)

    source = RowSources(matrix=facts, published=published, reader=says, today="2026-11-21", needs_of=needs_of)
    table = next(table for table in facts.frameworks if table.name == "stand")
    return proposal(index, sources, needs_of=needs_of), waiting.incomplete(source, table, "1.0.1")


CODE = MeasuredNeeds(native=["7.0", "8.0"], ptx=["8.0"], glibc="2.24")


@pytest.mark.parametrize(
    ("now", "before", "reason"),
    [
        (CODE, CODE, ""),
        (CODE._replace(native=["8.0"]), CODE, "other native GPU code (8.0) than that of 1.0.0 (7.0, 8.0)"),
        (CODE._replace(ptx=()), CODE, "other PTX GPU code (none) than that of 1.0.0 (8.0)"),
        (CODE, CODE._replace(native=(), ptx=()), "other native GPU code (7.0, 8.0) than that of 1.0.0 (none)"),
        (CODE._replace(native=None, ptx=None), CODE, ""),  # it is unclear which code is its own
        (CODE, CODE._replace(native=None, ptx=None), ""),
    ],
)
def test_an_add_on_with_other_gpu_code_than_before_waits_for_a_person(
    now: MeasuredNeeds, before: MeasuredNeeds, reason: str
) -> None:
    found = add_on(now, before)[1]
    assert found.endswith(reason) and bool(found) == bool(reason)


def test_the_row_of_an_add_on_says_that_its_gpu_code_is_the_same_and_which_glibc_it_needs() -> None:
    (row,) = [line for line in add_on(CODE, CODE)[0].diff.splitlines() if "1.0.1" in line]
    assert "its GPU code is that of 1.0.0, measured from both wheels" in row and "glibc" not in row
    higher = add_on(CODE._replace(glibc="2.39"), CODE)[0]
    assert 'glibc: "2.39"' in higher.diff
    after = compile_matrix({name: text.encode() for name, text in higher.after.items()})
    assert {
        v.glibc for t in after.frameworks for r in t.releases for v in r.variants if (t.name, r.version) == ("stand", "1.0.1")
    } == {"2.39"}
    unclear = CODE._replace(native=None, ptx=None)
    assert not any(
        "its GPU code is that of" in add_on(*pair)[0].diff for pair in ((unclear, CODE), (CODE, unclear), (CODE, None))
    )
    # A person has decided that the row's glibc is enough, although the wheel of 1.0.0 needs more.
    assert "glibc" not in add_on(CODE._replace(glibc="2.39"), CODE._replace(glibc="2.39"))[0].diff


@pytest.mark.parametrize(("asks", "row"), [("gizmovision>=0.16", "gizmovision==0.17.1"), ("gizmovision==0.18", None)])
def test_a_new_row_pins_what_the_model_pins_or_is_left_to_a_person(asks: str, row: str | None) -> None:
    vision = [file(f"gizmovision-{version}-py3-none-any.whl", "2025-04-04") for version in ("0.16.0", "0.17.1")]
    index = index_with(file("gizmo-3.1.2-cp312-cp312-manylinux_2_28_x86_64.whl", "2025-04-04"), *vision)
    found = proposal(index, says={"gizmo-3.1.2": [CUDA, CUDNN, NCCL, asks]})
    assert [version for _, version, _ in found.added] == (["3.1.2"] if row else [])
    assert row is None or f'requirements: ["{row}"]' in found.diff


def test_a_new_row_without_a_package_of_its_own_stands_upon_its_own_version() -> None:
    index = index_with(file("gizmo-3.2.2-cp312-cp312-manylinux_2_28_x86_64.whl", "2025-08-08"))
    other = (
        STANDING.replace("    package: stand\n", "").replace("1.0.0", "3.2.0").replace("3.1.0", "3.2.0").replace("1.0", "3.2")
    )
    found = proposal(index, {**SOURCES, STAND: other.replace("2025-02-01", "2025-06-01")})
    assert [row[:2] for row in found.added] == [("gizmo", "3.2.2"), ("stand", "3.2.2")]
    assert 'upon: {gizmo: "3.2.2"}' in found.after[STAND]


def test_one_row_that_does_not_fit_does_not_stop_the_others() -> None:
    index = index_with(
        file("gizmo-3.2.1-cp39-cp39-manylinux_2_28_x86_64.whl", "2025-07-07"),  # a Python without a row
        file("gizmo-3.2.2-cp312-cp312-manylinux_2_28_x86_64.whl", "2025-08-08"),
    )
    assert [version for _, version, _ in proposal(index).added] == ["3.2.2"]
    assert TOY.fingerprint


def test_what_is_stood_upon_is_written_first() -> None:
    index = index_with(
        file("stand-1.0.0-py3-none-any.whl", "2025-02-01"),
        file("stand-1.0.1-py3-none-any.whl", "2025-08-09"),
        file("gizmo-3.2.2-cp312-cp312-manylinux_2_28_x86_64.whl", "2025-08-08"),
    )
    sources = {**{name: text for name, text in SOURCES.items() if name != GIZMO}, STAND: STANDING, GIZMO: SOURCES[GIZMO]}
    assert proposal(index, sources).changed == (GIZMO, STAND)


def test_a_wheel_that_cannot_be_read_contradicts_nothing() -> None:
    published = ask(TOY, whole_index().__getitem__, lambda _: None)
    mute = Reader(published, whole_index().__getitem__, lambda file, version: None)
    assert collect(TOY, mute, lambda _: None) == {}
    assert compare(TOY, published, {}) == []


def test_a_row_may_differ_only_in_what_is_compared() -> None:
    sources = edited('released: "2025-01-29"', 'released: "2025-01-29", contradicts: {colour: "it is blue"}')
    with pytest.raises(InvalidInputError, match="'colour' is not one of gone, yanked, date"):
        compile_matrix({name: text.encode() for name, text in sources.items()})
