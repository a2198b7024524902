"""Source repositories, fetched by the real git from local repositories without a network."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest

from envbuild import git_sources
from envbuild.errors import BuildError
from envbuild.model.progress import ignore_progress

ADDRESS = "https://git.example.invalid/toys/alpha"


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local clone that git uses instead of the public address."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "link").symlink_to("tool.sh")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "v1")
    (folder / "later").write_text("not in v1\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "two")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{folder}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", ADDRESS)
    return folder


@pytest.mark.parametrize("by", ["commit", "tag"])
def test_a_revision_is_archived_without_anything_of_this_machine(clone: Path, tmp_path: Path, by: str) -> None:
    revision = git(clone, "rev-parse", "v1") if by == "commit" else "v1"
    first = git_sources.archive(ADDRESS, revision, tmp_path / "one", ignore_progress)
    second = git_sources.archive(ADDRESS, revision, tmp_path / "two", ignore_progress)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert list(members) == ["source/link", "source/tool.sh"]
    assert members["source/tool.sh"].mode == 0o755
    assert {(member.uid, member.uname, member.mtime) for member in members.values()} == {(0, "", 1577836800)}


def test_what_was_fetched_once_needs_no_repository_again(clone: Path, tmp_path: Path) -> None:
    first = git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress)
    clone.rename(clone.with_name("gone"))
    assert git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress) == first


@pytest.mark.parametrize("pinned", [True, False])
def test_an_archive_that_changed_in_the_cache_is_fetched_again(clone: Path, tmp_path: Path, pinned: bool) -> None:
    first = git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress)
    whole = first.read_bytes()
    wanted = hashlib.sha256(whole).hexdigest() if pinned else ""
    first.write_bytes(whole.replace(b"#!/bin/sh", b"#!/bin/no"))
    again = git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress, sha256=wanted)
    assert (again, again.read_bytes()) == (first, whole)


def test_an_archive_of_which_no_hash_is_known_is_fetched_again(clone: Path, tmp_path: Path) -> None:
    """An older envbuild wrote no hash, or a run was killed after it wrote the archive and before it wrote the hash."""
    first = git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress)
    whole = first.read_bytes()
    first.with_suffix(".sha256").unlink()
    first.write_bytes(b"anything")
    assert git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress).read_bytes() == whole


def test_what_a_repository_gives_must_be_what_the_lock_pins(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        git_sources.archive(ADDRESS, "v1", tmp_path / "cache", ignore_progress, sha256="0" * 64)
    assert caught.value.code == "hash-differs"
    assert not [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".running"]


def test_a_source_out_of_reach_says_how_to_give_one_s_own(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        git_sources.archive(ADDRESS, "f" * 40, tmp_path / "cache", ignore_progress)
    assert caught.value.code == "source-unreachable"
    assert "insteadOf" in caught.value.hint
    assert not [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".running"]
