"""Images of several frameworks: each in its own prefix, one common report, and the report if one part fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import FAULTY, GUEST, NEWEST, OLDEST, REPOSITORY, Answer, Guest

SCHEMA = json.loads((REPOSITORY / "envbuild/schemas/smoke-report.json").read_text())
QUICK = ("--phases", "oracle", "--counts", "1")


class Image:
    """The files below /opt in an image: the guest, a lock with two prefixes, and the list that envbuild-use reads."""

    def __init__(self, folder: Path, old: Guest, new: Guest) -> None:
        self.folder, self.guests = folder, {"old": old, "new": new}
        shutil.copytree(GUEST, folder / "smoke", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(FAULTY, folder / "smoke/adapters/faulty.py")
        self.frameworks: list[dict[str, Any]] = []
        self.held: dict[str, list[str]] = {"old": [], "new": []}
        for name, guest in self.guests.items():
            programs = folder / "envs" / name / "bin"
            programs.mkdir(parents=True)
            (programs / "python").symlink_to(guest.executable)

    def add(self, name: str, prefix: str, recipe: str = "numpy", **options: str) -> None:
        version = self.guests[prefix].numpy.name.split("numpy")[1]
        framework = {"name": name, "version": version, "recipe": recipe, "options": options, "cuda_libraries": "none"}
        self.frameworks.append(framework)
        self.held[prefix].append(name)

    def write(self, prefixes: tuple[str, ...] = ("old", "new"), cuda: str | None = None) -> None:
        listed = "# a comment: FALSE=1\n"
        entries = []
        for name in prefixes:
            path, guest = self.folder / "envs" / name, self.guests[name]
            entries.append(
                {"name": name, "path": str(path), "python": {"version": guest.version}, "frameworks": self.held[name]}
            )
            listed += f"{path}  Python {guest.version}   {', '.join(self.held[name])}\n"
            listed += f"  PYTHONPATH={guest.numpy}\n  {name.upper()}=1\n"
        facts = {"cudnn": None, "nccl": None, "driver_min": None, "compute_capability": None, "cuda": cuda}
        lock = {"environment": {"name": "toy-stack", "frameworks": self.frameworks, **facts}, "prefixes": entries}
        (self.folder / "lock.json").write_text(json.dumps(lock))
        (self.folder / "prefixes").write_text(listed)

    def start(self, *arguments: str, **how: Any) -> subprocess.Popen[str]:
        guest = self.guests["old"]
        argv = [guest.executable, str(self.folder / "smoke"), *arguments, "--lock", str(self.folder / "lock.json")]
        argv += ["--json", str(self.folder / "report.json")]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=guest.env(), **how)

    def run(self, *arguments: str) -> Answer:
        process = self.start("run", *arguments)
        out, err = process.communicate(timeout=600)
        return Answer(process.returncode, out, err, self.report())

    def report(self) -> dict[str, Any] | None:
        path = self.folder / "report.json"
        report = json.loads(path.read_text()) if path.exists() else None
        if report is not None:
            jsonschema.Draft202012Validator(SCHEMA).validate(report)
        return report


@pytest.fixture
def image(guest_of: Callable[[str], Guest], tmp_path: Path) -> Image:
    return Image(tmp_path, guest_of(OLDEST), guest_of(NEWEST))


def parts(answer: Answer) -> dict[str, dict[str, Any]]:
    assert answer.report is not None, answer.err
    return {part["framework"]: part for part in answer.report["parts"]}


def test_each_framework_passes_under_its_own_python_with_its_own_variables(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.write()
    answer = image.run(*QUICK)
    assert answer.report is not None, answer.err
    assert (answer.code, answer.report["status"]) == (0, "pass"), answer.err
    for name, prefix in (("alpha", "old"), ("beta", "new")):
        part = parts(answer)[name]
        assert (part["prefix"], part["status"], part["report"]["status"]) == (prefix, "pass", "pass")
        made = part["report"]["framework"]
        # It has found this NumPy, which only the variables of its own prefix name.
        assert made["version"] == image.guests[prefix].numpy.name.split("numpy")[1]
        assert made["python"].startswith(image.guests[prefix].version)
    assert [check["id"] for check in answer.report["checks"]] == ["PART", "PART"]
    assert answer.report["mode"]["device"] == "cpu"
    assert "alpha " in answer.out and "beta " in answer.out and "PASS" in answer.out
    assert f"(Python {NEWEST}), 2 of 2" in answer.err


def test_one_framework_alone_is_tested_in_its_prefix(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.write()
    answer = image.run(*QUICK, "--framework", "beta")
    assert answer.report is not None, answer.err
    assert (answer.code, answer.report.get("parts")) == (0, None)
    assert answer.report["framework"]["python"].startswith(NEWEST)


def test_several_frameworks_of_one_prefix_are_tested_too(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "old")
    image.write(prefixes=("old",))
    answer = image.run(*QUICK)
    assert answer.code == 0, answer.err
    assert {part["prefix"] for part in parts(answer).values()} == {"old"}


@pytest.mark.parametrize(
    ("fault", "status", "code", "words"),
    [
        ("no-update", "fail", 1, "never changed"),
        ("import", "fail", 1, "libexample.so.9"),
        ("asleep", "fail", 4, "no rank makes progress"),
    ],
)
def test_a_part_that_goes_wrong_is_named_and_the_others_are_still_tested(
    image: Image, fault: str, status: str, code: int, words: str
) -> None:
    image.add("broken", "old", "faulty", fault=fault)
    image.add("sound", "new")
    image.write()
    answer = image.run(*QUICK, "--stall", "8")
    assert answer.report is not None, answer.err
    assert (answer.code, answer.report["status"]) == (code, status)
    assert parts(answer)["sound"]["status"] == "pass"
    assert parts(answer)["broken"]["status"] == status
    assert [(check["id"], check["status"]) for check in answer.report["checks"]] == [("PART", status), ("PART", "pass")]
    assert words in answer.report["reason"] and answer.report["reason"].startswith("broken ")


def test_a_part_whose_python_cannot_start_is_an_error_with_its_last_words(image: Image) -> None:
    image.add("alpha", "old")
    image.add("lost", "new")
    image.write()
    (image.folder / "envs/new/bin/python").unlink()
    answer = image.run(*QUICK)
    assert answer.report is not None, answer.err
    assert (answer.code, answer.report["status"]) == (1, "error")
    assert parts(answer)["lost"]["report"] is None
    assert "ended with status 127" in parts(answer)["lost"]["reason"]
    assert "No such file" in answer.report["logs"]["lost"]


def test_a_part_that_is_refused_says_why(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.write()
    answer = image.run("--device", "cpu", "--counts", "99999")
    assert (answer.code, {part["status"] for part in parts(answer).values()}) == (1, {"error"}), answer.err
    assert parts(answer)["beta"]["reason"].startswith("it did not start: envbuild-smoke: 99999 workers are too many for ")


def test_a_part_that_does_not_even_watch_itself_is_ended(image: Image) -> None:
    """The part hangs before its own watchdog runs, and it ignores SIGTERM."""
    image.add("stuck", "new")
    image.add("odd", "old", recipe="nothing_here")
    image.write()
    python = image.folder / "envs/new/bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & wait; sleep 600\n")
    python.chmod(0o755)
    started = time.monotonic()
    answer = image.run(*QUICK, "--part-timeout", "1.5")
    assert time.monotonic() - started < 300  # without the limit it would sleep for 600 s
    assert (answer.code, parts(answer)["stuck"]["status"]) == (4, "fail"), answer.err
    assert answer.failed() == {"HANG"}


def test_what_the_time_limit_leaves_no_time_for_is_not_passed(image: Image) -> None:
    image.add("slow", "old", "faulty", fault="asleep")
    image.add("late", "new")
    image.write()
    answer = image.run(*QUICK, "--timeout", "5")
    assert (parts(answer)["slow"]["status"], parts(answer)["late"]["status"]) == ("inconclusive", "inconclusive"), answer.err
    assert answer.code == 3


def test_without_a_test_a_framework_is_not_applicable_and_never_a_pass(image: Image) -> None:
    image.add("alpha", "old")
    image.add("odd", "new", recipe="nothing_here")
    image.write()
    answer = image.run(*QUICK)
    assert answer.report is not None, answer.err
    assert (answer.code, parts(answer)["odd"]["status"]) == (0, "not-applicable")
    assert any(note.startswith("odd ") for note in answer.report["notes"])
    image.frameworks, image.held = image.frameworks[1:], {"old": [], "new": ["odd"]}
    image.add("other", "old", recipe="nor_here")
    image.write()
    answer = image.run(*QUICK)
    assert answer.report is not None, answer.err
    assert (answer.code, answer.report["status"]) == (3, "inconclusive")


def test_a_gpu_image_s_cpu_framework_is_asked_for_no_gpu(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.frameworks[1]["cuda_libraries"] = "wheels"
    image.write(cuda="12.4")
    os.environ["ENVBUILD_SMOKE_LIBCUDA"] = "/nowhere/libcuda.so.1"
    try:
        answer = image.run(*QUICK, "--expect-gpus", "1", "--min-speedup", "2:1.5")
    finally:
        del os.environ["ENVBUILD_SMOKE_LIBCUDA"]
    assert parts(answer)["alpha"]["status"] == "pass", answer.err
    assert parts(answer)["beta"]["status"] == "fail"


def test_a_speed_that_no_part_measures_on_a_gpu_is_never_met(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.write()
    answer = image.run(*QUICK, "--min-speedup", "2:1.5")
    assert [part["status"] for part in parts(answer).values()] == ["inconclusive", "inconclusive"], answer.err
    assert answer.code == 3


def test_an_interrupt_ends_the_running_part_and_keeps_what_was_found(image: Image) -> None:
    image.add("alpha", "old")
    image.add("slow", "new", "faulty", fault="asleep")
    image.write()
    process = image.start("run", *QUICK)
    assert process.stderr is not None
    for line in process.stderr:
        if "2 of 2" in line:
            break
    until = time.monotonic() + 60
    while not matching(f"{image.folder}/smoke.*--plan") and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130
    report = image.report()
    assert report is not None
    assert (report["status"], report["reason"]) == ("error", "interrupted")
    assert [part["status"] for part in report["parts"]] == ["pass", "error"]
    assert report["parts"][1]["reason"] == "it was interrupted"
    assert not matching(str(image.folder / "smoke"))


def matching(pattern: str) -> list[str]:
    """The ids of the processes whose command line matches."""
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()


def use(image: Image, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(image.folder / "smoke/use.sh"), *arguments]
    return subprocess.run(argv, env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, check=False)


def test_use_lists_enters_and_refuses(image: Image) -> None:
    image.add("alpha", "old")
    image.add("beta", "new")
    image.write()
    listed = use(image)
    assert [line.split()[0] for line in listed.stdout.splitlines()[:2]] == ["old", "new"]
    assert f"Python {NEWEST}" in listed.stdout and "FALSE" not in listed.stdout
    show = ("sh", "-c", "command -v python; echo $VIRTUAL_ENV; echo ${OLD-none} ${NEW-none}; exit 7")
    entered = use(image, "new", *show)
    path = image.folder / "envs/new"
    assert entered.stdout.splitlines() == [f"{path}/bin/python", str(path), "none 1"]
    assert entered.returncode == 7
    refused = use(image, "newer", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "envbuild-use: 'newer' is none of the environments in this image: old new\n"
    assert use(image, ".*", "true").returncode == 2
    assert use(image, "new", "no-such-program").returncode == 127


def test_use_leaves_one_prefix_for_another_without_its_variables_but_with_the_user_s(image: Image) -> None:
    image.add("alpha", "old")
    image.write()
    script = str(image.folder / "smoke/use.sh")
    inner = use(image, "old", "sh", script, "new", "sh", "-c", "echo ${OLD-none} ${NEW-none}; echo $PATH")
    said, path = inner.stdout.splitlines()
    assert said == "none 1"
    assert str(image.folder / "envs/old") not in path
    mine = use(image, "new", "sh", "-c", "echo $OLD", OLD="mine")
    assert mine.stdout == "mine\n"
