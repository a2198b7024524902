"""Rows of the user laid over the matrix: checked as strictly as the matrix, named by file and line, and always mentioned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from overlay_files import HEAD, TOY_ENTRY, overlay

from envbuild import cli, workspace
from envbuild.errors import ConflictError, InvalidInputError
from envbuild.lock import lock_file
from envbuild.matrix import cache, checks
from envbuild.matrix.reading.loader import load_files, read_sources
from envbuild.matrix.types import Matrix
from envbuild.model.lock import BaseLock, Lock, Missing
from envbuild.pipeline import locking
from envbuild.pipeline.tools import Tools
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[3]
OURS = HEAD + (
    "framework: {name: widget}\n"
    "series:\n"
    '  - series: "1.12"\n'
    "    releases:\n"
    '      - {version: "1.12.9", released: "2019-09-01"}\n'
)
MADE_WITH = "wd-1.12.9-cuda9.0-py35-granite16.04"


def versions(found: Matrix) -> list[str]:
    return [release.version for table in found.frameworks if table.name == "widget" for release in table.releases]


def decide(found: Matrix, request: str) -> Request:
    return parse([request], matrix=found)


def test_a_release_is_added_to_a_series_in_one_row(tmp_path: Path) -> None:
    found = load_files(TOY_ENTRY, [overlay(tmp_path, OURS)])
    assert set(versions(found)) == {*versions(load_files(TOY_ENTRY)), "1.12.9"}
    assert checks.check(found) == []
    resolution = resolve(found, decide(found, "wd-1.12"))
    assert resolution.environment.name == MADE_WITH
    assert resolution.overlaid == (f"widget 1.12.9 ({tmp_path}/site.yaml:6)",)
    assert answer_json(resolution, ())["overlaid"] == list(resolution.overlaid)
    assert resolve(found, decide(found, "wd-2.0")).overlaid == ()


def test_a_release_is_replaced_and_a_later_overlay_wins(tmp_path: Path) -> None:
    bad = '{version: "1.12.3", released: "2019-06-21", status: known-bad, note: "not on our machines"}'
    first = overlay(tmp_path, OURS.replace('{version: "1.12.9", released: "2019-09-01"}', bad))
    found = load_files(TOY_ENTRY, [first])
    assert versions(found) == versions(load_files(TOY_ENTRY))
    assert resolve(found, decide(found, "wd-1.12")).environment.frameworks[0].version == "1.12.2"
    second = overlay(tmp_path, OURS.replace("1.12.9", "1.12.3"), "second.yaml")
    both = load_files(TOY_ENTRY, [first, second])
    assert resolve(both, decide(both, "wd-1.12")).environment.frameworks[0].version == "1.12.3"


def test_a_series_with_variants_replaces_the_series(tmp_path: Path) -> None:
    text = OURS.replace(
        "    releases:",
        '    variants: {cpu: {package: widget, python: ["3.5"], cuda_libraries: none, glibc: "2.17"}}\n    releases:',
    )
    found = load_files(TOY_ENTRY, [overlay(tmp_path, text)])
    assert [version for version in versions(found) if version.startswith("1.12")] == ["1.12.9"]


def test_the_nearest_is_of_the_same_series(tmp_path: Path) -> None:
    bad = '{version: "1.4.9", released: "2018-01-01", status: known-bad, note: "crashes"}'
    text = HEAD + f'framework: {{name: widget}}\nseries: [{{series: "1.4", releases: [{bad}]}}]\n'
    found = load_files(TOY_ENTRY, [overlay(tmp_path, text)])
    with pytest.raises(ConflictError) as refused:
        resolve(found, parse(["wd-1.4.9-py35-granite16.04"], matrix=found, base="my/image:1"))
    assert [each.changes for each in refused.value.alternatives] == ["version 1.4.0 instead of 1.4.9"]


def test_a_gpu_build_that_is_known_not_to_work_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    bad = '{version: "2.0.9", released: "2021-01-20", variants: {gpu: {status: known-bad, note: "finds no GPU"}}}'
    text = HEAD + f'framework: {{name: widget}}\nseries: [{{series: "2.0", releases: [{bad}]}}]\n'
    found = load_files(TOY_ENTRY, [overlay(tmp_path, text)])
    (told,) = resolve(found, parse(["wd-2.0.9"], matrix=found)).warnings
    assert told == "widget 2.0.9 cpu does not use the GPU: widget 2.0.9 gpu is known not to work: finds no GPU"
    assert not resolve(found, parse(["wd-2.0.9-cpu"], matrix=found)).warnings


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (OURS.replace('"1.12.9"', "1.12"), 6, "quote it"),
        (OURS.replace("released:", "relased:"), 6, "did you mean released"),
        (OURS.replace(HEAD, "\n"), 4, "the row has no source"),
        (OURS.replace("    releases:", "    constraints: [x]\n    releases:"), 5, "constraints: a series without `variants`"),
        (OURS.replace("    releases:", '    python: ["3.5"]\n    releases:'), 5, "python: a series without `variants`"),
        (OURS.replace("    releases:", "    nosuch: [x]\n    releases:"), 5, "unknown key"),
        (
            OURS + '  - series: "1.12"\n    releases:\n      - {version: "1.12.10", released: "2019-09-01"}\n',
            7,
            "defined twice",
        ),
        (OURS.replace("name: widget", "name: wigdet"), 2, "title is missing"),
        ("schema: 2\n" + OURS, 1, "can read only schema 1"),
        (OURS + "policy: {}\n", 7, "unknown key"),
        ("gpus: [\n", 2, "not YAML"),
    ],
)
def test_strictness_names_the_overlay_and_the_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = overlay(tmp_path, text)
    with pytest.raises(InvalidInputError) as caught:
        load_files(TOY_ENTRY, [path])
    found = [problem for problem in caught.value.problems if problem.where == str(path) and message in problem.message]
    assert line in {problem.line for problem in found}, caught.value.problems


def test_the_checks_across_tables_name_the_overlay(tmp_path: Path) -> None:
    path = overlay(tmp_path, HEAD + 'gpus: [{name: Mine, aliases: [], architecture: Ant, capability: "9.9"}]\n')
    found = checks.check(load_files(TOY_ENTRY, [path]))
    assert {(problem.where, problem.line) for problem in found} == {(str(path), 2)}


def test_an_overlay_that_contradicts_is_not_used(tmp_path: Path) -> None:
    path = overlay(tmp_path, HEAD + 'gpus: [{name: Mine, aliases: [], architecture: Ant, capability: "6.1"}]\n')
    plain = Workspace(root=TOY_ENTRY.parent, output=tmp_path / "out", home=tmp_path / "home")
    for _ in range(2):  # the faulty matrix is not cached, so the second load fails, too
        with pytest.raises(InvalidInputError, match="The overlay has a problem") as caught:
            cache.load(Workspace(root=plain.root, output=plain.output, home=plain.home, overlays=(path,)))
    assert [(problem.where, problem.line) for problem in caught.value.problems] == [(str(path), 2)]
    assert "Mine" not in {gpu.name for gpu in cache.load(plain).gpus}


def test_a_matrix_that_contradicts_itself_is_no_fault_of_the_overlay(tmp_path: Path) -> None:
    for name, content in read_sources(TOY_ENTRY).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.replace(b"architecture: Cow", b"architecture: Bee"))
    place = Workspace(root=tmp_path, output=tmp_path / "out", home=tmp_path / "home", overlays=(overlay(tmp_path, OURS),))
    assert "1.12.9" in versions(cache.load(place))


def test_the_workspace_takes_overlays_of_environment_and_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        overlay(tmp_path, OURS.replace("1.12.9", f"1.12.{ord(name)}"), f"{name}.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVBUILD_MATRIX", os.pathsep.join(["a.yaml", "", str(tmp_path / "b.yaml")]))
    found = workspace.find(str(TOY_ENTRY.parent), ["c.yaml", "a.yaml"])
    assert found.overlays == tuple(tmp_path / f"{name}.yaml" for name in "abc")
    place = Workspace(root=found.root, output=tmp_path / "out", home=tmp_path / "home", overlays=found.overlays)
    assert {"1.12.97", "1.12.98", "1.12.99"} <= set(versions(cache.load(place)))


def test_the_compiled_copy_follows_the_overlay(tmp_path: Path) -> None:
    path = overlay(tmp_path, OURS)
    plain = Workspace(root=TOY_ENTRY.parent, output=tmp_path / "out", home=tmp_path / "home")
    place = Workspace(root=plain.root, output=plain.output, home=plain.home, overlays=(path,))
    for _ in range(2):  # the second time it is read from the compiled copy
        assert "1.12.9" in versions(cache.load(place))
        assert "1.12.9" not in versions(cache.load(plain))
    overlay(tmp_path, OURS.replace("1.12.9", "1.12.8"))
    assert {"1.12.8", "1.12.9"} & set(versions(cache.load(place))) == {"1.12.8"}
    path.unlink()
    with pytest.raises(InvalidInputError, match=r"site\.yaml"):
        cache.load(place)


def test_a_decision_made_with_an_overlay_stands_without_it_where_it_holds(tmp_path: Path) -> None:
    toy = load_files(TOY_ENTRY)
    with_added = load_files(TOY_ENTRY, [overlay(tmp_path, OURS)])
    made = resolve(with_added, decide(with_added, "wd-1.12")).environment
    assert [conflict.reason for conflict in recheck(toy, made)] == ["is no longer in the matrix"]
    preferring = HEAD + 'pythons: [{version: "2.7", released: "2010-07-03", preference: 99}]\n'
    other = load_files(TOY_ENTRY, [overlay(tmp_path, preferring)])
    chosen = resolve(other, decide(other, "wd-1.12-cpu")).environment
    assert chosen.python.version == "2.7"
    assert recheck(toy, chosen) == []


def test_show_and_resolve_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    path = overlay(tmp_path, OURS.replace("widget", "tensorflow").replace("1.12", "1.13").replace("1.13.9", "1.13.99"))
    ours = ["--matrix", str(path)]
    for argv in (["resolve", "tf-1.13", *ours], [*ours, "show", "tf-1.13"], ["explain", "tf-1.13", *ours]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*argv, "--root", str(ROOT)])
        assert ended.value.code == 0
        assert f"from your overlay: tensorflow 1.13.99 ({path}:6)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["resolve", "tf-1.13", "--root", str(ROOT), "--matrix", str(path), "--json"])
    assert json.loads(capsys.readouterr().out)["overlaid"] == [f"tensorflow 1.13.99 ({path}:6)"]


def test_a_patch_of_ones_own_with_code_for_fewer_gpus_is_not_the_default(tmp_path: Path) -> None:
    narrow = '"2019-09-01", variants: {gpu: {capabilities: {sass: ["3.7"], ptx: ["3.7"]}}}}'
    text = OURS.replace("widget", "tensorflow").replace("1.12.9", "1.12.99").replace('"2019-09-01"}', narrow)
    path = overlay(tmp_path, text)
    mine = load_files(ROOT / "matrix.yaml", [path])
    for asked, expected in (("tf-1.12", "1.12.0"), ("tf-1.12.99", "1.12.99"), ("tf-1.12-cpu", "1.12.99")):
        assert resolve(mine, decide(mine, asked)).environment.frameworks[0].version == expected


def test_a_lock_that_needs_an_overlay_says_so(tmp_path: Path) -> None:
    with_added = load_files(TOY_ENTRY, [overlay(tmp_path, OURS)])
    made = resolve(with_added, decide(with_added, "wd-1.12-cpu")).environment
    base = BaseLock(image=made.base.image, digest=None, bootstrap=None)
    home = Workspace(root=TOY_ENTRY.parent, output=tmp_path / "out", home=tmp_path / "home")
    unpinned = (Missing(what=f"base {made.base.image}", why="nobody was asked"),)
    lock_file.write(home.environment(made.name) / "lock.json", Lock(environment=made, base=base, prefixes=(), missing=unpinned))
    with pytest.raises(InvalidInputError) as caught:
        locking.require_lock(Tools(home), made.name)
    assert caught.value.code == "stale-lock"
    assert "--matrix" in caught.value.hint
    assert any("widget 1.12.9: is no longer in the matrix" in problem.message for problem in caught.value.problems)
    mine = Workspace(root=home.root, output=home.output, home=home.home, overlays=(tmp_path / "site.yaml",))
    with pytest.raises(InvalidInputError) as caught:
        locking.require_lock(Tools(mine), made.name)
    assert [problem.message for problem in caught.value.problems] == ["its prefixes are none, but the environment has env"]
