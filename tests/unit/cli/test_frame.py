"""The frame of the command line: errors, JSON output, exit codes, signals, progress. No command does real work here."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterator

import click
import pytest

from envbuild import errors
from envbuild.cli import frame, progress_display
from envbuild.cli.session import Session, describe
from envbuild.model.progress import Progress


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException | int]]:
    """A command ``try`` that raises or returns the value that the test puts into the list."""
    ending: list[BaseException | int] = []

    @click.command("try")
    def command() -> int:
        end = ending[0]
        if isinstance(end, BaseException):
            raise end
        return end

    known = frame.Verbs.get_command
    monkeypatch.setitem(frame.VERBS, "try", ("try", "For the test."))
    monkeypatch.setattr(
        frame.Verbs, "get_command", lambda self, ctx, name: command if name == "try" else known(self, ctx, name)
    )
    yield ending


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = frame.run(argv)
    out, err = capsys.readouterr()
    return code, out, err


def expected_errors() -> list[type[errors.EnvbuildError]]:
    return sorted(errors.EnvbuildError.__subclasses__(), key=lambda kind: kind.exit_code)


@pytest.mark.parametrize("kind", expected_errors(), ids=lambda kind: kind.__name__)
def test_every_expected_error_is_one_block_and_its_own_exit_code(kind, verb, capsys):
    verb.append(kind("Something happened there.", hint="Do this next."))
    code, out, err = run(capsys, "try")
    assert code == kind.exit_code
    assert out == ""
    assert err.splitlines()[0].endswith(": Something happened there.")
    assert err.splitlines()[-1] == "hint: Do this next."
    assert "Traceback" not in err


def test_json_answers_an_error_with_the_refusal_object(verb, capsys):
    conflict = errors.Conflict(row="a 1", reason="not with b", source="pkg:pypi/a@1")
    other = errors.Alternative(name="a-2", changes="the version")
    verb.append(errors.ConflictError("No.", conflicts=[conflict], alternatives=[other], hint="Take a-2."))
    code, out, _ = run(capsys, "--json", "try")
    answer = json.loads(out)
    assert code == 3
    assert answer["schema"] == 1
    assert answer["error"]["code"] == "conflict"
    assert answer["error"]["conflicts"] == [{"row": "a 1", "reason": "not with b", "source": "pkg:pypi/a@1", "overlaid": ""}]
    assert answer["error"]["alternatives"] == [{"name": "a-2", "changes": "the version"}]


def test_a_block_names_conflicts_with_their_sources_and_what_would_work():
    text = describe(
        errors.ConflictError(
            "No combination.",
            conflicts=[errors.Conflict(row="cuda 9.0", reason="needs driver 384.81", source="https://docs.example/x")],
            alternatives=[errors.Alternative(name="a-1-cuda8", changes="CUDA 8.0")],
            problems=[errors.Problem(where="f.yaml", line=3, message="unknown key")],
        )
    )
    assert "  - cuda 9.0: needs driver 384.81 [https://docs.example/x]" in text
    assert "  - f.yaml:3: unknown key" in text
    assert "  a-1-cuda8  CUDA 8.0" in text


def test_a_bug_is_one_line_without_and_a_traceback_with_verbose(verb, capsys):
    verb.append(ZeroDivisionError("division by zero"))
    code, _, err = run(capsys, "try")
    assert code == 1
    assert "Traceback" not in err
    assert "ZeroDivisionError" in err
    code, _, err = run(capsys, "-v", "try")
    assert code == 1
    assert "Traceback" in err


def test_a_bug_still_answers_one_document_with_json(verb, capsys):
    verb.append(RuntimeError("x"))
    code, out, _ = run(capsys, "--json", "try")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "bug"


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 7), (errno.EROFS, 2), (errno.EACCES, 2), (errno.ENOENT, 1)])
def test_a_full_or_forbidden_disk_is_no_bug_of_ours(number, code, verb, capsys):
    verb.append(OSError(number, os.strerror(number), "/some/place"))
    got, _, err = run(capsys, "try")
    assert got == code
    assert "/some/place" in err
    assert ("bug" in err) == (code == 1)


def test_a_name_too_long_for_a_file_is_no_bug_of_ours(verb, capsys):
    verb.append(OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "a" * 300))
    code, _, err = run(capsys, "try")
    assert code == 2
    assert "too long" in err


@pytest.mark.parametrize("text", ["a" * 260, f"tf-{'1' * 300}", "a" * 5000, "\u00e9" * 150])
def test_a_request_of_any_length_is_refused_as_a_request(text, capsys):
    code, _, err = run(capsys, "resolve", text)
    assert code in (2, 4)
    assert "bug" not in err


def test_interruption_is_130(verb, capsys):
    verb.append(KeyboardInterrupt())
    code, _, err = run(capsys, "try")
    assert code == 130
    assert err.startswith("interrupted: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_unwind_once_and_handlers_come_back(number, verb, capsys):
    before = signal.getsignal(number)

    class Cleaned(Exception):
        pass

    def command() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)  # a second signal must not interrupt the clean-up
            sys.stderr.write("cleaned\n")

    with pytest.raises(KeyboardInterrupt), frame.signals_as_interrupts():
        command()
    assert "cleaned" in capsys.readouterr().err
    signal.signal(number, before)


def test_the_verbs_answer_is_the_exit_code(verb, capsys):
    verb.append(10)
    assert run(capsys, "try")[0] == 10


@pytest.mark.parametrize(
    ("argv", "code", "message", "hint"),
    [
        (["lisst"], "unknown-command", "envbuild has no command 'lisst'.", "envbuild list"),
        (["abc-1.2-cpu"], "unknown-command", "envbuild has no command 'abc-1.2-cpu'.", "envbuild make abc-1.2-cpu"),
        (["list", "--jsn"], "unknown-option", "no option --jsn", "--json"),
        (["show"], "missing-argument", "envbuild show needs", "envbuild show --help"),
        (["bake", "x"], "missing-option", "envbuild bake needs --to HOST/REPOSITORY.", "The repository to which"),
        (["--progress", "loud", "list"], "usage", "'loud'", "--help"),
        (["make", "alpha-1", "numpy<2"], "usage", "numpy<2", "in quotes"),
    ],
)
def test_usage_errors_have_our_form(argv, code, message, hint, capsys):
    exit_code, out, err = run(capsys, *argv, "--json")
    assert exit_code == 2
    error = json.loads(out)["error"]
    assert error["code"] == code
    assert message in error["message"]
    assert hint in error["hint"]
    assert err.startswith("error: ")


@pytest.mark.parametrize("words", ["nonsense", "ok,nonsense"])
def test_a_status_that_there_is_not_is_refused_with_those_that_there_are(words, capsys):
    code, _, err = run(capsys, "list", "--status", words)
    assert code == 2
    assert "unserved" in err


def test_a_list_says_what_it_could_not_check(capsys):
    code, out, err = run(capsys, "list", "--gpu", "sm_99", "--status", "ok,unknown", "--json")
    assert code == 0
    assert "the matrix has no architecture of compute capability 9.9" in json.loads(out)["warnings"][0]
    assert "warning: GPU sm_99" in err


def test_a_list_for_a_gpu_that_the_matrix_lacks_is_refused(capsys):
    code, out, err = run(capsys, "list", "--gpu", "Banana", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (4, "unknown-gpu")
    assert err.startswith("error: The matrix has no GPU 'Banana'")


def test_every_verb_has_help_and_takes_the_common_options(capsys):
    for name in frame.VERBS:
        code, out, err = run(capsys, name, "--help")
        assert (code, err) == (0, "")
        assert name in out
        command = frame.app.get_command(click.Context(frame.app), name)
        assert command is not None
        for each in command.commands.values() if isinstance(command, click.Group) else [command]:
            flags = {flag for param in each.params for flag in param.opts}
            assert {"--json", "-v", "-q", "--progress", "--root"} <= flags, each.name


def test_a_reader_that_left_is_no_error(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    Session().out("text")


def test_json_silences_text_and_quiet_silences_remarks(capsys):
    session = Session(json=True, quiet=True)
    session.out("text")
    session.err("remark")
    session.document({"a": 1})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": 1}
    assert err == ""


def test_plain_progress_is_lines_and_does_not_repeat_itself(capsys):
    with progress_display.display(Session(progress="plain")) as shown:
        for done in range(100):
            shown.news(Progress(stage="lock", message="fetching", done=done * 1e6, total=100e6, unit="bytes"))
        shown.news(Progress(stage="lock", message="fetching", done=100e6, total=100e6, unit="bytes"))
        shown.news(Progress(stage="build", message="hello", log=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["[lock] fetching  0.0/100.0 MB", "[lock] fetching  100.0/100.0 MB"]


def test_plain_progress_shows_build_output_with_verbose(capsys):
    with progress_display.display(Session(progress="plain", verbose=1)) as shown:
        shown.news(Progress(stage="build", message="Step 1", log=True))
    assert capsys.readouterr().err == "[build] | Step 1\n"


@pytest.mark.parametrize("kind", ["plain", "none", "rich"])
def test_a_warning_of_a_stage_is_always_shown(kind, capsys):
    with progress_display.display(Session(progress=kind)) as shown:
        shown.news(Progress(stage="lock", message="it differs", warning=True))
    assert capsys.readouterr().err == "warning: it differs\n"


def test_no_progress_when_quiet(capsys):
    with progress_display.display(Session(progress="plain", quiet=True)) as shown:
        shown.news(Progress(stage="lock", message="x"))
        shown.line("y")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("news", "text"),
    [
        (Progress(stage="s", message="m"), ""),
        (Progress(stage="s", message="m", done=3, total=7, unit="layers"), "3/7 layers"),
        (Progress(stage="s", message="m", done=1_500_000, unit="bytes"), "1.5 MB"),
        (Progress(stage="s", message="m", done=4, unit="files"), "4 files"),
    ],
)
def test_amounts_are_in_the_units_a_person_reads(news, text):
    assert progress_display.amount(news) == text


@pytest.mark.parametrize(("more", "named"), [(["--no-cache"], "--no-cache"), (["--builder", "docker"], "--builder docker")])
def test_an_image_that_goes_to_a_place_is_one_that_is_composed(capsys, more, named):
    exit_code, _, err = run(capsys, "build", "a-1-cpu", *more, "--to", "oci:folder")
    assert exit_code == 2
    assert f"--to cannot be combined with {named}" in err


@pytest.mark.parametrize("place", ["oci:folder", "docker-archive:file"])
@pytest.mark.parametrize("more", [["b-1-cpu"], ["--jobs", "2"]])
def test_several_images_do_not_go_to_a_place_for_one(capsys, place, more):
    exit_code, _, err = run(capsys, "build", "a-1-cpu", *more, "--to", place)
    assert exit_code == 2
    assert f"{place} takes one image, so it needs one NAME" in err
