"""Faults of the machine: no home folder, a removed working folder, a cache of another user, a stopped engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild import workspace
from envbuild.cli import frame
from envbuild.errors import UsageError

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ENVBUILD_ROOT", str(ROOT))


def ends(capsys, code: int, *words: str) -> str:
    assert frame.run(words) == code
    err = capsys.readouterr().err
    assert err.startswith("error: "), err
    assert "bug" not in err
    assert "hint: " in err
    return err


def test_a_user_without_an_entry_and_without_home(monkeypatch, capsys):
    for name in ("ENVBUILD_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert "ENVBUILD_HOME" in ends(capsys, 2, "list")


@pytest.mark.parametrize(
    "words", [("list",), ("show", "tf-2.21-cpu"), ("init", "x", "--framework", "tf-2.21-cpu"), ("doctor",)]
)
def test_a_working_folder_that_was_deleted(tmp_path, monkeypatch, capsys, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    before = Path.cwd()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert "working folder" in ends(capsys, 2, *words)
    finally:
        os.chdir(before)


def test_a_cache_that_everybody_may_write_to_is_refused(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(UsageError, match="every user") as caught:
        workspace.find()
    assert caught.value.code == "unsafe-home"


def stranger(monkeypatch, home: Path, *, shared: bool) -> None:
    """Make ``home`` look as if another user had made it, in a folder where everybody can make folders."""
    real = Path.stat

    def stat(path, **options):
        found = real(path, **options)
        values = list(found)
        if path == home:
            values[4] = 54321
        elif path == home.parent and shared:
            values[0] |= 0o1777
        return os.stat_result(values)

    monkeypatch.setattr(Path, "stat", stat)


@pytest.mark.parametrize("shared", [True, False])
def test_a_cache_of_another_user_is_refused_where_anybody_could_have_made_it(tmp_path, monkeypatch, shared):
    home = tmp_path / "home"
    home.mkdir()
    stranger(monkeypatch, home, shared=shared)
    monkeypatch.delenv("SUDO_UID", raising=False)
    if not shared:
        workspace.find()
        return
    with pytest.raises(UsageError, match="another user"):
        workspace.find()
    monkeypatch.setenv("SUDO_UID", "54321")
    workspace.find()


@pytest.mark.parametrize("kind", ["ConnectionError", "ReadTimeout", "ChunkedEncodingError"])
def test_an_engine_that_ends_midway_is_no_bug(monkeypatch, capsys, kind):
    import requests

    def gone(*_args, **_more):
        raise getattr(requests.exceptions, kind)("Connection aborted.")

    monkeypatch.setattr("envbuild.pipeline.resolving.resolve_request", gone)
    assert "engine" in ends(capsys, 6, "show", "tf-2.21-cpu")


def test_an_engine_whose_stream_breaks_off_is_no_bug(monkeypatch, capsys):
    from docker.errors import APIError
    from urllib3.exceptions import ProtocolError

    for error in (APIError("server error"), ProtocolError("Connection broken")):

        def gone(*_args, error=error, **_more):
            raise error

        monkeypatch.setattr("envbuild.pipeline.resolving.resolve_request", gone)
        assert "engine" in ends(capsys, 6, "show", "tf-2.21-cpu")
