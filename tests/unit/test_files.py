"""Files are written whole or not at all."""

import errno
from pathlib import Path

import pytest

from envbuild import files
from envbuild.errors import BuildError, UsageError


def test_writes_and_replaces(tmp_path):
    target = tmp_path / "deep" / "file.txt"
    files.write_atomic(target, "one")
    files.write_atomic(target, b"two", mode=0o600)
    assert target.read_bytes() == b"two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]


def test_a_failing_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
    target = tmp_path / "file.txt"
    files.write_atomic(target, "old")

    def no_space(self, _target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(BuildError) as caught:
        files.write_atomic(target, "new")
    assert caught.value.code == "no-space"
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_an_impossible_place_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        files.write_atomic(tmp_path / "file" / "below", "x")
    assert caught.value.code == "not-writable"
    assert "ENVBUILD_HOME" in caught.value.hint


def test_sha256_of_a_known_content(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert files.sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_second_holder_waits_and_is_told_so(tmp_path):
    import threading

    told, order = threading.Event(), []
    path = tmp_path / "deep/lock"

    def second():
        with files.locked(path, told.set):
            order.append("second")

    with files.locked(path, lambda: order.append("never")):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(10)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]


def test_a_lock_in_an_impossible_place_is_a_usage_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError), files.locked(tmp_path / "file/lock"):
        pass
