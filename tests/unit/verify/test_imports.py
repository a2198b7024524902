"""Imports in an image: the modules that are tried, the meaning of a failure, and the requirements of installed packages."""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import verify_locks

import envbuild
from envbuild.errors import InvalidInputError
from envbuild.model.custom import Custom
from envbuild.model.lock import Lock
from envbuild.verify import imports, requirements, rules
from envbuild.verify.findings import Findings

ROOT = Path(__file__).parents[3]
RULES = replace(rules.load(ROOT / "images"), frameworks={"pictures-python": "pictures"})
SCRIPT = Path(envbuild.__file__).parent / "smoke" / "imports.py"
LOCK = verify_locks.lock()
(PREFIX,) = LOCK.prefixes


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("imports_under_test", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["six.py", "six-1.0.dist-info/RECORD"], ["six"]),
        (["a/__init__.py", "a/b.py", "a/c/__init__.py"], ["a"]),
        (["google/protobuf/__init__.py", "google/protobuf/any.py"], ["google.protobuf"]),
        (["google/type/a_pb2.py", "google/type/b_pb2.py"], ["google.type.a_pb2", "google.type.b_pb2"]),
        (["x.cpython-311-x86_64-linux-gnu.so", "y.abi3.so", "z.so"], ["x", "y", "z"]),
        (["x.cpython-27m-x86_64-linux-gnu.so", "lib/libcublas.so", "cv.libs/libx.so", "a-stubs/__init__.pyi"], []),
        (["../../../bin/tool", "/etc/x.py", "a.data/b.py", "__pycache__/six.cpython-311.pyc", "docs.txt", "a-b.py"], []),
    ],
)
def test_the_outermost_modules(script: ModuleType, paths: list[str], expected: list[str]) -> None:
    assert script.modules(paths, [".py", ".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so"]) == expected


def test_missing_libraries_are_read_from_the_files_themselves(script: ModuleType, tmp_path: Path) -> None:
    library = next(Path("/lib/x86_64-linux-gnu").glob("libgcc_s.so.1"))
    shutil.copy(library, tmp_path / "part.so")
    assert script.needed(str(tmp_path / "part.so")) == ["libc.so.6"]
    one = {"name": "p", "site": str(tmp_path), "paths": ["part.so"]}
    assert script.missing_libraries(one, {"libc.so.6"}) == []
    assert [each["library"] for each in script.missing_libraries(one, set())] == ["libc.so.6"]
    for broken in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, library.read_bytes()[:300]):
        (tmp_path / "part.so").write_bytes(broken)
        assert script.needed(str(tmp_path / "part.so")) == []


def told(*modules: dict[str, Any], libraries: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    listed = [{"distribution": name, "path": "x.so", "library": library} for name, library in libraries]
    return {"modules": list(modules), "libraries": listed, "skipped": [], "without": [], "absent": [], **more}


def failed(said: str, module: str = "cv", name: str = "pictures-python", code: int = 1) -> dict[str, Any]:
    return {"distribution": name, "module": module, "outcome": "failed", "code": code, "said": said}


def judge(answer: dict[str, Any], lock: Lock = LOCK, system: str = "debian12") -> Findings:
    found = Findings()
    environment = replace(lock.environment, system=replace(lock.environment.system, name=system))
    imports.compare_imports(replace(lock, environment=environment), PREFIX, answer, RULES, found)
    return found


CUSTOM = Custom(request=("x",), pip=("pictures-python",), newer=(), apt=(), files=(), user="", ports=(), services=())
MINE = replace(LOCK, environment=replace(LOCK.environment, custom=CUSTOM))
ABSENT = "ImportError: libgthread-2.0.so.0: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("system", "package"),
    [
        ("debian12", "libglib2.0-0"), ("debian13", "libglib2.0-0t64"), ("ubuntu24.04", "libglib2.0-0t64 of debian13"),
        ("ubuntu16.04", "libglib2.0-0"),
    ],
)  # fmt: skip
def test_missing_libraries_are_named_with_their_packages(system: str, package: str) -> None:
    found = judge(told(failed(ABSENT), libraries=(("pictures-python", "libxcb.so.1"),)), MINE, system)
    (problem,) = found.problems
    assert problem.where == f"{PREFIX.path}: import cv (pictures-python)"
    assert f"libgthread-2.0.so.0 in package {package}" in problem.message
    assert "libxcb.so.1 in package libxcb1" in problem.message and "apt: [" in problem.message
    assert problem.message.endswith("`frameworks:` instead of `pip:`; then its libraries are installed, too")


def test_a_library_that_only_a_part_needs_is_noted() -> None:
    fine = {"distribution": "pictures-python", "module": "cv", "outcome": "ok", "code": 0, "said": ""}
    found = judge(told(fine, libraries=(("pictures-python", "libX.so.1"), ("pictures-python", "libcuda.so.1"))))
    assert not found.problems and found.counts["imported"] == 1
    (note,) = found.notes
    assert "libX.so.1 (package unknown)" in note and "libcuda" not in note


