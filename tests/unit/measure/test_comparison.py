"""A measured wheel compared with the rows of the toy matrix, and the data files of measurements."""

from __future__ import annotations

import json

import pytest
from elf_files import NATIVE, PTX, Shared, container, entry, wheel
from online_world import SOURCES, TOY

from envbuild.errors import InvalidInputError
from envbuild.matrix.reading.loader import compile_matrix
from envbuild.measure import answer_json, measured_files, measuring
from envbuild.measure.comparison import compare, compared_with_nothing


def summary(
    folder, version="1.12.3", project="widget-gpu", *, native=(35, 60, 70), ptx=(70,), glibc="2.17", needed=(), constants=b""
):
    code = container(*(entry(NATIVE, each) for each in native), *(entry(PTX, each) for each in ptx)) if native or ptx else b""
    library = Shared(
        fatbins={".nv_fatbin": code} if code else {},
        needed=needed,
        versions={"libc.so.6": [f"GLIBC_{glibc}"]},
        constants=constants,
    )
    path = folder / f"{project.replace('-', '_')}-{version}-cp36-cp36m-manylinux1_x86_64.whl"
    path.write_bytes(wheel({"widget/libwidget.so": library.data()}, project=project, version=version))
    return answer_json.summary(measuring.measure(path, folder))


def verdicts(measured):
    return {each.field: each.verdict for each in compare(TOY, measured)}


def test_a_row_that_agrees(tmp_path):
    measured = summary(
        tmp_path, needed=["libcudart.so.9.0", "libcudnn.so.7"], glibc="2.16", constants=b"NCCL version 2.3.7+cuda9.0\0"
    )
    found = compare(TOY, measured)
    assert {each.field: each.verdict for each in found} == dict.fromkeys(
        ("native", "ptx", "glibc", "cuda", "cudnn", "nccl"), "agrees"
    )
    assert {(each.framework, each.version, each.variant) for each in found} == {("widget", "1.12.3", "gpu")}


@pytest.mark.parametrize(("project", "judged"), [("widget-gpu", {"native": "unclear", "ptx": "unclear"}), ("widget", {})])
def test_gpu_code_that_cannot_be_read_is_unclear(tmp_path, project, judged):
    unreadable = {"native": [], "ptx": [], "share": 0.0, "certainty": "unclear", "ptx_versions": [], "lists": []}
    measured = summary(tmp_path, project=project, native=(), ptx=()) | {"gpu_code": unreadable}
    assert verdicts(measured) == {**judged, "glibc": "agrees"}
    assert {each.measured for each in compare(TOY, measured) if each.field in judged} <= {"not known"}


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("native", {"native": (35, 60, 70, 75)}),
        ("native", {"native": ()}),
        ("ptx", {"ptx": ()}),
        ("glibc", {"glibc": "2.18"}),
        ("cuda", {"needed": ["libcudart.so.9.2"]}),
        ("cudnn", {"needed": ["libcudnn-0a1b.so.6"]}),
        ("nccl", {"constants": b"NCCL version 2.4.8+cuda9.0\0"}),
    ],
)
def test_each_fact_that_differs(tmp_path, field, changed):
    said = verdicts(summary(tmp_path, **changed))
    assert {name for name, verdict in said.items() if verdict == "differs"} == {field}


@pytest.mark.parametrize(
    ("library", "version", "verdict"),
    [("cuda", "9.0", "agrees"), ("cuda", "9", "agrees"), ("cuda", "9.0.176", "agrees"), ("cuda", "9.1", "differs"),
     ("cudnn", "7", "agrees"), ("cudnn", "7.9.1", "agrees"), ("cudnn", "8", "differs")],
)  # fmt: skip
def test_versions_that_the_wheel_states_are_compared(tmp_path, library, version, verdict):
    stated = {"library": library, "version": version, "file": "widget/build_info.py"}
    measured = summary(tmp_path) | {"built_with": [stated]}
    (told,) = [each for each in compare(TOY, measured) if each.field == library]
    assert (told.verdict, told.measured) == (verdict, f"{version} (widget/build_info.py)")
    del measured["built_with"]
    assert library not in verdicts(measured), "an older entry"


