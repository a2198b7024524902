"""Damaged locks: every command that reads one ends with exit code 5 and one clear line.

It never prints a traceback and never waits.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli import frame

ROOT = Path(__file__).parents[3]
NAME = "tf-2.21.0-cpu-py311-debian12"
VERBS = (
    ("show",),
    ("resolve",),
    ("render",),
    ("build",),
    ("verify",),
    ("smoke",),
    ("fetch",),
    ("sbom",),
    ("audit",),
    ("lock", "--check"),
    ("lock",),
    ("lock", "--upgrade", "--dry-run"),
    ("make",),
)
WHOLE = (ROOT / "images/environments" / NAME / "lock.json").read_text()

pytestmark = pytest.mark.timeout(120)


def changed(change: Callable[[Any], object]) -> bytes:
    """The lock with one change."""
    lock = copy.deepcopy(json.loads(WHOLE))
    change(lock)
    return json.dumps(lock).encode()


def artifact(**values: Any) -> bytes:
    return changed(lambda lock: lock["prefixes"][0]["artifacts"][0].update(values))


def spliced(old: str, new: str) -> bytes:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1).encode()


def at(path: str, value: Any) -> bytes:
    """The lock with ``value`` at a path such as ``environment.python.version``."""

    def put(lock: Any) -> None:
        *folders, last = path.split(".")
        for key in folders:
            lock = lock[int(key) if key.isdigit() else key]
        lock[last] = value

    return changed(put)


DAMAGES: dict[str, bytes] = {
    "empty": b"",
    "half of it": WHOLE.encode()[: len(WHOLE) // 2],
    "without its end": WHOLE.rstrip().encode()[:-1],
    "one byte": b"{",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"lock"',
    "a number": b"7",
    "true": b"true",
    "no keys": b"{}",
    "not JSON": b"lock: yes\n",
    "merge conflict": b"<<<<<<< HEAD\n" + WHOLE.encode(),
    "two documents": WHOLE.encode() * 2,
    "NUL before": b"\0" + WHOLE.encode(),
    "all NUL": b"\0" * 4096,
    "BOM": b"\xef\xbb\xbf" + WHOLE.encode(),
    "UTF-16": WHOLE.encode("utf-16"),
    "Latin-1": WHOLE.encode().replace(b"debian", b"d\xe9bian", 1),
    "half a surrogate": spliced('"debian12"', '"debian\\ud800"'),
    "NaN": spliced('"size": ', '"size": NaN, "was": '),
    "Infinity": spliced('"size": ', '"size": Infinity, "was": '),
    "1e999": spliced('"size": ', '"size": 1e999, "was": '),
    "5000 digits": spliced('"size": ', '"size": ' + "9" * 5000 + ', "was": '),
    "a key twice": spliced('"environment": {', '"environment": 1, "environment": {'),
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep in a field": at("missing", json.loads("[" * 500 + "]" * 500)),
    "unknown key": changed(lambda lock: lock.update(schema=99)),
    "missing key": changed(lambda lock: lock.pop("base")),
    "prefixes a text": at("prefixes", "env"),
    "environment a list": at("environment", []),
    "python a number": at("environment.python.version", 3.11),
    "python a word": at("environment.python.version", "three"),
    "python of 5000 digits": at("environment.python.version", "3." + "1" * 5000),
    "python in other digits": at("environment.python.version", "\u0663.\u0661\u0661"),
    "glibc a word": at("environment.system.glibc", "new"),
    "name of another": at("environment.name", "../../etc/passwd"),
    "name with a line feed": at("environment.name", "a\nb"),
    "name empty": at("environment.name", ""),
    "prefix upward": at("prefixes.0.name", "../../x"),
    "file upward": artifact(filename="../../../etc/cron.d/x-1.0-py3-none-any.whl"),
    "file absolute": artifact(filename="/etc/passwd"),
    "file with a line feed": artifact(filename="x-1.0-py3-none-any.whl\nRUN id"),
    "file with a command": artifact(filename="x-1.0-$(id)-py3-none-any.whl"),
    "file with NUL": artifact(filename="x-1.0\0-py3-none-any.whl"),
    "file of 5000 letters": artifact(filename="x" * 5000 + "-1.0-py3-none-any.whl"),
    "file empty": artifact(filename=""),
    "file dots": artifact(filename=".."),
    "version with a command": artifact(version="1.0;id"),
    "version of 5000 digits": artifact(version="1" * 5000),
    "name with a space": artifact(name="a b"),
    "project upward": artifact(project="../x"),
    "hash short": artifact(sha256="abc"),
    "hash in capitals": artifact(sha256="A" * 64),
    "hash a number": artifact(sha256=1),
    "size a text": artifact(size="12"),
    "size negative": artifact(size=-1),
    "size true": artifact(size=True),
    "size a fraction": artifact(size=1.5),
    "size huge": artifact(size=10**400),
    "escape sequence": at("environment.python.version", "\x1b]0;owned\x07\x1b[31m3.11"),
    "100000 problems": changed(lambda lock: lock.update({f"k{number}": 1 for number in range(100_000)})),
}


def broken_folder(path: Path) -> None:
    path.mkdir()


def broken_pipe(path: Path) -> None:
    os.mkfifo(path)


def broken_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def broken_loop(path: Path) -> None:
    path.symlink_to(path.name)


def broken_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def broken_large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(3 * 2**30)


KINDS = (broken_folder, broken_pipe, broken_zero, broken_loop, broken_dangling, broken_large)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A workspace with the real facts and recipes, and with a folder for a damaged lock."""
    folder = tmp_path_factory.mktemp("root")
    shutil.copy(ROOT / "matrix.yaml", folder)
    for name in ("matrix", "images/partials", "images/recipes", "images/services", "images/stacks"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "images/environments" / NAME).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def lock(root, home, monkeypatch):
    monkeypatch.setenv("ENVBUILD_ROOT", str(root))
    monkeypatch.setenv("ENVBUILD_HOME", str(home))
    path = root / "images/environments" / NAME / "lock.json"
    yield path
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def refuses(capsys, *words: str) -> str:
    """Run a command on the damaged lock: exit code 5, one error, no traceback, no control sequences. Returns the error."""
    code = frame.run([*words, NAME])
    out, err = capsys.readouterr()
    assert "Traceback" not in err + out
    assert code == 5, f"exit {code}: {err[-2000:]}"
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1, err
    assert "lock" in err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out + err)
    assert len(err) < 20_000, "one clear line, not the whole lock"
    return err


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_verb_refuses_a_damaged_lock(lock, capsys, damage):
    lock.write_bytes(DAMAGES[damage])
    for verb in VERBS:
        refuses(capsys, *verb)
    assert lock.read_bytes() == DAMAGES[damage], "nothing replaces it unasked"


