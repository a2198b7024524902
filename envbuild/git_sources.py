"""Fetch one commit of a git repository as one archive, for frameworks that no package index has.

Git checks every object by its hash, so a commit pins its files and its submodules. To use a local clone instead, for example
without a network, run ``git config --global url."/srv/x.git".insteadOf https://github.com/some/x``.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from envbuild import files, guard, network, procs
from envbuild.errors import BuildError
from envbuild.model.progress import OnProgress, Progress, as_news

ROOT = "source"
_EPOCH = 1577836800
# GitHub no longer serves the unencrypted protocol in the addresses of old submodules:
# https://github.blog/2021-09-01-improving-git-protocol-security-github/
_GIT = ("git", "-c", "url.https://github.com/.insteadOf=git://github.com/", "-c", "advice.detachedHead=false")
_QUIET = {"GIT_TERMINAL_PROMPT": "0"}


def archive(repository: str, revision: str, folder: Path, on_progress: OnProgress, *, sha256: str = "") -> Path:
    """Return a tar with the files of ``repository`` at ``revision`` below ``source/``. The files are fetched unless an earlier
    run has fetched them.

    The same commit always gives the same bytes. An archive of an earlier run is used only if it has the right hash. This is
    ``sha256``, the hash in the lock. If ``sha256`` is empty, the right hash is the one that was stored next to the archive when
    the archive was made. An archive with another hash is fetched again.

    Raises :class:`BuildError`. Its code is ``source-unreachable``, or ``hash-differs`` if the fetched archive does not have the
    hash in the lock.
    """
    target = archive_path(repository, revision, folder)
    with files.locked(target.with_suffix(".running"), as_news("source", on_progress)):
        if _is_whole(target, sha256):
            return target
        network.require(f"The source {repository} at {revision}")
        on_progress(Progress(stage="source", message=f"fetching {repository} at {revision}"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with guard.temporary_folder("source-", folder) as scratch:
                tree, part = scratch / "tree", scratch / "tar"
                _check_out(repository, revision, tree, on_progress)
                _pack(tree, part)
                found = files.sha256_of(part)
                if sha256 and found != sha256:
                    raise _another(repository, revision, found, sha256)
                part.rename(target)
                files.write_atomic(_note(target), f"{found}\n")
        except OSError as error:
            raise files.explain_os_error(error, target) from error
    return target


def archive_path(repository: str, revision: str, folder: Path) -> Path:
    """Return the path of the archive in ``folder``, whether or not it exists."""
    name = repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return folder / f"{name}-{hashlib.sha256(f'{repository} {revision}'.encode()).hexdigest()[:12]}.tar"


def _note(target: Path) -> Path:
    """Return the path of the file that stores the hash of a complete archive."""
    return target.with_suffix(".sha256")


def _is_whole(target: Path, sha256: str) -> bool:
    """Whether the archive exists and is unchanged. An archive without a known hash does not count as unchanged."""
    try:
        wanted = sha256 or _note(target).read_text(encoding="ascii").strip()
        return files.sha256_of(target) == wanted
    except (OSError, ValueError):
        return False


def _another(repository: str, revision: str, found: str, wanted: str) -> BuildError:
    return BuildError(
        f"The archive of {repository} at {revision} is not the expected file: sha256 {found}, not {wanted}.",
        code="hash-differs",
        hint="Look for settings of git on this machine that change files on checkout (core.autocrlf, filters); "
        "if there are none, do not trust the repository.",
    )


def _check_out(repository: str, revision: str, tree: Path, on_progress: OnProgress) -> None:
    """Check out the commit. Fetch only this commit if the server allows that, else the whole history of the repository."""

    def git(*words: str) -> bool:
        result = procs.run(
            [*_GIT, "-C", str(tree), *words],
            env=_QUIET,
            on_line=lambda line: on_progress(Progress(stage="source", message=line, log=True)),
        )
        said.append(result.output)
        return result.code == 0

    said: list[str] = []
    tree.mkdir()
    fetched = git("init", "--quiet") and (
        git("fetch", "--quiet", "--depth", "1", repository, revision)
        or git("fetch", "--quiet", "--tags", repository, "+refs/heads/*:refs/remotes/origin/*")
    )
    commit = "FETCH_HEAD" if len(said) == 2 else revision
    if not (
        fetched
        and git("checkout", "--quiet", f"{commit}^{{commit}}")
        and git("submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1")
    ):
        raise _unreachable(repository, revision, said)


def _unreachable(repository: str, revision: str, said: list[str]) -> BuildError:
    return BuildError(
        f"The source {repository} at {revision} cannot be fetched.",
        code="source-unreachable",
        hint="If this machine cannot reach the repository, use your own clone: "
        f'git config --global url."/path/of/the/clone".insteadOf {repository}',
        details=tuple("".join(said).splitlines()[-6:]),
    )


def _pack(tree: Path, target: Path) -> None:
    """Write the files of ``tree`` to the tar ``target`` with their names, contents and executable bits. All files have the same
    owner and the same time."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in _entries(tree):
            entry = tar.gettarinfo(path, f"{ROOT}/{path.relative_to(tree)}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = _EPOCH
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            if entry.isreg():
                with path.open("rb") as stream:
                    tar.addfile(entry, stream)
            else:
                tar.addfile(entry)


def _entries(tree: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if name != ".git")
        yield from (Path(parent, name) for name in sorted([*folders, *names]) if name != ".git")
