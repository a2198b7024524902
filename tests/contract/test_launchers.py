"""`envbuild launch` on the real matrix: its answers, and every refusal with exit code and hint."""

import json
import re

import pytest

from envbuild.cli import frame

NAME = "pytorch-2.13-cuda13"
PULLED = ("--registry", "registry.example/lab/envbuild")


def run(capsys, *words):
    code = frame.run(["launch", *words])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    return code, said.out, said.err


def test_it_prints_what_to_run_and_how(capsys):
    code, out, err = run(capsys, NAME, "--hosts", "a:4,b:4", "--via", "mpirun", *PULLED, "--", "--counts", "8")
    assert code == 0
    assert out.startswith("#!/bin/sh") and "--gpus" in out and "envbuild-smoke run --counts 8" in out
    assert "registry.example/lab/envbuild:pytorch-2.13" in out
    assert "Save it as job.sh and run `sh job.sh`, or repeat this command with --run." in err


def test_the_hosts_pull_the_image_with_the_inputs_of_this_checkout(capsys):
    name = "pytorch-2.14.1-cpu-py311-debian12"
    code, out, _ = run(capsys, name, "--hosts", "a:4,b:4", "--via", "mpirun", *PULLED)
    assert code == 0 and re.search(rf"registry\.example/lab/envbuild:{re.escape(name)}-[0-9a-f]{{8}}-[0-9a-f]{{8}}\b", out)


def test_the_same_as_one_document(capsys):
    code, out, _ = run(
        capsys, NAME, "--hosts", "2x4", "--via", "kubernetes", "--kind", "pytorchjob", "--cpu", "--json", *PULLED
    )
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
        (("--hosts", "a:4", "--via", "mpirun"), 2, "--registry"),
        (("--hosts", "2x4", "--via", "slurm", "--registry", "envbuild"), 2, "registry.example/team/envbuild"),
        (("--hosts", "2x4", "--via", "slurm", *PULLED, "--image", "x"), 2, "Use one of them"),
        (("--hosts", "2x4", "--via", "slurm", *PULLED, "--namespace", "ml"), 2, "--partition, --account, --time"),
        (
            ("--hosts", "2x4", "--via", "kubernetes", "--kind", "mpijob", *PULLED),
            2,
            "apt: [openmpi-bin, openssh-client, openssh-server]",
        ),
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
    assert "mpirun needs mpirun, docker, which this machine does not have" in err and "--print" in err


@pytest.mark.parametrize(
    ("name", "words", "lacking"),
    [
        ("tf-2.21.0-cpu-py311-debian12", ("--via", "torchrun"), "torchrun"),
        ("pytorch-1.4.0-cuda10.1-py38-ubuntu20.04", ("--via", "torchrun"), "torchrun"),
        ("pytorch-2.14.1-cpu-py311-debian12", ("--via", "torchrun"), ""),
        ("horovodpytorch-0.28.1-cuda10.2-py39-debian11", ("--via", "torchrun"), ""),
        ("horovod-0.16.4-cpu-py27-debian11", ("--via", "kubernetes", "--kind", "mpijob"), "sshd"),
        ("horovod-0.16.4-cuda9.0-py35-ubuntu16.04", ("--via", "kubernetes", "--kind", "mpijob"), "sshd"),
        ("cntk-2.5.1-cpu-py27-debian11", ("--via", "mpirun", "--kind", "inside"), "sshd"),
        ("tf-2.21.0-cpu-py311-debian12", ("--via", "kubernetes", "--kind", "pytorchjob"), ""),
    ],
)
def test_the_lock_says_which_programs_an_image_lacks(capsys, name, words, lacking):
    code, _, err = run(capsys, name, "--hosts", "a:4,b:4", *words, *PULLED, "--json")
    assert code == (2 if lacking else 0), err
    if lacking:
        assert f"add --has {lacking}." in err


def test_a_recipe_of_ones_own_brings_what_an_mpijob_needs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    text = "schema: 1\nname: cluster\nframeworks: [tf-2.21-cpu]\napt: [openmpi-bin, openssh-server]\nuser: ada\n"
    (tmp_path / "envbuild.yaml").write_text(text)
    words = ("--hosts", "2x4", "--via", "kubernetes", "--kind", "mpijob", *PULLED)
    code, out, err = run(capsys, str(tmp_path / "envbuild.yaml"), *words)
    assert code == 0, err
    assert "sshAuthMountPath: /home/ada/.ssh" in out