def test_a_wheel_for_newer_systems_is_judged_by_its_sibling_for_older_ones(tmp_path):
    measured = summary(tmp_path, glibc="2.18")
    assert "differs" in {each.verdict for each in compare(TOY, measured, [measured])}
    older = measured | {"filename": "another", "glibc": "2.16"}
    assert [(each.verdict, each.row) for each in compare(TOY, measured, [measured, older]) if each.field == "glibc"] == [
        ("agrees", "2.17 by another wheel")
    ]
    for other in ({"version": "1.12.4"}, {"project": "widget"}, {"glibc": ""}, {"tags": ["cp37-cp37m-manylinux1_x86_64"]}):
        assert "differs" in {each.verdict for each in compare(TOY, measured, [measured, older | other])}


def test_a_row_that_names_one_nccl_alone(tmp_path):
    for version, verdict in (("2.7.8", "agrees"), ("2.7.9", "differs")):
        measured = summary(tmp_path, "2.0.0", "widget", constants=f"NCCL version {version}+cuda11.0\0".encode())
        assert verdicts(measured)["nccl"] == verdict


def test_gpu_code_where_the_row_has_none(tmp_path):
    assert verdicts(summary(tmp_path, project="widget"))["gpu code"] == "differs"
    assert "gpu code" not in verdicts(summary(tmp_path, project="widget", native=(), ptx=()))


def test_what_the_matrix_does_not_have(tmp_path):
    for measured in (summary(tmp_path, "9.9"), summary(tmp_path, project="other")):
        assert verdicts(measured) == {}
        assert compared_with_nothing(TOY, measured, []) == (
            f"no row of the matrix is for {measured['project']} {measured['version']}"
        )


def test_no_gpu_code_where_the_row_has_it(tmp_path):
    measured = summary(tmp_path, native=(), ptx=())
    told = {each.field: (each.verdict, each.row, each.measured) for each in compare(TOY, measured)}
    assert told["native"] == ("differs", "3.5 6.0 7.0", "none")
    assert told["ptx"] == ("differs", "7.0", "none")


def _with_extra():
    """The toy matrix, changed so that `widget-gpu[cuda9]` installs the GPU code of 1.12."""
    name = "matrix/frameworks/widget.yaml"
    text = SOURCES[name].replace("package: widget-gpu\n", 'package: widget-gpu\n        requirement: "widget-gpu[cuda9]"\n')
    assert text != SOURCES[name]
    return compile_matrix({key: value.encode() for key, value in {**SOURCES, name: text}.items()})


def test_gpu_code_in_another_package(tmp_path):
    """The plugin that an extra installs is compared with the row.

    The pure wheel of the framework is not compared with the GPU code of the row.
    """
    facts = _with_extra()
    plugin = summary(tmp_path, project="widget-gpu-cuda9-plugin")
    assert {each.field: each.verdict for each in compare(facts, plugin)}["native"] == "agrees"
    path = tmp_path / "widget_gpu-1.12.3-py3-none-any.whl"
    path.write_bytes(wheel({"widget/code.py": b""}, project="widget-gpu", version="1.12.3"))
    pure = answer_json.summary(measuring.measure(path, tmp_path))
    assert compare(facts, pure) == []
    assert compared_with_nothing(facts, pure, []) == "the rows for this release are about files of other packages"
    assert verdicts(pure)["native"] == "differs", "without an extra, the code should be in it"


def test_avx_is_compared_with_the_rows(tmp_path):
    measured = summary(tmp_path)
    for seen, verdict in ((["avx", "sse3"], "agrees"), (["avx", "avx2"], "differs"), (["sse3"], None), ([], None)):
        assert verdicts(measured | {"instruction_sets": seen}).get("cpu_features") == verdict
    del measured["instruction_sets"]
    assert "cpu_features" not in verdicts(measured), "an older entry"
    silent = summary(tmp_path, "2.0.0", "widget") | {"instruction_sets": ["avx"]}
    assert verdicts(silent)["cpu_features"] == "silent"


def _with_add_on(keys=""):
    """The toy matrix with an add-on to widget 1.12.3, whose own wheels have GPU code."""
    entry_text = SOURCES["matrix.yaml"] + "\n  - matrix/frameworks/knob.yaml\n"
    text = f"""
defaults: {{source: "https://example.org/knob", checked: "2026-01-01"}}
framework: {{name: knob, title: Knob, short: knob, aliases: [knob], recipe: knob}}
series:
  - series: "1.0"
    package: knob
    releases:
      - {{version: "1.0.0", released: "2019-01-01", upon: {{widget: "1.12.3"}}{keys}}}
"""
    changed = {**SOURCES, "matrix.yaml": entry_text, "matrix/frameworks/knob.yaml": text}
    return compile_matrix({key: value.encode() for key, value in changed.items()})


