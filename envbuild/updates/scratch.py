"""A scratch copy of a commit's files outside of the checkout. Its changes become a git branch in one step.

The copy has its own git index, so the user's working tree and index never change. If the process is killed before the branch is
set, only unused objects are left in the repository. git removes such objects itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild import files, guard, procs
from envbuild.errors import UsageError
from envbuild.pipeline import changed_since
from envbuild.workspace import Workspace

_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
# Switch off git settings of the user that would leave files out of the copy, or would ask another program about its files.
_PLAIN = ("-c", "core.sparseCheckout=false", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false")
_NONE = "0" * 40


@dataclass(frozen=True, kw_only=True, slots=True)
class StartCommit:
    """The commit from which an update starts. ``dirty`` says whether files of the checkout differ from its HEAD."""

    commit: str
    dirty: bool


class Scratch:
    """The scratch copy in ``folder``, with the workspace that it contains."""

    def __init__(self, workspace: Workspace, folder: Path, base: StartCommit) -> None:
        self.base = base
        self._tree, self._index = folder / "tree", folder / "index"
        self._repository = Path(_told(workspace.root, "rev-parse", "--absolute-git-dir").strip())
        self._below = _told(workspace.root, "rev-parse", "--show-prefix").strip()
        self._tree.mkdir()
        self._git("read-tree", base.commit)
        self._git("checkout-index", "--all", "--quiet")
        self._git("update-index", "--refresh", "-q", may_fail=True)
        root = self._tree / self._below
        self.workspace = replace(workspace, root=root, output=root / "images", overlays=(), user_recipe=None)

    def changed(self) -> list[str]:
        """Return the files of the copy that differ from the start commit, relative to the top of the repository, sorted."""
        status = self._git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
        return sorted(entry[3:] for entry in status.split("\0") if entry)

    def content(self, path: str) -> bytes | None:
        """Return the content of a file of the copy; None if the file was removed."""
        place = self._tree / path
        return files.read_bytes(place) if place.is_file() else None

    def content_at(self, revision: str, path: str) -> bytes | None:
        """Return the content of a file at ``revision``; None if the revision does not have the file."""
        done = self._run("cat-file", "blob", f"{revision}:{path}")
        return done.output.encode() if done.code == 0 else None

    def changed_in(self, branch: str) -> list[str]:
        """Return the files in which ``branch`` differs from the start commit, sorted."""
        told = self._git("diff", "--name-only", "--no-renames", "-z", self.base.commit, f"refs/heads/{branch}", "--")
        return sorted(filter(None, told.split("\0")))

    def tip(self, branch: str) -> str:
        """Return the commit of ``branch``; empty if there is no such branch."""
        done = self._run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
        return done.output.strip() if done.code == 0 else ""

    def parent(self, commit: str) -> str:
        """Return the first parent of ``commit``; empty if the commit has no parent."""
        done = self._run("rev-parse", "--verify", "--quiet", f"{commit}^1")
        return done.output.strip() if done.code == 0 else ""

    def commit(self, message: str) -> str:
        """Make a commit of all changes in the copy, and return its id. No branch contains this commit yet."""
        self._git("add", "--all", "--force", "--", ".")
        tree = self._git("write-tree").strip()
        signs = self._run("config", "--type=bool", "--get", "commit.gpgsign").output.strip() == "true"
        words = ["commit-tree", tree, "-p", self.base.commit, *(["-S"] if signs else []), "-F", "-"]
        return self._git(*words, input_text=message).strip()

    def point(self, branch: str, commit: str, *, before: str) -> None:
        """Set ``branch`` to ``commit``. ``before`` is the earlier commit of the branch; it is empty for a new branch.

        Raises :class:`UsageError` (``branch-moved``) if another process changed the branch in the meantime, or if git refuses
        to set the branch.
        """
        done = self._run("update-ref", "-m", "envbuild update", f"refs/heads/{branch}", commit, before or _NONE)
        if done.code:
            raise UsageError(
                f"git does not set the branch {branch}: {_last(done.output + done.errors)}.",
                code="branch-moved",
                hint="Run the command again, because another program may have changed the branch, or name another --branch.",
            )

    def _git(self, *words: str, input_text: str | None = None, may_fail: bool = False) -> str:
        done = self._run(*words, input_text=input_text)
        if done.code and not may_fail:
            raise UsageError(
                f"`git {words[0]}` failed: {_last(done.errors)}.",
                code="git-failed",
                hint="Correct what git reports, and run the command again. Nothing was changed.",
            )
        return done.output

    def _run(self, *words: str, input_text: str | None = None) -> procs.Result:
        argv = ["git", *_PLAIN, f"--git-dir={self._repository}", f"--work-tree={self._tree}", *words]
        env = {**_QUIET, "GIT_INDEX_FILE": str(self._index)}
        return procs.run(argv, env=env, cwd=self._tree, input_text=input_text, split=True)


@contextlib.contextmanager
def opened(workspace: Workspace, base: StartCommit) -> Iterator[Scratch]:
    """Provide the files of ``base``, the commit from which the update starts, in a temporary folder.

    The folder is removed at the end, or if this process is killed.
    """
    with guard.temporary_folder("envbuild-update-") as folder:
        try:
            yield Scratch(workspace, folder, base)
        except OSError as error:
            raise files.explain_os_error(error, folder) from error


def base_of(workspace: Workspace, revision: str) -> StartCommit:
    """Return the commit of ``revision``.

    Raises :class:`UsageError` (``no-checkout``, ``unsafe-checkout``, ``not-writable``, ``unknown-revision``).
    """
    commit = changed_since.commit_of(workspace, revision, "`envbuild update`")
    if workspace.is_read_only:
        raise UsageError(
            f"`envbuild update` writes a branch, and you may not write to the checkout {workspace.root}.",
            code="not-writable",
            hint="Clone the repository, and run it there.",
        )
    return StartCommit(commit=commit, dirty=bool(changed_since.changed_files(workspace, "HEAD")))


def require_branch(workspace: Workspace, branch: str) -> None:
    """Raise :class:`UsageError` if ``branch`` is no valid name or is checked out somewhere, or if git knows no author."""
    root = workspace.root
    if branch.startswith("-") or _run(root, "check-ref-format", f"refs/heads/{branch}").code:
        raise UsageError(f"{branch!r} cannot be the name of a branch.", hint="For example: --branch update-2026-11")
    trees = _told(root, "worktree", "list", "--porcelain").splitlines()
    if f"branch refs/heads/{branch}" in trees:
        raise UsageError(
            f"The branch {branch} is checked out in a working tree, which an update never touches.",
            code="branch-in-use",
            hint="Check out another branch there, or name another --branch.",
        )
    for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        done = _run(root, "var", who)
        if done.code:
            raise UsageError(
                "git knows no name and e-mail address for the commit.",
                code="no-author",
                hint="Set them: git config user.name NAME; git config user.email ADDRESS",
            )


def _run(root: Path, *words: str) -> procs.Result:
    return procs.run(["git", "-C", str(root), *words], env=_QUIET, split=True)


def _told(root: Path, *words: str) -> str:
    done = _run(root, *words)
    if done.code:
        raise UsageError(
            f"`git {words[0]}` failed in {root}: {_last(done.errors)}.",
            code="no-checkout",
            hint="To see why, run `git status` there.",
        )
    return done.output


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it gave no reason"
