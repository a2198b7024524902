"""Several environments on one command line: the options for that, the command lines of child processes, the answers."""

from __future__ import annotations

import io
import json
from importlib import resources
from pathlib import Path
from xml.dom import minidom

import click
import jsonschema
import pytest

from envbuild import errors
from envbuild.cli import batch, batch_display, batch_summary, frame, progress_display
from envbuild.cli.batch_summary import Summary
from envbuild.cli.progress_display import Speeds, display
from envbuild.cli.session import Session
from envbuild.model.progress import Progress
from envbuild.pipeline.batch import Job, Outcome, outcome_of
from envbuild.pipeline.disk_need import DiskNeed

OPTIONS = {"every": False, "pattern": "", "revision": "", "jobs": None, "keep_going": False, "junit": None}
FAILED = errors.BuildError("The step failed.", hint="Look at it.")
STOPPED = errors.InterruptedByUserError("Stopped on request.")
MADE = {
    "schema": 1,
    "name": "good",
    "lock": "0" * 64,
    "image": "sha256:1",
    "tags": ["envbuild:good"],
    "engine": "an engine",
    "stages": [{"stage": "build", "outcome": "done", "detail": "x", "seconds": 1.0}],
    "nothing_to_do": False,
    "status": "pass",
    "reports": {"json": "/r.json"},
    "report": {"schema": "envbuild-smoke/1", "status": "pass", "environment": {"name": "good"}, "checks": [], "runs": []},
}


def outcomes() -> list[Outcome]:
    """One outcome for each state."""
    return [
        outcome_of(Job(name="good", request="good-1", also=("good-1.0",)), 0, MADE, 12.0),
        outcome_of(Job(name="same", request="same"), 0, {**MADE, "nothing_to_do": True}, 0.1),
        outcome_of(Job(name="dull", request="dull"), 10, {**MADE, "status": "inconclusive"}, 3.0),
        outcome_of(Job(name="bad", request="bad"), 7, {"schema": 1, "error": FAILED.to_json()}, 2.0),
        outcome_of(Job(name="cut", request="cut"), 130, {"schema": 1, "error": STOPPED.to_json()}, 2.0),
        Outcome(job=Job(name="late", request="late"), state="not started"),
    ]


def tell(capsys, tmp_path, found: list[Outcome], **session: bool) -> tuple[int, str, str]:
    disk = DiskNeed(downloads=1, stored=1, images=2, unknown=0)
    told = Summary(verb="make", outcomes=found, disk=disk, seconds=20.0, revision="main")
    code = batch_summary.tell(Session(**session), told, tmp_path / "junit.xml")
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("names", "options", "several"),
    [
        (("a",), {}, False),
        (("a", "a"), {}, False),
        (("a", "b"), {}, True),
        ((), {"every": True}, True),
        ((), {"pattern": "a*"}, True),
        ((), {"revision": "main"}, True),
        (("a",), {"jobs": 1}, True),
        (("a",), {"keep_going": True}, True),
        (("a",), {"junit": Path("x")}, True),
    ],
)
def test_one_name_alone_runs_as_ever(names, options, several):
    values = {**OPTIONS, **options, "driver": None}
    assert (batch.asked(names, values) is not None) == several
    assert values == {"driver": None}


def test_a_pinned_package_is_a_request_of_its_own_and_a_condition_is_not():
    """`tensorflow==1.15.0` names an environment, as `tf-1.15.0` does. `numpy<2` after a name is a condition for that
    environment.
    """
    found = batch.asked(("tensorflow==1.15.0", "pytorch-2.15-cpu"), dict(OPTIONS))
    assert found is not None
    assert found.selection.texts == ("tensorflow==1.15.0", "pytorch-2.15-cpu")
    for condition in ("numpy<2", "tensorflow>=1.15", "tensorflow==1.15,<2", "cuda!=9.0", "~=1"):
        with pytest.raises(errors.UsageError, match="is a condition"):
            batch.asked(("tf-1.12", condition), dict(OPTIONS))


