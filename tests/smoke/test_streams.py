"""Output that cannot be written: a closed stream, a full disk, a reader that ends early."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FEW, Guest

QUICK = ("run", "--adapter", "numpy", "--phases", "coll", "--counts", "1")
OUT, ERR = ("envbuild-smoke: cannot write to standard " + name for name in ("output", "error"))


def shell(guest: Guest, redirection: str, *words: str | Path) -> tuple[int, str, str]:
    """Run the guest in a shell; return its exit code and what the shell's standard output and standard error got."""
    script = f'exec 3>&1; {{ "$@" 3>&-; echo $? >&3; }} {redirection}'
    command = ["sh", "-c", script, "sh", guest.executable, str(guest.guest), *map(str, words)]
    done = subprocess.run(command, env=guest.env(), capture_output=True, text=True, check=False, timeout=600)
    *lines, code = done.stdout.splitlines()
    return int(code), "\n".join(lines), done.stderr


@pytest.mark.parametrize("version", FEW)
@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [
        (">&-", 2, f"{OUT}: it is closed"),
        (">/dev/full", 2, f"{OUT}: No space left on device"),
        ("2>&-", 0, f"{ERR}: it is closed"),
        ("2>/dev/full", 0, f"{ERR}: No space left on device"),
        (">&- 2>&-", 2, ""),
    ],
)
def test_a_stream_that_cannot_be_written_is_named_on_the_other_one(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, redirection: str, code: int, words: str
) -> None:
    guest, target = guest_of(version), tmp_path / "report.json"
    got, out, err = shell(guest, redirection, *QUICK, "--json", target)
    assert (got, words in out + err) == (code, True), out + err
    assert "Traceback" not in out + err
    assert json.loads(target.read_text())["status"] == "pass"


@pytest.mark.parametrize("words", [(*QUICK, "--json", "/dev/stdout"), ("explain",), ("--help",)])
def test_a_reader_that_ends_early_is_no_error(guest: Guest, words: tuple[str, ...]) -> None:
    code, _out, err = shell(guest, "| head -1", *words)
    assert code == 0, err
    assert [line for line in err.splitlines() if not line.startswith("[")] == []


def test_progress_that_nobody_reads_does_not_stop_the_run(guest: Guest, tmp_path: Path) -> None:
    code, out, _err = shell(guest, "2>&1 | head -1", *QUICK, "--json", tmp_path / "report.json")
    assert (code, "Traceback" in out) == (0, False)
    assert json.loads((tmp_path / "report.json").read_text())["status"] == "pass"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_refusal_that_standard_error_loses_is_on_standard_output(guest: Guest, redirection: str) -> None:
    code, out, _err = shell(guest, redirection, "run", "--adapter", "nonesuch")
    assert code == 2
    assert ERR in out and "nonesuch" in out


def test_a_json_document_on_standard_output_stays_valid_without_standard_error(guest: Guest) -> None:
    code, out, _err = shell(guest, "2>&-", *QUICK, "--json", "-")
    assert (code, json.loads(out)["status"]) == (0, "pass")


def test_a_json_document_for_a_closed_standard_output_is_refused_at_once(guest: Guest) -> None:
    code, _out, err = shell(guest, ">&-", *QUICK, "--json", "-")
    assert (code, err.splitlines()[-1]) == (2, "envbuild-smoke: error: --json -: standard output is closed")


def test_a_report_for_a_full_disk_is_named_and_the_table_is_printed(guest: Guest) -> None:
    code, out, err = shell(guest, "", *QUICK, "--json", "/dev/full")
    assert (code, "PASS in" in out, "Traceback" in err) == (2, True, False)
    assert "envbuild-smoke: cannot write the report to /dev/full: No space left on device" in err.splitlines()