@pytest.mark.parametrize(
    ("native", "ptx", "keys", "verdict"),
    [
        ((35, 60, 70, 75), (), "", "agrees"),
        ((35, 60), (60,), "", "differs"),
        ((35, 60), (60,), ', only_ptx: ["7.0"]', "agrees"),
        ((60, 70), (), "", "differs"),
        ((60, 70), (), ', bad_capabilities: [{capabilities: ["3.5"], reason: "it is for 6.0 and later"}]', "agrees"),
    ],
)
def test_an_add_on_has_code_for_all_gpus_of_its_build(tmp_path, native, ptx, keys, verdict):
    measured = summary(tmp_path, "1.0.0", "knob", native=native, ptx=ptx)
    found = {each.variant: each for each in compare(_with_add_on(keys), measured) if each.field == "native"}
    assert found["gpu"].verdict == verdict
    assert verdict == "agrees" or found["gpu"].measured == ("ptx for 7.0" if ptx else "none for 3.5")


@pytest.mark.parametrize(("native", "ptx", "seen"), [((35, 60), (60,), ""), ((35, 60), (), "none"), ((35, 70), (), "native")])
def test_an_add_on_has_only_ptx_where_its_row_says_so(tmp_path, native, ptx, seen):
    measured = summary(tmp_path, "1.0.0", "knob", native=native, ptx=ptx)
    found = compare(_with_add_on(', only_ptx: ["7.0"]'), measured)
    (told,) = [each for each in found if each.field == "ptx" and each.variant == "gpu"]
    assert (told.row, told.verdict) == ("7.0", "differs" if seen else "agrees")
    assert told.measured == (f"{seen} for 7.0" if seen else "all of these")


def test_an_add_on_may_have_a_library_for_each_cuda(tmp_path):
    for needed, verdict in ((["libcudart.so.8.0", "libcudart.so.9.0"], "agrees"), (["libcudart.so.8.0"], "differs")):
        found = compare(_with_add_on(), summary(tmp_path, "1.0.0", "knob", needed=needed))
        assert [each.verdict for each in found if each.field == "cuda"] == [verdict]


def _for_each_cuda(folder, of_cuda):
    """A measured wheel of the add-on. ``of_cuda`` has the GPUs of its library for each CUDA version."""
    libraries = {
        f"knob/libknob_cuda{cuda}.so": Shared(
            fatbins={".nv_fatbin": container(*(entry(NATIVE, each) for each in native))}, needed=[f"libcudart.so.{cuda[:-1]}.0"]
        ).data()
        for cuda, native in of_cuda.items()
    }
    path = folder / "knob-1.0.0-py3-none-manylinux1_x86_64.whl"
    path.write_bytes(wheel(libraries, project="knob", version="1.0.0"))
    return answer_json.summary(measuring.measure(path, folder))


@pytest.mark.parametrize(
    ("of_cuda", "verdict", "seen"),
    [
        ({"80": (35, 60), "90": (35, 60, 70)}, "agrees", "all of these"),
        ({"80": (35, 60, 70), "90": (35, 60)}, "differs", "none for 7.0"),
        ({"80": (35, 60, 70), "91": (35, 60, 70)}, "differs", "none for 3.5, none for 6.0, none for 7.0"),
        ({"80": (35, 60, 70)}, "agrees", "all of these"),
    ],
)
def test_a_build_of_an_add_on_is_judged_by_the_library_for_its_cuda(tmp_path, of_cuda, verdict, seen):
    """As bitsandbytes 0.45.0: its library for CUDA 12.4 has code for 9.0, and its library for 11.8 has none."""
    measured = _for_each_cuda(tmp_path, of_cuda)
    (told,) = [each for each in compare(_with_add_on(), measured) if each.field == "native"]
    assert (told.verdict, told.measured) == (verdict, seen)


def test_older_measurements_do_not_show_which_library_has_the_code(tmp_path):
    measured = _for_each_cuda(tmp_path, {"80": (35, 60, 70), "90": (35, 60)})
    del measured["gpu_code"]["libraries"]
    assert [each.verdict for each in compare(_with_add_on(), measured) if each.field == "native"] == ["unclear"]