def test_a_child_gets_the_options_of_the_verb_and_none_of_the_batch(monkeypatch, tmp_path):
    seen: list[list[str]] = []

    def run(session, *_others, **_more):
        seen.append(batch.command_line(session, click.get_current_context()))
        return 0

    monkeypatch.setattr(batch, "run", run)
    argv = ["--root", str(tmp_path), "make", "a", "b", "--jobs", "3", "--keep-going", "--junit", "x.xml", "--match", "z"]
    argv += ["--allow-cpu", "--counts", "1,2", "--timeout", "9", "--gpu", "GTX 1080 Ti", "-v", "-q", "--matrix", "own.yaml"]
    assert frame.run(argv) == 0
    (words,) = seen
    assert words[:7] == ["-P", "-m", "envbuild", "make", "--json", "--progress", "json"]
    assert sorted(words[7:]) == sorted(
        [
            f"--root={tmp_path}",
            f"--matrix={Path.cwd()}/own.yaml",
            "-v",
            "--allow-cpu",
            "--counts=1,2",
            "--timeout=9.0",
            "--gpu=GTX 1080 Ti",
        ]
    )


def test_the_document_agrees_with_its_published_schema(capsys, tmp_path):
    code, out, _ = tell(capsys, tmp_path, outcomes(), json=True)
    document = json.loads(out)
    schema = json.loads(resources.files("envbuild.schemas").joinpath("batch.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert code == document["exit_code"] == 130
    assert [each["state"] for each in document["environments"]] == [
        "done", "kept", "inconclusive", "failed", "interrupted", "not started",
    ]  # fmt: skip
    assert "report" not in document["environments"][0]


def test_the_summary_has_a_line_for_each_with_the_cause(capsys, tmp_path):
    code, out, err = tell(capsys, tmp_path, outcomes()[:4])
    assert code == 7
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert lines["bad"].endswith(f" {FAILED.message}")
    assert "failed (7)" in lines["bad"]
    assert "1 done, 1 kept, 1 inconclusive, 1 failed" in out
    assert "Run the same command again to continue" in err


def test_on_a_narrow_terminal_the_cause_has_lines_of_its_own():
    long = outcome_of(Job(name="bad", request="bad"), 7, {"schema": 1, "error": {"message": "one word more " * 7}}, 2.0)
    text = batch_summary.table([*outcomes()[:3], long], 60)
    head, *_, row, first, last = text.splitlines()
    assert head.split() == ["ENVIRONMENT", "RESULT", "TIME"]
    assert row.split() == ["bad", "failed", "(7)", "2.0", "s"]
    assert first.startswith("  one word") and last.startswith("  ")
    assert all(len(line) <= 60 for line in text.splitlines())
    assert batch_summary.table([long], None).splitlines()[-1].endswith("one word more one word more")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_line_of_progress_fits_into_the_terminal_with_its_figures(monkeypatch, width):
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", str(width))
    bars = progress_display.new_name_bars()
    names = ["keras-2.2.4+opencv-4.6.0.66+pytorch-0.4.1+tf-1.12.0-cuda9.0-py36-ubuntu16.04", "two-pythons-cpu"]
    for name in names:
        bars.add_task(name, total=None, figures="800.0/2000.0 MB", message="build: downloading wheels")
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(bars.get_renderable())
    lines = console.export_text().splitlines()
    assert [line.split()[1][:10] for line in lines] == ["keras-2.2.", "two-python"]
    assert all("800.0/2000.0 MB" in line and len(line) <= width for line in lines)
    assert all("build: down" in line for line in lines)


def test_junit_is_green_only_for_what_passed(capsys, tmp_path):
    tell(capsys, tmp_path, outcomes())
    suite, *others = minidom.parse(str(tmp_path / "junit.xml")).getElementsByTagName("testsuite")
    kinds = {
        case.getAttribute("name"): [child.tagName for child in case.childNodes if child.nodeType == child.ELEMENT_NODE]
        for case in suite.getElementsByTagName("testcase")
    }
    assert kinds == {
        "good": [], "same": [], "dull": ["skipped"], "bad": ["failure"], "cut": ["error"], "late": ["skipped"],
    }  # fmt: skip
    counts = {name: suite.getAttribute(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "1", "errors": "1", "skipped": "2"}
    assert [other.getAttribute("name") for other in others] == ["envbuild smoke good"] * 3


def test_a_junit_file_that_cannot_be_written_costs_neither_summary_nor_exit_code(capsys, tmp_path):
    (tmp_path / "junit.xml").mkdir()
    code, out, err = tell(capsys, tmp_path, outcomes()[:1])
    assert code == errors.UsageError.exit_code
    assert "1 done" in out
    assert "junit.xml" in err
    code, out, _ = tell(capsys, tmp_path, outcomes()[:1], json=True)
    assert json.loads(out)["exit_code"] == code == errors.UsageError.exit_code


def test_nothing_changed_is_no_failure(capsys, tmp_path):
    code, out, _ = tell(capsys, tmp_path, [])
    assert code == 0
    assert "main" in out


def test_progress_as_json_reads_back_as_it_was(capsys):
    from envbuild.pipeline import batch as runs

    step = Progress(stage="download", message="x \N{WHITE SMILING FACE}", done=1.0, total=2.0, unit="bytes")
    silent = Progress(stage="build", message="", log=True)
    warning = Progress(stage="base", message="careful", warning=True)
    with display(Session(progress="json")) as shown:
        for news in (step, silent, warning):
            shown.news(news)
        shown.line("a line")
    lines = capsys.readouterr().err.splitlines()
    assert [runs.read_event(line) for line in lines] == [step, silent, warning, "a line"]


def test_bytes_get_a_rate_and_the_time_left():
    now = [0.0]
    speeds = Speeds(lambda: now[0])

    def figures(done: float) -> str:
        return speeds.figures(Progress(stage="download", message="x", done=done, total=100e6, unit="bytes"))

    assert figures(0) == "0.0/100.0 MB"
    now[0] = 2.0
    assert figures(20e6) == "20.0/100.0 MB, 10.0 MB/s, 8 s left"
    assert figures(100e6) == "100.0/100.0 MB, 50.0 MB/s"
    assert figures(1e6) == "1.0/100.0 MB"  # the download was restarted
    now[0] = 5.0
    assert figures(4e6) == "4.0/100.0 MB, 1.0 MB/s, 96 s left"
    assert speeds.figures(Progress(stage="build", message="y", done=1, total=2, unit="steps")) == "1/2 steps"


def test_programs_get_one_json_object_a_line(capsys):
    step = Progress(stage="download", message="x.whl", done=1.0, total=2.0, unit="bytes")
    job = Job(name="one", request="one")
    with batch_display.display_batch(Session(progress="json"), 1, 0) as shown:
        shown.remark("1 to build")
        shown.started(job)
        shown.news(job, step)
        shown.line(job, "build")
        shown.ended(Outcome(job=job, state="done", seconds=1.0))
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told[0] == {"line": "1 to build"}
    assert {each["environment"] for each in told[1:]} == {"one"}
    assert [each.get("line") for each in told[1:]] == ["started", None, "build", "done after 1.0 s (1 of 1)"]
    assert told[2]["progress"]["done"] == 1.0


@pytest.mark.parametrize("kind", ["plain", "rich"])
def test_every_line_names_its_environment(kind, capsys):
    job, other = Job(name="one", request="one"), Job(name="two", request="two")
    with batch_display.display_batch(Session(progress=kind), 2, 0) as shown:
        shown.started(job)
        shown.started(other)
        shown.news(job, Progress(stage="download", message="x.whl", done=1e6, total=2e6, unit="bytes"))
        shown.news(other, Progress(stage="build", message="compiling", log=True))
        shown.news(other, Progress(stage="base", message="careful", warning=True))
        shown.line(other, "[not markup] build")
        shown.ended(Outcome(job=job, state="done", seconds=1.0))
        shown.ended(Outcome(job=other, state="failed", exit_code=7, seconds=1.0))
    err = capsys.readouterr().err
    assert "two: warning: careful" in err
    assert "two: [not markup] build" in err
    assert "one: done after 1.0 s (1 of 2)" in err
    assert "two: failed after 1.0 s (2 of 2)" in err
