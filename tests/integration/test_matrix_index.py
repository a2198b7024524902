"""`matrix check --online` and `matrix update` with the real package index."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import index_lists
import pytest
import yaml
from index_lists import Listing
from packaging.version import Version
from program import Answer, Program, fresh_root, own_program
from real_matrix import FACTS

from envbuild.errors import EnvbuildError
from envbuild.index.client import Index
from envbuild.matrix import checks
from envbuild.matrix.online.published import indexed, packages
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import LibraryNeed, Matrix, Release, Variant


def _problems(root: Path) -> set[str]:
    try:
        return {problem.message for problem in checks.check(load_files(root / "matrix.yaml"))}
    except EnvbuildError as error:
        return {problem.message for problem in error.problems}


@functools.cache
def _problems_before() -> set[str]:
    """What `matrix check` says of the matrix as it is."""
    return {problem.message for problem in checks.check(FACTS)}


NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull}
INDEXED = [table.name for table in FACTS.frameworks if packages(table)]
MEASURED = ("tensorflow", "pytorch")  # frameworks whose wheels contain the GPU code
FEW = ["tensorflow", "torchvision"]  # one that brings CUDA as packages, and one add-on


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all tests, so that the metadata of wheels is downloaded once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def own(tmp_path: Path, home: Path) -> Program:
    """A program whose matrix the test may change."""
    return Program(root=fresh_root(tmp_path / "root"), home=home)


def texts(program: Program) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (program.root / "matrix").rglob("*.yaml")}


def reached(answer: Answer) -> Answer:
    if answer.code == 7:
        pytest.skip(f"no package index: {answer.err}")
    return answer


def release_of(facts: Matrix, framework: str, version: str) -> Release:
    table = next(table for table in facts.frameworks if table.name == framework)
    return next(release for release in table.releases if release.version == version)


def without_newest(program: Program, framework: str) -> str:
    """Remove the newest release that can be proposed, and the add-ons to it, from their files.

    Returns the version of the release.
    """
    table = next(table for table in FACTS.frameworks if table.name == framework)
    proposable = [each for each in table.releases[:-1] if any(map(indexed, each.variants)) and not known_bad(each)]
    if not proposable:
        pytest.skip(f"{framework} has no release of the index that is newer than its oldest")
    version = proposable[0].version
    for other in FACTS.frameworks:
        cut = {each.version for each in other.releases if other is table and each.version == version}
        cut |= {
            each.version for each in other.releases for v in each.variants if (framework, version) in {up[:2] for up in v.upon}
        }
        if cut:
            path = program.root / other.origin.at.rpartition(":")[0]
            path.write_text(_without(path.read_text(), cut))
    assert _problems(program.root) <= _problems_before()
    return version


def known_bad(release: Release) -> bool:
    return all(variant.origin.status == "known-bad" for variant in release.variants)


def _without(text: str, versions: set[str]) -> str:
    """``text`` of a framework's file without some releases. A series without any other release is removed, too."""
    top: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    dropped: set[int] = set()
    for series in next(value for key, value in top.value if key.value == "series").value:
        rows = next(value for key, value in series.value if key.value == "releases").value
        gone = [row for row in rows if any(key.value == "version" and value.value in versions for key, value in row.value)]
        if len(gone) == len(rows):
            dropped.update(range(series.start_mark.line, gone[-1].end_mark.line + 1))
        for row in gone:
            dropped.update(range(row.start_mark.line, row.end_mark.line + 1))
    return "".join(line for number, line in enumerate(text.splitlines(keepends=True)) if number not in dropped)


def admitted(need: LibraryNeed | None, by: LibraryNeed | None) -> bool:
    """Whether the library version of one row is one that the other row accepts."""
    if need is None or by is None or need.taken_from != by.taken_from:
        return need == by or need is None or need.taken_from == "bundled"
    least, ours = (tuple(map(int, (each.minimum or each.prefer).split("."))) for each in (by, need))
    return least == ours if by.exact and need.exact else ours >= least or least >= ours


@pytest.mark.network
@pytest.mark.parametrize("framework", [pytest.param(name, marks=() if name in FEW else pytest.mark.prove) for name in INDEXED])
def test_a_release_taken_out_is_proposed_and_written_as_it_was(own: Program, framework: str) -> None:
    version = without_newest(own, framework)
    shutil.rmtree(own.root / "matrix/measured")
    before = texts(own)
    words = ("matrix", "update", "--framework", framework, "--json")
    document = reached(own.run(*words, "--no-measure", timeout=300)).expect(0).document
    file = next(table.origin.at for table in FACTS.frameworks if table.name == framework).rpartition(":")[0]
    assert {"framework": framework, "version": version, "file": file} in document["added"], document["findings"]
    assert not document["written"] and texts(own) == before
    assert own.run(*words, "--write", timeout=900).expect(0).document["written"]
    assert _problems(own.root) <= _problems_before()
    was = release_of(FACTS, framework, version)
    found = release_of(load_files(own.root / "matrix.yaml"), framework, version)
    assert found.released == was.released
    assert all(variant.origin.status in ("unknown", "known-bad") for variant in found.variants)
    for ours, theirs in _same_builds(was, found):
        assert set(theirs.python) <= set(ours.python) | set(theirs.python) and theirs.glibc
        if ours.cuda_libraries == "wheels" and not ours.upon:
            assert theirs.cuda == ours.cuda
            assert admitted(ours.cudnn, theirs.cudnn) and admitted(ours.nccl, theirs.nccl), (ours, theirs)
            assert theirs.origin.source_of("cuda") == f"pkg:pypi/{theirs.package}@{version}"
        code = _measured_code(own, theirs.package, version)
        if code is not None and code["certainty"] != "unclear" and ours.sass:
            assert (set(theirs.sass), set(theirs.ptx)) == (set(ours.sass), set(ours.ptx))
        assert code is not None or not ours.sass or framework not in MEASURED


