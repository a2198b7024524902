"""Real downloads of the files of committed locks: a sample, an interruption, and a folder from which pip installs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from program import ROOT, Program, own_program, share_downloads

# The environment with the smallest downloads. They do not need its Python.
SMALL = "chainer-4.3.1-cpu-py27-debian11"
LARGER = "opencv-5.0.0.93-cpu-py311-debian12"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = own_program(tmp_path)
    for name in (SMALL, LARGER):
        shutil.copytree(ROOT / "images/environments" / name, program.root / "images/environments" / name)
    return program


def test_an_interrupted_run_goes_on_where_it_was_and_proves_what_it_had(program: Program):
    stopped = program.interrupt(signal.SIGINT, lambda text: f"{SMALL}:" in text, "fetch", "--all", "--progress", "plain")
    stopped.expect(130)
    noted = (program.home / "fetched").read_text().splitlines()
    assert noted
    fetched = {done["name"]: done for done in program.run("fetch", "--all", "--json").expect(0).document["fetched"]}
    assert fetched[SMALL]["known"] == fetched[SMALL]["files"]
    assert len((program.home / "fetched").read_text().splitlines()) == len({*noted}) + sum(
        done["files"] - done["known"] for done in fetched.values()
    )
    for name in (SMALL, LARGER):
        evidence = json.loads((program.home / f"evidence/{name}.json").read_text())
        assert [proof["kind"] for proof in evidence["proofs"]] == ["downloaded"]
    deb = min((program.home / "downloads/debs").glob("*.deb"), key=lambda path: path.stat().st_size)
    content = deb.read_bytes()
    deb.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again = program.run("fetch", "--all", "--json").expect(0).document["fetched"]
    assert max(done["files"] - done["known"] for done in again) == 1, "a damaged package of the store is had again"
    assert deb.read_bytes() == content


def test_a_folder_of_fetched_files_installs_without_an_index(program: Program, tmp_path: Path):
    share_downloads(program.home)
    folder = tmp_path / "carried"
    program.run("fetch", LARGER, "--to", str(folder)).expect(0)
    requirements = program.root / "images/environments" / LARGER / "requirements-opencv.txt"
    target = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "--no-deps", "--require-hashes", *target]
    places = [f"--find-links={folder}", f"--dest={tmp_path / 'taken'}", f"--requirement={requirements}"]
    subprocess.run([*pip, *places], check=True)
    assert list((tmp_path / "taken").iterdir())


def test_a_file_that_is_not_what_the_lock_says_is_told_with_its_environment(program: Program):
    share_downloads(program.home)
    path = program.root / "images/environments" / SMALL / "lock.json"
    lock = json.loads(path.read_text())
    (six,) = [each for each in lock["prefixes"][0]["artifacts"] if each["name"] == "six"]
    path.write_text(path.read_text().replace(six["sha256"], "f" * 64))
    answer = program.run("fetch", SMALL, "--json").expect(7)
    (problem,) = answer.document["error"]["problems"]
    assert problem["where"] == SMALL
    assert six["filename"] in problem["message"]
    evidence = json.loads((program.home / f"evidence/{SMALL}.json").read_text())
    assert evidence["proofs"] == []
    ((unproved,),) = [each["files"] for each in evidence["unproved"]]
    assert (unproved["file"], unproved["why"]) == (six["filename"], "the index no longer offers it")
