"""How the host judges the results of the guest. These tests use values only; tests/integration has the containers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from report_files import NAMES, load, stored_outcome
from verify_locks import lock

from envbuild import smoketest
from envbuild.engine.client import Engine
from envbuild.engine.model import ImageInfo, RunResult
from envbuild.errors import SmokeFailedError, UsageError
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import smoke_reports
from envbuild.report import view
from envbuild.smoketest import SmokeOptions

ANSWER = "/tmp/envbuild-smoke.json"
INFO = ImageInfo(
    id="sha256:" + "1" * 64,
    tags=(),
    labels={},
    env=(),
    entrypoint=(),
    cmd=(),
    user="1000",
    layers=(),
    size=1,
    created="",
    architecture="amd64",
)
TRIAL = smoketest.Trial(
    engine=cast(Engine, None),  # judging does not use the engine
    image="toy:latest",
    info=INFO,
    lock=lock(),
    options=SmokeOptions(),
    on_progress=ignore_progress,
)


def ended(code: int, content: Any = None, *, output: str = "", oom: bool = False) -> RunResult:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    files = {} if content is None else {ANSWER: data}
    return RunResult(code=code, output=output, seconds=1.0, oom_killed=oom, files=files)


@pytest.mark.parametrize(("name", "guest", "host"), [("pass", 0, 0), ("fail", 1, 9), ("no-gpu", 3, 10), ("allow-cpu", 3, 10)])
def test_a_valid_report_is_taken_as_it_is(name: str, guest: int, host: int) -> None:
    content = smoketest.judge(TRIAL, ended(guest, load(name)))
    assert content == load(name)
    outcome = smoketest.outcome_of(content, {})
    assert outcome.exit_code == host and outcome.status == load(name)["status"]


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        (1, "fail", "ended with exit code 1"),
        (3, "inconclusive", "ended with exit code 3"),
        (4, "fail", "a worker hung"),
        (5, "fail", "warnings under --strict"),
        (137, "error", "was killed by SIGKILL"),
        (139, "error", "was killed by SIGSEGV"),
        (77, "error", "ended with exit code 77"),
    ],
)
def test_a_pass_that_its_own_exit_code_contradicts_is_none(code: int, status: str, cause: str) -> None:
    content = smoketest.judge(TRIAL, ended(code, load("pass"), output="its last words"))
    assert content["status"] == status and cause in content["reason"]
    assert content["logs"]["container"] == "its last words"
    assert status == "error" or smoke_reports.contradiction(content) == "", "it can be attached to the image"
    assert smoketest.outcome_of(content, {}).exit_code == {"fail": 9, "error": 9, "inconclusive": 10}[status]


@pytest.mark.parametrize("code", [0, 1, 3, 137])
def test_a_failure_is_never_softened_by_an_exit_code(code: int) -> None:
    assert smoketest.judge(TRIAL, ended(code, load("fail")))["status"] == "fail"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"pass"',
        b'{"schema": "envbuild-smoke/1", "status": "pass"}',
        b'{"status": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**load("pass"), "schema": "envbuild-smoke/2"}).encode(),
        json.dumps({**load("pass"), "checks": "all fine"}).encode(),
        json.dumps({**load("pass"), "duration_s": float("nan")}).encode(),
    ],
)
def test_an_invalid_report_is_an_error_whatever_it_claims(answer: bytes, tmp_path: Path) -> None:
    content = smoketest.judge(TRIAL, ended(0, answer, output="the last words\n"))
    assert content["status"] == "error" and "not valid" in content["reason"]
    assert content["logs"]["container"] == "the last words"
    smoketest.write_reports(tmp_path, content)
    assert stored_outcome(tmp_path) is not None


@pytest.mark.parametrize(
    ("result", "cause", "step"),
    [
        (ended(137, oom=True), "ran out of memory", "more memory"),
        (ended(137), "was killed by SIGKILL", "more memory"),
        (ended(139), "was killed by SIGSEGV", "output"),
        (ended(0), "ended with exit code 0", "output"),
        (ended(255), "was killed by signal 127", "output"),
    ],
)
def test_no_report_is_an_error_with_its_cause(result: RunResult, cause: str, step: str) -> None:
    content = smoketest.judge(TRIAL, result)
    sentence, hint = view.summary(content)
    assert content["status"] == "error" and cause in sentence and step in hint
    assert smoketest.read_report(json.dumps(content).encode())[1] == []  # the host's report is valid, too


def test_refused_arguments_are_a_usage_error_with_the_guests_own_words() -> None:
    with pytest.raises(UsageError, match="counts are numbers") as raised:
        smoketest.judge(TRIAL, ended(2, output="usage: …\nenvbuild-smoke: error: counts are numbers\n"))
    assert raised.value.exit_code == 2


def test_an_image_without_the_guest_says_so() -> None:
    output = "[FATAL tini (7)] exec envbuild-smoke failed: No such file or directory\n"
    with pytest.raises(SmokeFailedError) as raised:
        smoketest.judge(TRIAL, ended(127, output=output))
    assert raised.value.code == "no-guest" and raised.value.exit_code == 9


def test_the_options_become_the_guests_arguments() -> None:
    assert smoketest.guest_arguments(SmokeOptions()) == ["--json", ANSWER, "--counts", "1,2"]
    options = SmokeOptions(
        counts=(1, 2, 4),
        allow_cpu=True,
        expect="gpu",
        expect_gpus=4,
        min_speedup="2:1.2",
        strict=True,
        timeout_s=10,
        min_efficiency="2:0.6",
        scaling="weak,strong",
        sync="parameters:4",
        baseline=Path("kept.json"),
        tolerance=0.05,
        workload="cifar",
        net="vgg19_bn",
        data="here",
        arguments=("--rounds", "3"),
    )
    assert smoketest.guest_arguments(options) == [
        *("--json", ANSWER, "--counts", "1,2,4", "--expect", "gpu", "--expect-gpus", "4", "--min-speedup", "2:1.2"),
        *("--min-efficiency", "2:0.6", "--scaling", "weak,strong", "--sync", "parameters:4"),
        *("--baseline", smoketest.BASELINE, "--tolerance", "0.05"),
        *("--workload", "cifar", "--net", "vgg19_bn", "--data", "/data"),
        *("--timeout", "70", "--allow-cpu", "--strict", "--rounds", "3"),
    ]


def test_a_cpu_image_never_asks_for_gpus() -> None:
    assert smoketest.gpus_to_use(replace(TRIAL, options=SmokeOptions(gpus=("0",)))) is None
    gpu = replace(TRIAL, lock=lock(cuda="9.0"))
    assert smoketest.gpus_to_use(replace(gpu, options=SmokeOptions(gpus=("0", "1")))) == ("0", "1")
    assert smoketest.gpus_to_use(replace(gpu, options=SmokeOptions(gpus=("0",), expect="cpu"))) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_outcome_is_the_same_again(name: str, tmp_path: Path) -> None:
    content = load(name)
    first = smoketest.outcome_of(content, smoketest.write_reports(tmp_path, content))
    assert stored_outcome(tmp_path) == first
    assert {path.name for path in first.paths.values()} == {"report.json", "report.html", "report.md", "junit.xml"}


def test_text_that_utf8_cannot_hold_is_still_written(tmp_path: Path) -> None:
    content = load("fail")
    content["notes"] = ["\ud800 <b>"]
    smoketest.write_reports(tmp_path, content)
    assert stored_outcome(tmp_path) is not None
