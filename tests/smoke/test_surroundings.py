"""The environment of the guest: a read-only root, and files that hide modules."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FAULTY, FEW, GUEST, NEWEST, OLDEST, Guest

QUICK = ("run", "--adapter", "numpy", "--phases", "coll,oracle", "--counts", "1")
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def read_only(*writable: str) -> tuple[str, ...]:
    """The words to put before a command so that it sees a read-only root, with these folders writable.

    This is so in a container that was started with --read-only. The guest stays visible, also if the checkout is in /tmp.
    """
    guest = shlex.quote(str(GUEST))
    steps = [
        f"exec 9<{guest}",
        "mount -o remount,bind,ro /",
        *(f"mount -t tmpfs none {folder}" for folder in {*TEMPORARY, *writable}),
        f"mkdir -p {guest}",
        # The name of the opened folder is hidden now, so mount must not look it up.
        f"mount --no-canonicalize --bind /proc/self/fd/9 {guest}",
        *(f"mount -o remount,ro {folder}" for folder in TEMPORARY if folder not in writable),
        'cd / && exec 9<&- "$@"',
    ]
    prefix = ("unshare", "--mount", "sh", "-c", " && ".join(steps), "sh")
    probe = subprocess.run([*prefix, "sh", "-c", "! touch /usr/written"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this machine lets nobody mount a file system: {probe.stderr}")
    return prefix


@pytest.mark.parametrize("version", FEW)
@pytest.mark.parametrize("verb", ["run", "probe"])
def test_without_any_folder_to_write_one_sentence_says_so(guest_of: Callable[[str], Guest], version: str, verb: str) -> None:
    guest = guest_of(version)
    words = QUICK if verb == "run" else ("probe",)
    process = guest.start(*words, prefix=read_only(), env=guest.env(HOME="/usr"))
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (2, ""), err
    assert err.startswith("envbuild-smoke: no folder for temporary files is writable (tried ") and "--tmpfs /tmp" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/mnt"])
def test_one_writable_folder_is_enough_and_the_report_may_go_to_standard_output(guest: Guest, folder: str) -> None:
    env = guest.env(HOME=folder)
    process = guest.start(*QUICK, "--json", "-", prefix=read_only(folder), env=env)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["status"] == "pass"
    assert "PASS in" in err


def small(size: str) -> tuple[str, ...]:
    """The words to put before a command so that /mnt is a file system of this size."""
    prefix = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} none /mnt && exec "$@"', "sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system")
    return prefix


def test_a_folder_that_becomes_full_is_named(guest: Guest) -> None:
    process = guest.start(*QUICK, prefix=small("100k"), env=guest.env(TMPDIR="/mnt"))
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    assert "cannot write to /mnt: No space left on device." in out
    assert "Without the files of this test, 0.1 MB of 0.1 MB are free in /mnt." in out


@pytest.mark.parametrize("version", FEW)
def test_a_folder_that_becomes_full_while_ranks_run_is_named(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str
) -> None:
    guest = guest_of(version)
    planned = ("run", "--adapter", "numpy", "--phases", "oracle", "--counts", "2")
    answer = guest.run(*planned, folder=tmp_path, prefix=small("2m"), env=guest.env(TMPDIR="/mnt"))
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    # An old NumPy removes its unfinished file; then the disk has room again.
    full = r"(the disk of the folder /mnt is (almost )?full|a file did not fit into the folder /mnt): "
    full += r"[012]\.\d MB of 2\.1 MB are free"
    assert re.search(full, answer.check("RUN", 2)["message"]), answer.out


def test_a_full_disk_that_a_rank_reports_is_named_with_its_free_space(guest: Guest, tmp_path: Path) -> None:
    planted = ("--adapter", FAULTY, "--option", "fault=full-disk", "--phases", "oracle", "--counts", "1")
    answer = guest.run("run", *planted, folder=tmp_path, env=guest.env(TMPDIR=str(tmp_path)))
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    message = answer.check("RUN", 1)["message"]
    assert f"a file did not fit into the folder {tmp_path}: " in message and "No space left on device" in message


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("module", ["random", "numpy", "tempfile"])
def test_a_file_that_hides_a_module_is_named_with_its_path(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, module: str
) -> None:
    """The user's own random.py is in the working folder, which is on PYTHONPATH."""
    guest = guest_of(version)
    hiding = tmp_path / f"{module}.py"
    hiding.write_text("mine = 1\n")
    env = guest.env()
    env["PYTHONPATH"] = f":{env['PYTHONPATH']}" if version == NEWEST else f"{tmp_path}:{env['PYTHONPATH']}"
    process = guest.start(*QUICK, env=env, cwd=tmp_path)
    out, err = process.communicate(timeout=600)
    assert process.returncode != 0, out + err
    assert f"{hiding} hides the module {module}" in err, err
    assert "Traceback" not in err


def test_a_file_that_hides_a_module_of_a_framework_is_named(guest: Guest, tmp_path: Path) -> None:
    """The guest finds it only when a rank imports the module, because the guest itself does not import it."""
    (tmp_path / "work").mkdir()
    hiding = tmp_path / "work" / "colorsys.py"
    hiding.write_text("mine = 1\n")
    env = guest.env()
    env["PYTHONPATH"] = f"{hiding.parent}:{env['PYTHONPATH']}"
    planted = ("--adapter", FAULTY, "--option", "fault=needs-colorsys", "--phases", "oracle", "--counts", "1")
    answer = guest.run("run", *planted, folder=tmp_path, env=env)
    assert (answer.code, answer.failed()) == (1, {"IMPORT"}), answer.err
    assert f"{hiding} hides the module colorsys" in answer.check("IMPORT", 1)["message"]