def _measured_code(program: Program, package: str, version: str) -> dict[str, Any] | None:
    """The GPU code of a wheel, as `matrix update` kept it."""
    path = program.root / "matrix/measured" / f"{package}.json"
    files = json.loads(path.read_text())["files"] if path.exists() else []
    return next((each["gpu_code"] for each in files if each["version"] == version), None)


def _same_builds(was: Release, found: Release) -> Iterator[tuple[Variant, Variant]]:
    """The builds on the package index that both releases have, paired by package and CUDA."""
    theirs = {(variant.package, variant.cuda): variant for variant in found.variants if indexed(variant)}
    for variant in was.variants:
        if (variant.package, variant.cuda) in theirs:
            yield variant, theirs[variant.package, variant.cuda]


@pytest.mark.network
def test_the_matrix_is_what_the_index_and_the_wheels_say(own: Program) -> None:
    words = [word for name in FEW for word in ("--framework", name)]
    reached(own.run("matrix", "check", "--online", *words, "--json", timeout=300)).expect(0)


@pytest.mark.network
@pytest.mark.prove
def test_the_whole_matrix_is_what_the_index_and_the_wheels_say(own: Program) -> None:
    document = reached(own.run("matrix", "check", "--online", "--json", timeout=600)).expect(0).document
    assert {finding["kind"] for finding in document["online"]} <= {"more", "known", "new"}


@pytest.mark.network
def test_a_wrong_date_an_invented_release_and_another_cuda_are_found(own: Program) -> None:
    path = own.root / "matrix" / "frameworks" / "torchvision.yaml"
    row = re.search(r'      - \{version: "([\d.]+)", released: "([\d-]+)".*\n', path.read_text())
    assert row is not None
    invented = row[0].replace(row[1], f"{row[1]}99")
    path.write_text(path.read_text().replace(row[0], row[0].replace(row[2], "2019-01-01") + invented, 1))
    other = own.root / "matrix" / "frameworks" / "tensorflow.yaml"
    other.write_text(re.sub(r'cuda: "12\.\d+"', 'cuda: "12.0"', other.read_text(), count=1))
    words = [word for name in FEW for word in ("--framework", name)]
    answer = reached(own.run("matrix", "check", "--online", *words, "--json", timeout=300))
    error = answer.expect(5).document["error"]
    assert error["code"] == "matrix-online"
    messages = {problem["message"] for problem in error["problems"]}
    assert any(f"torchvision {row[1]} " in text and "first wheel is from" in text for text in messages)
    assert any(f"torchvision {row[1]}99 " in text and "no file of this release" in text for text in messages)
    assert any(text.startswith("tensorflow ") and "says CUDA 12.0, but the wheel requires" in text for text in messages)


@pytest.mark.network
def test_the_lists_are_what_the_index_has() -> None:
    """New upstream releases are a warning, not a failure, because `matrix update` proposes them."""
    index = Index()
    try:
        index.prefetch(listing.project for listing in index_lists.every())
        now = {each.project: _listed(index, each) for each in index_lists.every()}
    except EnvbuildError as error:
        pytest.skip(f"no package index: {error.message}")
    for then in index_lists.every():
        found = now[then.project]
        assert set(then.releases) <= set(found.releases), f"{then.project}: gone from the index"
        assert set(then.yanked) <= set(found.yanked), f"{then.project}: no longer yanked"
        news = sorted(set(found.releases) - set(then.releases), key=Version)
        yanked = sorted(set(found.yanked) - set(then.yanked), key=Version)
        if news or yanked:
            warnings.warn(f"{then.project} since {then.read}: new {', '.join(news)}; yanked {', '.join(yanked)}", stacklevel=1)


def _listed(index: Index, listing: Listing) -> Listing:
    return index_lists.of_files(listing.project, listing.framework, index.project_files(listing.project), listing.read)


def test_an_index_that_cannot_be_reached_is_7_and_changes_nothing(own: Program) -> None:
    before = texts(own)
    for words in (["check", "--online"], ["update", "--write"]):
        answer = own.run("matrix", *words, "--json", timeout=120, env=NO_INDEX).expect(7)
        assert answer.document["error"]["code"] == "index-unreachable"
    assert texts(own) == before


class Nothing(BaseHTTPRequestHandler):
    """An index without any project. It answers slowly, so that a user has time to interrupt."""

    pause = threading.Event()

    def do_GET(self) -> None:
        self.pause.wait(0.3)
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.fixture
def empty_index() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield {**NO_INDEX, "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_address[1]}/simple"}
    server.shutdown()
    server.server_close()


def test_an_index_that_has_lost_its_projects_is_7_and_changes_nothing(own: Program, empty_index: dict[str, str]) -> None:
    before = texts(own)
    answer = own.run("matrix", "update", "--write", "--json", timeout=120, env=empty_index).expect(7)
    assert answer.document["error"]["code"] == "index-shrunk"
    assert texts(own) == before


def test_an_interrupted_update_leaves_nothing(tmp_path: Path, empty_index: dict[str, str]) -> None:
    own = own_program(tmp_path, empty_index)
    before = texts(own)
    own.interrupt(signal.SIGINT, lambda line: "[index]" in line, "matrix", "update", "--write", patience=60).expect(130)
    assert texts(own) == before
    assert not [path for path in own.root.rglob("*") if path.name.startswith(".") or path.suffix in (".tmp", ".part")]
