"""Files are written completely or not at all."""

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
    assert caught.value.hint.startswith("Move the existing file away, or choose another folder")


@pytest.mark.parametrize(
    ("number", "cure"), [(errno.ENOSPC, "Free some space there"), (errno.EROFS, "Make the file system writable")]
)
def test_the_hint_names_the_cure_and_how_to_choose_another_folder(number, cure):
    hint = files.explain_os_error(OSError(number, "no"), Path("x.json")).hint
    assert hint.startswith(f"{cure}, or choose another folder") and "ENVBUILD_HOME" in hint


def test_where_a_command_can_continue_the_hint_says_so():
    hints = [files.explain_os_error(OSError(errno.ENOSPC, "no"), Path("x"), continues=each).hint for each in (False, True)]
    assert "No half-written file" in hints[0] and "continues" not in hints[0]
    assert "The complete files stay, and the same command continues" in hints[1] and "half-written" not in hints[1]


def full(*_arguments, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failing_write_removes_the_folders_that_it_made(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(files, "new_file", full)
        for target in (tmp_path / "new" / "deep" / "file", tmp_path / "old" / "new" / "file"):
            with pytest.raises(BuildError, match="No space left"):
                files.write_atomic(target, "x")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(BuildError):
            files.write_atomic(Path("new/file"), "x")
    assert [path.name for path in tmp_path.iterdir()] == ["old"] and not any((tmp_path / "old").iterdir())


def test_a_folder_that_cannot_be_made_leaves_none_of_its_parents(tmp_path, monkeypatch):
    make = Path.mkdir

    def last_is_full(path, *arguments, **options):
        if path.name == "deep" and path.parent.exists():
            full()
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", last_is_full)
    (tmp_path / "new").mkdir()
    with pytest.raises(BuildError):
        files.write_atomic(tmp_path / "new/x/deep/file", "x")
    assert not any((tmp_path / "new").iterdir())


def test_a_folder_in_which_another_file_was_written_stays(tmp_path):
    def fail():
        with files.made_folder(tmp_path / "new"):
            (tmp_path / "new" / "theirs").touch()
            full()

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert (tmp_path / "new" / "theirs").exists()


def test_sha256_of_a_known_content(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert files.sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_second_holder_waits_and_is_told_who_holds_it(tmp_path, monkeypatch):
    import os
    import threading

    monkeypatch.setattr(files, "QUIET_S", 0.2)
    told, order, words = threading.Event(), [], []
    path = tmp_path / "deep/lock"

    def wait(message):
        words.append(message)
        told.set()

    def second():
        with files.locked(path, wait):
            order.append("second")

    with files.locked(path, lambda message: order.append("never")):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(60)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]
    assert f"process {os.getpid()} (" in words[0]
    assert words[0].startswith("waiting for process") and words[0].endswith(f", which is using {path} (at most 6 h)")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/v/bin/python3", "/v/bin/envbuild", "save", "x", "--to", "oci:/a/b"], "envbuild save x --to oci:/a/b"),
        (
            ["/v/bin/python3", "-P", "-m", "envbuild", "publish", "--root=/c", "--to=h.example/lab/dl", "--", "x"],
            "envbuild publish --root=/c --to=h.example/lab/dl -- x",
        ),
        (["/usr/bin/rsync", "-a", "/home/me/", "/b"], "rsync -a /home/me/ /b"),
        (["envbuild", "make", *["a-long-name"] * 20], f"envbuild make{' a-long-name' * 7} …"),
        (["x" * 200], f"{'x' * 100} …"),
        ([], ""),
    ],
)
def test_the_command_of_another_process_is_told_as_it_was_given(words, told):
    assert files.described_command(words) == told


def test_a_process_that_has_waited_is_named_to_the_next_one(tmp_path, monkeypatch):
    """It has read the file before it writes its own number there."""
    import os
    import threading

    monkeypatch.setattr(files, "QUIET_S", 0.05)
    path, told = tmp_path / "lock", threading.Event()
    held: list[bytes] = []

    def second():
        with files.locked(path, lambda _message: told.set()):
            held.append(path.read_bytes())

    with files.locked(path):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(60)
        monkeypatch.setattr(files.Path, "unlink", lambda _path: None)  # so that the second one gets the same file
    other.join(60)
    assert held == [f"{os.getpid()}\n".encode()]


def test_waiting_has_a_limit(tmp_path):
    refused = pytest.raises(BuildError, match=r"in use by process .*not release it within 0 s")
    with files.locked(tmp_path / "lock"), refused as caught, files.locked(tmp_path / "lock", limit_s=0.3):
        pass
    assert caught.value.code == "busy"


@pytest.mark.parametrize("where", ["locked", "open_new", "open_to_append", "private_folder", "write_atomic"])
def test_a_link_that_somebody_placed_is_never_followed(tmp_path, where):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = tmp_path / "place"
    link.symlink_to(victim)
    if where == "locked":
        with pytest.raises(UsageError), files.locked(link):
            pass
    elif where == "open_new":
        with files.open_new(link) as stream:
            stream.write(b"ours")
        assert link.read_text() == "ours"
    elif where == "open_to_append":
        with pytest.raises(OSError, match=r"."):
            files.open_to_append(link)
    elif where == "private_folder":
        with pytest.raises(UsageError) as caught:
            files.private_folder(link)
        assert caught.value.code == "unsafe-folder"
    else:
        files.write_atomic(link, "ours")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    import os

    path = tmp_path / "place"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(UsageError, match="not a plain file"):
        files.write_atomic(path, "x")
    assert not path.is_file()


def test_a_private_folder_is_made_kept_and_refused_where_others_may_write(tmp_path):
    folder = files.private_folder(tmp_path / "a/b")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files.private_folder(folder) == folder
    folder.chmod(0o770)
    with pytest.raises(UsageError):
        files.private_folder(folder)


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "large"])
def test_only_plain_files_of_a_bounded_size_are_read(tmp_path, kind):
    import os

    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * 101)
    with pytest.raises(OSError, match=r"it is a folder|it is not a plain file|it has more than"):
        files.read_bytes(path, 100)
    if kind != "large":
        with pytest.raises(OSError, match=r"it is"):
            files.sha256_of(path)


def test_a_lock_in_an_impossible_place_is_a_usage_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError), files.locked(tmp_path / "file/lock"):
        pass
