"""`envbuild launch` on the real matrix: what it answers, and each refusal with its exit code and its hint."""

import json

import pytest

from envbuild.cli import frame

NAME = "pytorch-2.13-cuda13"


def run(capsys, *words):
    code = frame.run(["launch", *words])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    return code, said.out, said.err


def test_it_prints_what_to_run_and_how(capsys):
    code, out, err = run(capsys, NAME, "--hosts", "a:4,b:4", "--via", "mpirun", "--", "--counts", "8")
    assert code == 0
    assert out.startswith("#!/bin/sh") and "--gpus all" in out and "envbuild-smoke run --counts 8" in out
    assert "sh -s" in err


def test_the_same_as_one_document(capsys):
    code, out, _ = run(capsys, NAME, "--hosts", "2x4", "--via", "kubernetes", "--kind", "pytorchjob", "--cpu", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["launcher"], document["kind"]) == ("kubernetes", "pytorchjob")
    assert document["hosts"] == [{"name": "", "devices": 4}] * 2
    assert "nvidia.com/gpu" not in document["text"] and '"--expect"' in document["text"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--hosts", "a:4", "--via", "bsub"), 4, "kubernetes"),
        (("--hosts", "a:x", "--via", "mpirun"), 2, "a:4,b:4"),
        (("--hosts", "a:4", "--via", "mpirun", "--report", "here"), 2, "full path"),
        (("--hosts", "a:4", "--via", "mpirun", "--run"), 7, "--image"),
    ],
)
def test_refusals(capsys, monkeypatch, tmp_path, words, code, said):
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path))
    got, _, err = run(capsys, NAME, *words)
    assert got == code, err
    assert said in err


def test_a_program_that_is_not_here_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run(capsys, NAME, "--hosts", "a:4", "--via", "mpirun", "--run", "--image", "x")
    assert code == 2
    assert "mpirun, docker is not on this machine" in err and "--print" in err