@pytest.mark.parametrize("place", KINDS, ids=lambda place: place.__name__.removeprefix("broken_"))
def test_every_verb_refuses_what_is_no_file(lock, capsys, place):
    place(lock)
    for verb in VERBS:
        refuses(capsys, *verb)


def test_the_hint_names_the_command_that_makes_it_again(lock, capsys):
    lock.write_bytes(b"{")
    assert f"envbuild lock {NAME} --relock" in refuses(capsys, "lock")


@pytest.mark.parametrize("seed", range(20))
def test_a_lock_with_a_few_bytes_changed_is_refused_or_read(lock, capsys, seed):
    """Bytes that a bad disk or a bad merge has changed. The answer is either a normal one or the error for a damaged lock."""
    import random

    chance = random.Random(seed)
    content = bytearray(WHOLE.encode())
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(content))
        content[place : place + chance.choice((0, 1, 1, 40))] = bytes(
            chance.randrange(256) for _ in range(chance.choice((1, 1, 3)))
        )
    lock.write_bytes(content)
    for verb in (("show",), ("render",), ("sbom",), ("lock", "--check")):
        code = frame.run([*verb, NAME])
        err = capsys.readouterr().err
        assert code in (0, 5), (verb, code, err)
        assert "bug" not in err


@pytest.mark.parametrize(
    "answer", ['{"result": {"paths": ["a"]}}', '{"result": {"paths": {"json": 5}}}', '{"result": 5}', "[", "5"]
)
def test_a_damaged_note_of_an_earlier_run_counts_as_none(lock, home, capsys, answer):
    lock.write_text(WHOLE)
    note = home / "stages" / NAME / "smoke.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(answer)
    assert frame.run(["show", NAME]) == 0
    assert frame.run(["report", NAME]) == 5
    assert "no smoke report" in capsys.readouterr().err
    note.unlink()


def test_render_all_check_names_the_damaged_one_and_goes_on(lock, capsys):
    lock.write_bytes(b"{")
    assert frame.run(["render", "--all", "--check"]) == 5
    assert str(lock) in capsys.readouterr().err