def test_a_field_that_was_not_measured_before_is_added(tmp_path):
    folder = tmp_path / "measured"
    folder.mkdir()
    new = _for_each_cuda(tmp_path, {"80": (35, 60), "90": (35, 60, 70)})
    old = {**new, "gpu_code": {key: value for key, value in new["gpu_code"].items() if key != "libraries"}}
    measured_files.keep(folder, [old])
    assert measured_files.differing(old, new) == []
    assert measured_files.differing(new, old) == ["gpu_code"]
    assert measured_files.keep(folder, [new]) == [folder / "knob.json"]
    assert measured_files.read(folder) == [new]


def test_an_add_on_is_judged_by_its_own_glibc_alone(tmp_path):
    measured = summary(tmp_path, "1.0.0", "knob", glibc="2.28")
    for keys, verdict in (("", "silent"), (', glibc: "2.28"', "agrees"), (', glibc: "2.27"', "differs")):
        found = {each.verdict for each in compare(_with_add_on(keys), measured) if each.field == "glibc"}
        assert found == {verdict}


def test_unclear_gpu_code_is_not_judged(tmp_path):
    measured = summary(tmp_path)
    measured["gpu_code"]["certainty"] = "unclear"
    said = verdicts(measured)
    assert (said["native"], said["ptx"], said["glibc"]) == ("unclear", "unclear", "agrees")
    found = [each for each in compare(TOY, measured) if each.verdict == "unclear"]
    assert "is unclear" in compared_with_nothing(TOY, measured, found)


@pytest.mark.parametrize(
    ("native", "ptx", "agree"),
    [
        (["3.5", "6.0", "7.0f"], ["7.0"], ("agrees", "agrees")),
        (["3.5", "6.0", "7.0", "7.0a"], ["7.0"], ("agrees", "agrees")),
        (["3.5", "6.0", "7.0a"], ["7.0"], ("differs", "agrees")),
        (["3.5", "6.0", "7.0"], ["7.0f"], ("agrees", "differs")),
        (["3.5", "6.0", "7.0"], ["7.0a"], ("agrees", "differs")),
    ],
)
def test_code_for_a_family_or_one_gpu(tmp_path, native, ptx, agree):
    """Native code for a family runs on the first GPU of the family.

    PTX for a family, and code for exactly one GPU, run on fewer GPUs.
    """
    measured = summary(tmp_path)
    measured["gpu_code"] |= {"native": native, "ptx": ptx}
    said = verdicts(measured)
    assert (said["native"], said["ptx"]) == agree


def test_data_files(tmp_path):
    folder = tmp_path / "measured"
    folder.mkdir()
    first, second = summary(tmp_path, "1.12.3"), summary(tmp_path, "1.4.0")
    assert measured_files.keep(folder, [first, second]) == [folder / "widget-gpu.json"]
    text = (folder / "widget-gpu.json").read_text()
    assert measured_files.read(folder) == [second, first]
    other = summary(tmp_path, "1.4.0", native=(50,))
    with pytest.raises(InvalidInputError, match=r"already records another sha256, (size, )?gpu_code of widget_gpu-1\.4\.0"):
        measured_files.keep(folder, [other])
    assert (folder / "widget-gpu.json").read_text() == text, "nothing replaces it unasked"
    measured_files.keep(folder, [other], replace=True)
    assert [each["gpu_code"]["native"] for each in measured_files.read(folder)] == [["5.0"], ["3.5", "6.0", "7.0"]]
    measured_files.keep(folder, [second], replace=True)
    assert (folder / "widget-gpu.json").read_text() == text, "measured again, it has the same bytes"
    assert measured_files.keep(folder, [second]) == []
    entry = json.loads(text)["files"][0]
    wrong = ({"filename": "/tmp/other.whl"}, {"version": "1.5"}, {"project": "other"}, {"sha256": "0"}, {"sha256": 0})
    entries = ([{}], ["text"], [entry, entry], *([{**entry, **each}] for each in wrong))
    files = [json.dumps({"schema": 1, "files": each}) for each in entries]
    for damaged in ("{", "[]", json.dumps({"schema": 2, "files": []}), *files):
        (folder / "widget-gpu.json").write_text(damaged)
        with pytest.raises(InvalidInputError, match="is not a file of measurements"):
            measured_files.read(folder)


def test_a_library_alone_is_not_kept(tmp_path):
    path = tmp_path / "libwidget.so"
    path.write_bytes(Shared().data())
    with pytest.raises(InvalidInputError, match="there is no project under which to record it"):
        measured_files.keep(tmp_path, [answer_json.summary(measuring.measure(path, tmp_path))])
