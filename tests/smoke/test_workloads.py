"""Workloads: the data and network of each, real and damaged files, and models that are saved and restored."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INSIDE, NEWEST, OLDEST, Answer, Guest
from .test_run import valid

ANYNET = INSIDE / "anynet.py"
SMALL = ("--train-images", "256", "--test-images", "64", "--epochs", "1", "--rounds", "3", "--round-seconds", "0.02")
SMALL += ("--warmup-max", "10", "--batch", "8")


def _run(guest: Guest, folder: Path, *arguments: str | Path, **variables: str) -> Answer:
    environment = guest.env(**variables)
    return guest.run("run", "--adapter", ANYNET, *SMALL, *arguments, folder=folder, env=environment)


def _of(answer: Answer, workload: str) -> dict[str, str]:
    return {
        check["id"]: check["status"]
        for check in valid(answer)["checks"]
        if check.get("workload") == workload and check["n"] == 2
    }


def test_two_workloads_in_one_run_are_told_apart(guest: Guest, tmp_path: Path) -> None:
    answer = _run(guest, tmp_path, "--workload", "mnist,cifar", "--phases", "train,save,bench", "--counts", "2")
    report = valid(answer)
    assert (answer.code, answer.failed()) == (0, set()), answer.out + answer.err
    for workload in ("mnist", "cifar"):
        passed = {"SAVE", "REPLICA", "EXCHANGE"}
        assert {key for key, status in _of(answer, workload).items() if status == "pass"} == passed
    named = [("mnist", "lenet"), ("cifar", "resnet20")]
    assert [(run["workload"], run["net"]) for run in report["runs"]] == named
    assert [(training["workload"], training["net"]) for training in report["training"]] == named
    assert [entry["name"] for entry in report["datasets"]] == ["generated-digits/1", "generated-shapes/1"]
    assert report["data"] == report["datasets"][0]
    assert "acc cifar" in answer.out and "acc mnist" in answer.out
    assert any("bit by bit" in check["message"] for check in report["checks"])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("save-loses-one", "norm1_b"),
        ("save-loses-running-means", "running means"),
        ("save-rounds", "differs by"),
        ("restore-nothing", "differs by"),
    ],
)
def test_a_model_that_does_not_come_back_whole_fails(guest: Guest, tmp_path: Path, fault: str, words: str) -> None:
    answer = _run(guest, tmp_path, "--workload", "cifar", "--phases", "save", "--counts", "1", "--option", f"fault={fault}")
    assert (answer.code, answer.failed()) == (1, {"SAVE"}), answer.out + answer.err
    save = next(check for check in valid(answer)["checks"] if check["id"] == "SAVE")
    assert words in save["message"] + save["next_step"]


def test_a_network_beyond_the_adapter_is_no_pass(guest: Guest, tmp_path: Path) -> None:
    answer = _run(guest, tmp_path, "--net", "vgg19_bn", "--phases", "oracle,train")
    assert answer.code == 3
    assert answer.check("NET")["status"] == "inconclusive"
    assert "hours" in answer.check("NET")["message"]


@pytest.fixture(scope="module")
def files(guest_of: Callable[[str], Guest], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files in the formats of MNIST and CIFAR-10. The oldest Python writes them, so that their pickles are like the
    public ones.
    """
    guest, folder = guest_of(OLDEST), tmp_path_factory.mktemp("files") / "data"
    folder.mkdir()
    command = [guest.executable, "write_data.py", str(folder)]
    subprocess.run(command, cwd=INSIDE, env=guest.env(), check=True, capture_output=True)
    return folder


def test_real_files_are_trained_on_and_named_with_their_checksums(
    guest_of: Callable[[str], Guest], files: Path, tmp_path: Path
) -> None:
    table = f"{files}.json"
    both = ("--workload", "mnist,cifar", "--phases", "train", "--counts", "1", "--data", files)
    answer = _run(guest_of(NEWEST), tmp_path, *both, ENVBUILD_SMOKE_DATASETS=table)
    assert answer.code == 0, answer.out + answer.err
    datasets = valid(answer)["datasets"]
    assert [(entry["name"], entry["source"], entry["n_train"]) for entry in datasets] == [
        ("MNIST", str(files), 256),
        ("CIFAR-10", str(files), 256),
    ]
    assert [len(entry["files"]) for entry in datasets] == [4, 6]
    assert all("sha256" in file for file in datasets[0]["files"])


@pytest.mark.parametrize(
    ("name", "change"), [("t10k-images-idx3-ubyte.gz", "byte"), ("test_batch", "cut"), ("data_batch_3", "gone")]
)
def test_damaged_files_fail_before_anything_is_trained(
    guest: Guest, files: Path, tmp_path: Path, name: str, change: str
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(files, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(bytes(content) if change == "byte" else content[:-1])
    if change == "gone":
        (folder / name).unlink()
    workload = "mnist" if "idx" in name else "cifar"
    both = ("--workload", "mnist,cifar", "--phases", "oracle,train", "--data", folder)
    answer = _run(guest, tmp_path, *both, ENVBUILD_SMOKE_DATASETS=f"{files}.json")
    assert (answer.code, answer.failed()) == (1, {"DATA"}), answer.out + answer.err
    failed = next(check for check in valid(answer)["checks"] if check["status"] == "fail")
    assert name in failed["message"]
    assert failed["workload"] == workload
    assert "envbuild data fetch" in failed["next_step"]
    assert not valid(answer)["training"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workload", "imagenet"),
        ("--net", "alexnet"),
        ("--workload", "cifar", "--net", "lenet"),
        ("--devices", "0,1"),
        ("--devices", "GPU-1"),
    ],
)
def test_options_that_cannot_be_are_usage(guest: Guest, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = _run(guest, tmp_path, *arguments)
    assert answer.code == 2, answer.err
    assert "Traceback" not in answer.err
