"""The matrix compared with an index: every difference is found, and new rows are inserted as a person would do it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from online_world import SOURCES, TOY, WIDGET, file, findings, proposal, reader, whole_index
from packaging.version import Version

from envbuild.errors import BuildError, InvalidInputError, UnknownNameError
from envbuild.index.project_pages import IndexFile
from envbuild.matrix import checks
from envbuild.matrix.online import waiting
from envbuild.matrix.online.new_row import MeasuredNeeds, RowSources, not_measured
from envbuild.matrix.online.proposals import require_whole
from envbuild.matrix.online.published import ask, wheels
from envbuild.matrix.reading.loader import compile_matrix
from envbuild.model.progress import Progress


def widgets(version: str, *, pythons: tuple[str, ...] = ("35", "36"), day: str = "2021-05-05") -> list[IndexFile]:
    return [file(f"widget-{version}-cp{tag}-cp{tag}-manylinux2014_x86_64.whl", day) for tag in pythons]


def test_an_index_that_agrees() -> None:
    assert findings(whole_index()) == []
    assert proposal(whole_index()).diff == ""


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda files: [f for f in files if "-1.12.3-" not in f.filename], "gone", "no file of this release"),
        (
            lambda files: [file(f.filename, f.uploaded[:10], yanked="-1.12.3-" in f.filename) for f in files],
            "yanked",
            "every wheel of this release was yanked",
        ),
        (lambda files: [f for f in files if "-1.12.3-cp35" not in f.filename], "python", "for Python 3.5"),
        (
            lambda files: [file(f.filename.replace("manylinux_2_17", "manylinux_2_28"), f.uploaded[:10]) for f in files],
            "glibc",
            "the wheels need 2.28",
        ),
        (
            lambda files: [*files, file("widget-1.12.3-cp311-cp311-manylinux2014_x86_64.whl", "2026-01-01")],
            "more",
            "also has wheels for Python 3.11",
        ),
        (lambda files: [*files, *widgets("1.12.8")], "new", "published on 2021-05-05"),
    ],
)
def test_a_difference_is_found(change: object, kind: str, message: str) -> None:
    index = whole_index()
    index["widget"] = change(index["widget"])  # type: ignore[operator]
    found = findings(index)
    assert {finding.kind for finding in found} == {kind}
    assert all(message in finding.message and finding.package == "widget" for finding in found)
    assert all(finding.wrong == (kind not in ("new", "more")) for finding in found)
    assert all(finding.at.startswith(f"{WIDGET}:") == (kind != "new") for finding in found)


def test_another_first_day_is_found_once_for_all_packages() -> None:
    index = {
        name: [file(f.filename, "2019-06-20" if "-1.12.3-" in f.filename else f.uploaded[:10]) for f in files]
        for name, files in whole_index().items()
    }
    (found,) = findings(index)
    assert (found.kind, found.version) == ("date", "1.12.3") and "first wheel is from 2019-06-20" in found.message


def test_known_bad_rows_may_be_gone_and_yanked() -> None:
    index = {name: [f for f in files if "-1.12.4-" not in f.filename] for name, files in whole_index().items()}
    assert findings(index) == []


def test_what_counts_as_a_wheel_for_us() -> None:
    names = [
        "widget-1.0-cp36-cp36m-manylinux1_x86_64.whl",
        "widget-1.0-cp37-cp37m-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "widget-1.0-cp37-cp37m-manylinux_2_28_x86_64.whl",  # another wheel of it needs an older glibc
        "widget-1.0-cp38-cp38-win_amd64.whl",
        "widget-1.0-cp38-cp38-manylinux_2_28_aarch64.whl",
        "widget-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl",
        "widget-1.0.tar.gz",
        "widget-2.0-py3-none-any.whl",
        "widget-3.0-cp39-abi3-manylinux_2_28_x86_64.whl",
        "widget-4.0.tar.gz",
        "other-5.0-py3-none-any.whl",
        "widget.egg",
    ]
    found = wheels(IndexFile(**{**_fields(file(name, "2020-01-01")), "project": "widget"}) for name in names)
    assert sorted(found) == [Version(text) for text in ("1.0", "2.0", "3.0", "4.0")]
    first = found[Version("1.0")]
    assert (set(first.pythons), first.glibc) == ({"3.6", "3.7"}, "2.17")
    assert first.file is not None and "cp37" in first.file.filename and found[Version("4.0")].file is None
    assert found[Version("2.0")].serves("3.12") and not found[Version("2.0")].serves("2.7")
    assert found[Version("3.0")].serves("3.12") and found[Version("4.0")].serves("2.7")


def _fields(value: IndexFile) -> dict[str, object]:
    return {name: getattr(value, name) for name in IndexFile.__slots__}


def test_a_new_patch_release_is_one_row_in_its_place() -> None:
    index = whole_index()
    index["widget"] += widgets("1.12.8", pythons=("27", "34", "35", "36"))
    found = proposal(index)
    changed = [line for line in found.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == [
        '+      - {version: "1.12.8", released: "2021-05-05", without: [gpu], checked: "2026-11-21", status: unknown, '
        'note: "CUDA, libraries and GPU code copied from 1.12, not checked"}'
    ]
    assert found.added == (("widget", "1.12.8", WIDGET),)
    assert proposal(index, dict(found.after)).diff == ""  # an applied proposal is not made again
    assert checks.check(compile_matrix({name: text.encode() for name, text in found.after.items()})) == []


def test_what_the_index_says_otherwise_stands_as_override() -> None:
    index = whole_index()
    index["widget"] += widgets("1.12.8")
    assert '         variants: {cpu: {python: ["3.5", "3.6"]}}}' in proposal(index).after[WIDGET]


def gpu_release(version: str) -> dict[str, list[IndexFile]]:
    """An index with a new release of both builds of the series 1.12."""
    index = whole_index()
    for name in ("widget", "widget-gpu"):
        model = [each for each in index[name] if "-1.12.3-" in each.filename]
        index[name] += [file(each.filename.replace("1.12.3", version), "2021-05-05") for each in model]
    return index


GPU, CPU = (("3.5", "7.0", "8.0"), ("8.0",)), ((), ())


def measured(gpu: tuple[object, object], glibc: str, cpu: tuple[object, object] = CPU) -> Callable[[IndexFile], MeasuredNeeds]:
    return lambda file: MeasuredNeeds(*(gpu if file.project == "widget-gpu" else cpu), glibc if gpu is not CPU else "")  # type: ignore[arg-type]


def test_a_measured_wheel_says_its_gpu_code_and_glibc() -> None:
    found = proposal(gpu_release("1.12.8"), needs_of=measured(GPU, "2.23"))
    after = compile_matrix({name: text.encode() for name, text in found.after.items()})
    table = next(row for row in after.frameworks if row.name == "widget")
    (new,) = [release for release in table.releases if release.version == "1.12.8"]
    builds = {variant.name: variant for variant in new.variants}
    gpu = builds["gpu"]
    assert (tuple(gpu.sass), tuple(gpu.ptx), gpu.glibc) == (*GPU, "2.23")
    assert {gpu.origin.source_of(field) for field in ("capabilities", "glibc")} == {"pkg:pypi/widget-gpu@1.12.8"}
    assert builds["cpu"].glibc == "2.23" and not builds["cpu"].sass
    assert (
        new.origin.note == "GPU code and glibc agree with the measured wheel; CUDA and libraries copied from 1.12, not checked"
    )
    assert checks.check(after) == []


def test_a_measured_wheel_like_the_series_needs_no_override() -> None:
    like = (("3.5", "6.0", "7.0"), ("7.0",))
    (line,) = [
        line for line in proposal(gpu_release("1.12.8"), needs_of=measured(like, "2.4")).diff.splitlines() if "1.12.8" in line
    ]
    assert "variants" not in line and "GPU code and glibc agree with the measured wheel" in line


def test_a_row_that_lists_no_gpu_code_does_not_say_that_it_was_measured() -> None:
    """As CuPy 14, which compiles its kernels at run time."""
    text = SOURCES[WIDGET].replace('        capabilities: {sass: ["3.5", "6.0", "7.0"], ptx: ["7.0"]}\n', "")
    assert text != SOURCES[WIDGET]
    found = proposal(gpu_release("1.12.8"), {**SOURCES, WIDGET: text}, needs_of=measured(GPU, "2.4"))
    (line,) = [line for line in found.diff.splitlines() if "1.12.8" in line]
    note = "glibc agrees with the measured wheel; the row lists no GPU code; CUDA and libraries copied from 1.12, not checked"
    assert f'note: "{note}"' in line


def test_a_wheel_whose_gpu_code_is_unclear_gets_that_of_the_series() -> None:
    found = proposal(gpu_release("1.12.8"), needs_of=measured((None, None), "2.23"))
    assert 'glibc: "2.23"' in found.diff and "capabilities" not in found.diff
    assert "GPU code and glibc of cpu agree with the measured wheel, others copied from 1.12, not checked" in found.diff


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (measured(CPU, "2.17"), "the wheel of widget-gpu 1.12.8 has no GPU code, but the build gpu of the series has"),
        (measured(GPU, "2.17", GPU), "the wheel of widget 1.12.8 has GPU code, but the build cpu of the series is for the CPU"),
        (measured((None, None), "2.17"), ""),
        (measured(GPU, "2.17"), ""),
        (not_measured, ""),
    ],
)
def test_a_wheel_of_another_kind_waits_for_a_person(needs: Callable[[IndexFile], MeasuredNeeds | None], reason: str) -> None:
    index = gpu_release("1.12.8")
    published = ask(TOY, index.__getitem__, lambda _: None)
    source = RowSources(
        matrix=TOY, published=published, reader=reader(index, published, {}), today="2026-11-21", needs_of=needs
    )
    table = next(table for table in TOY.frameworks if table.name == "widget")
    assert waiting.incomplete(source, table, "1.12.8") == reason


def test_a_damaged_wheel_waits() -> None:
    def damaged(file: IndexFile) -> MeasuredNeeds:
        raise InvalidInputError(f"{file.filename} ends early.", code="measure-damaged")

    index = gpu_release("1.12.8")
    published = ask(TOY, index.__getitem__, lambda _: None)
    source = RowSources(
        matrix=TOY, published=published, reader=reader(index, published, {}), today="2026-11-21", needs_of=damaged
    )
    table = next(table for table in TOY.frameworks if table.name == "widget")
    assert "cannot be measured: widget" in waiting.incomplete(source, table, "1.12.8")


def test_a_new_minor_is_a_series_of_its_own_and_unknown() -> None:
    index = whole_index()
    index["widget"] += widgets("2.6.0", pythons=("311",))
    index["widget-cpu"] += [
        file(f.filename.replace("-2.5.1-", "-2.6.0-"), "2021-05-05") for f in index["widget-cpu"] if "-2.5.1-" in f.filename
    ]
    found = proposal(index)
    after = compile_matrix({name: text.encode() for name, text in found.after.items()})
    table = next(row for row in after.frameworks if row.name == "widget")
    (new,) = [release for release in table.releases if release.version == "2.6.0"]
    assert new.series == "2.6" and all(variant.origin.status == "unknown" for variant in new.variants)
    assert new.released == "2021-05-05" and new.origin.note == "CUDA, libraries and GPU code copied from 2.5, not checked"
    assert [line for line in SOURCES[WIDGET].splitlines() if line not in found.after[WIDGET].splitlines()] == []
    assert checks.check(after) == []


def test_two_releases_of_a_new_minor_share_its_series() -> None:
    index = whole_index()
    index["widget"] += [*widgets("1.13.0"), *widgets("1.13.1", day="2021-06-06"), *widgets("1.14.0", day="2021-07-07")]
    found = proposal(index)
    assert [version for _, version, _ in found.added] == ["1.13.0", "1.13.1", "1.14.0"]
    after = compile_matrix({name: text.encode() for name, text in found.after.items()})
    table = next(row for row in after.frameworks if row.name == "widget")
    series = {release.version: release.series for release in table.releases}
    assert (series["1.13.0"], series["1.13.1"], series["1.14.0"]) == ("1.13", "1.13", "1.14")
    assert proposal(index, dict(found.after)).diff == ""


def test_a_new_minor_joins_a_series_that_has_several() -> None:
    first = '      - {version: "1.4.0", released: "2017-11-02"}\n'
    files = {**SOURCES, WIDGET: SOURCES[WIDGET].replace(first, first + '      - {version: "1.5.0", released: "2018-01-02"}\n')}
    index = whole_index()
    days = {"1.5.0": "2018-01-02", "1.5.1": "2018-03-03", "1.6.0": "2018-05-05"}
    index["widget-gpu"] += [
        file(f.filename.replace("-1.4.0-", f"-{version}-"), day)
        for version, day in days.items()
        for f in index["widget-gpu"]
        if "-1.4.0-" in f.filename
    ]
    found = proposal(index, files)
    after = compile_matrix({name: text.encode() for name, text in found.after.items()})
    table = next(row for row in after.frameworks if row.name == "widget")
    assert {release.version for release in table.releases if release.series == "1.4"} == {"1.4.0", "1.5.0", "1.5.1", "1.6.0"}
    assert checks.check(after) == []


def test_what_would_not_agree_with_the_rest_is_left_to_a_person() -> None:
    index = whole_index()
    index["widget"] += widgets("1.12.8", pythons=("316",))  # a Python without a row
    index["gizmo-cu114"] += [file(f.filename.replace("-3.0.0-", "-3.0.1-"), "2024-02-02") for f in index["gizmo-cu114"]]
    assert proposal(index).added == (("gizmo", "3.0.1", "matrix/frameworks/gizmo.yaml"),)


def test_a_shrunken_index_is_not_believed() -> None:
    index = whole_index()
    require_whole(TOY, findings(index), "index.example.org")
    with pytest.raises(BuildError, match=r"index\.example\.org has no wheels of \d+ of the \d+ releases of Widget") as caught:
        require_whole(TOY, findings({name: [] for name in index}), "index.example.org")
    assert (caught.value.code, caught.value.exit_code) == ("index-shrunk", 7)


def test_a_project_that_is_not_there_has_nothing_and_a_failure_is_a_failure() -> None:
    index, news = whole_index(), []

    def absent(name: str) -> list[IndexFile]:
        if name == "gizmo":
            raise UnknownNameError("no such project")
        return index[name]

    found = ask(TOY, absent, news.append)
    assert found["gizmo"] == {} and found["widget"]
    assert isinstance(news[-1], Progress) and news[-1].done == news[-1].total == len(found)

    def unreachable(name: str) -> list[IndexFile]:
        raise BuildError("down", code="index-unreachable")

    with pytest.raises(BuildError, match="down"):
        ask(TOY, unreachable, news.append)
