"""The source of a framework that is on no package index: one commit of its repository, as one archive, fetched by git.

Git checks every object by its hash, so that a commit pins its files and those of its submodules. A copy of one's own serves
in git's own words, also without a network: ``git config --global url."/srv/x.git".insteadOf https://github.com/some/x``.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envbuild import files, procs
from envbuild.errors import BuildError
from envbuild.model import OnProgress, Progress

ROOT = "source"
_EPOCH = 1577836800
# GitHub ended the unencrypted protocol that old submodules name: https://github.blog/2021-09-01-improving-git-protocol-security-github/
_GIT = ("git", "-c", "url.https://github.com/.insteadOf=git://github.com/", "-c", "advice.detachedHead=false")
_QUIET = {"GIT_TERMINAL_PROMPT": "0"}


def archive(repository: str, revision: str, folder: Path, on_progress: OnProgress) -> Path:
    """A tar of the files of ``repository`` at ``revision``, below ``source/``: fetched now or by an earlier run.

    The same commit makes the same bytes. Raises :class:`BuildError` (``source-unreachable``).
    """
    name = repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    target = folder / f"{name}-{hashlib.sha256(f'{repository} {revision}'.encode()).hexdigest()[:12]}.tar"
    with files.locked(target.with_suffix(".running")):
        if target.exists():
            return target
        on_progress(Progress(stage="source", message=f"fetching {repository} at {revision}"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="source-", dir=folder) as scratch:
                tree, part = Path(scratch, "tree"), Path(scratch, "tar")
                _check_out(repository, revision, tree, on_progress)
                _pack(tree, part)
                part.rename(target)
        except OSError as error:
            raise files.explain_os_error(error, target) from error
    return target


def _check_out(repository: str, revision: str, tree: Path, on_progress: OnProgress) -> None:
    """The one commit where the server gives single ones out, else everything that leads to it."""

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
        hint="Where there is no way to it, give a clone of your own: "
        f'git config --global url."/path/of/the/clone".insteadOf {repository}',
        details=tuple("".join(said).splitlines()[-6:]),
    )


def _pack(tree: Path, target: Path) -> None:
    """Names, contents and whether a file may be run; no owner and no time of this machine."""
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