@pytest.mark.parametrize("said", ["libcuda.so.1: cannot open shared object file: x", "RuntimeError: Found no NVIDIA driver"])
def test_what_needs_a_gpu_is_not_checked_and_not_passed(said: str) -> None:
    found = judge(told(failed(said)))
    assert not found.problems and "imported" not in found.counts
    assert "not checked: import cv" in found.notes[0]
    strict = Findings()
    imports.compare_imports(LOCK, PREFIX, told(failed(said)), replace(RULES, without_gpu=()), strict)
    assert strict.problems


def test_other_failures_say_how_they_ended() -> None:
    late = {**failed(""), "outcome": "timeout"}
    answer = told(
        failed("", code=-4),
        failed("a\nValueError: no\n  ValueError: of the code\nRead this long page."),
        failed("", code=0),
        late,
    )
    messages = [each.message for each in judge(answer).problems]
    for message, telling in zip(messages, ("signal 4", "ValueError: no", "exit code 0", "300 s"), strict=True):
        assert telling in message


def distribution(name: str, version: str, *requires: str, sections: str = "", python: str = "") -> dict[str, Any]:
    return {"name": name, "version": version, "requires": list(requires), "sections": sections, "python": python}


def compare(*distributions: dict[str, Any], known: rules.ImportRules = RULES, python: str = "3.11") -> Findings:
    found = Findings()
    markers = {"python_version": python, "sys_platform": "linux", "python_full_version": f"{python}.2"}
    answer = {"distributions": list(distributions), "markers": markers}
    requirements.compare_requirements(LOCK, PREFIX, answer, known, found)
    return found


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ([distribution("a", "1", "b>=2"), distribution("b", "1.9")], "requires b>=2, and 1.9 is installed"),
        ([distribution("a", "1", "B_c (>=2)")], "requires B_c>=2, which is not installed"),
        ([distribution("a", "1", "b; python_version >= '3.8'")], "requires b, which is not installed"),
        ([distribution("a", "1", "b[x]"), distribution("b", "1", "c; extra == 'x'")], "requires c, which is not installed"),
        ([distribution("a", "1", python=">=3.12")], "requires Python >=3.12, and 3.11.2 is installed"),
        ([distribution("a", "1", sections="[:python_version >= '3.8']\nb\n")], "requires b, which is not installed"),
        ([distribution("a", "1", "b[x]"), distribution("b", "1", sections="[x]\nc\n")], "requires c, which is not installed"),
    ],
)
def test_what_is_installed_must_agree_with_its_requirements(there: list[dict[str, Any]], message: str) -> None:
    assert [problem.message for problem in compare(*there).problems] == [message]


@pytest.mark.parametrize(
    "there",
    [
        [distribution("a", "1", "b>=2"), distribution("b", "2.0rc1.post1.dev0+cu1"), distribution("c", "3")],
        [distribution("a", "1", "b>=2"), distribution("b", "2.1rc1")],
        [distribution("a", "1", "b; python_version < '3'", "c; sys_platform == 'win32'", "d; extra == 'x'")],
        [distribution("a", "1", sections="[x]\nb\n\n[:python_version<'3']\nc\n")],
        [distribution("a", "1", "a[x]"), distribution("b", "1")],
        [distribution("a", "1", python=">=2.7, !=3.0.*, <4"), distribution("b", "1", python=">=3.7.*,!=3.1")],
    ],
)
def test_agreeing_packages_have_no_difference(there: list[dict[str, Any]]) -> None:
    if there[1:] and there[1]["version"] == "2.0rc1.post1.dev0+cu1":
        there[1]["version"] = "2.0+cu1"
    assert compare(*there).problems == []


def test_markers_are_those_of_the_images_python() -> None:
    there = distribution("tornado", "5.1.1", "futures; python_version < '3.2'")
    assert [each.message for each in compare(there, python="2.7").problems] == ["requires futures, which is not installed"]
    assert compare(there, python="3.5").problems == []


def test_what_cannot_be_read_is_noted_once() -> None:
    found = compare(
        distribution("a", "1", "b>=not a version"), distribution("c", "1", "d>1"), distribution("d", "??", python="snake")
    )
    assert found.problems == [] and sum("not checked" in note for note in found.notes) == 3


def test_contradictions_on_purpose_are_noted_with_their_reason() -> None:
    there = distribution("a", "1", "b>=2", "left-out")
    rule = rules.Contradiction(package="a", requires="b>=2", reason="it only warns", source="https://example.org/a")
    found = compare(there, known=replace(RULES, contradictions=(rule,), ignored=frozenset({"left-out"})))
    assert found.problems == []
    assert any("it only warns [https://example.org/a]" in note for note in found.notes)
    assert any("the recipe leaves it out" in note for note in found.notes)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema: 1", "schema: 2", "schema"),
        ("source: pep8", "source: nobody", "is not one of"),
        ("libcuda\\.so(", "libcuda\\.so((", "regular expression"),
        ('{debian11: "libgl1"', '{debian9: "libgl1"', "contents-debian9"),
        ("contradictions: []", "contradictions: [{package: a, requires: b, reason: c, source: me}]", "expected form"),
    ],
)
def test_the_file_of_rules_is_read_strictly(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = (ROOT / "images" / "imports.yaml").read_text()
    assert old in text
    (tmp_path / "imports.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInputError) as caught:
        rules.load(tmp_path)
    assert any(re.search(problem, each.message) for each in caught.value.problems)
