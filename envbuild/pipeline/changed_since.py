"""Finds the committed environments whose images have inputs that changed since a git revision."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from envbuild import procs
from envbuild.errors import InvalidInputError, UsageError
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

# LC_ALL: some messages of git are compared, so git must not translate them.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def changed(tools: Tools, names: Sequence[str], revision: str) -> list[str]:
    """Return those of ``names`` that have a changed file: a file that is new, or that differs from its version in ``revision``.

    The files of an environment are its folder (lock and rendering), the recipes of its frameworks, and the recipes whose
    adapters these recipes use. Files that all images share count for every environment: ``images/partials``, ``images/overlay``
    and the smoke test. A changed row of the matrix counts only if it changes the lock. In a read-only checkout, a lock that was
    written elsewhere is a changed file, too. Raises :class:`UsageError` as :func:`commit_of` does.
    """
    workspace = tools.workspace
    paths = changed_files(workspace, revision)
    found = affected(workspace, names, paths, lambda name: _recipes(tools, name))
    if not workspace.is_read_only:
        return found
    return [name for name in names if name in found or workspace.written_lock(name).exists()]


def affected(
    workspace: Workspace, names: Sequence[str], paths: Sequence[str], recipes_of: Callable[[str], set[str]]
) -> list[str]:
    """Return those of ``names`` that are affected by a change of the files ``paths``, which are relative to the root.

    ``recipes_of`` gets the name of an environment, and returns the names of the recipes that it uses.
    """
    shared = [_below(workspace, folder) for folder in (workspace.partials, workspace.overlay, workspace.guest)]
    if any(path.startswith(folder) for folder in shared if folder for path in paths):
        return list(names)
    folders = {part for path in paths if (part := _part(path, _below(workspace, workspace.committed_environments)))}
    recipes = {part for path in paths if (part := _part(path, _below(workspace, workspace.recipes)))}
    return [name for name in names if name in folders or (recipes and recipes & recipes_of(name))]


def changed_files(workspace: Workspace, revision: str) -> list[str]:
    """Return the files below the root that differ from ``revision``, and new files that git does not track yet.

    The paths are relative to the root.
    """
    root, commit = workspace.root, commit_of(workspace, revision)
    differing = _told(root, "diff", "--name-only", "--no-renames", "--relative", "-z", commit, "--", ".")
    unknown = _told(root, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    return sorted(filter(None, f"{differing}{unknown}".split("\0")))


def commit_of(workspace: Workspace, revision: str, what: str = "--changed-since") -> str:
    """Return the id of the commit that ``revision`` names.

    Error messages name ``what``, which is the option or command that needs the commit. Raises :class:`UsageError`
    (``no-checkout``, ``unsafe-checkout``, ``unknown-revision``).
    """
    root = workspace.root
    instead = (
        "Name the environments, or use --match." if what == "--changed-since" else "Clone the repository, and run it there."
    )
    if workspace.is_installed:
        raise UsageError(
            f"{what} works only in a git checkout of envbuild, and {root} belongs to an installed package.",
            code="no-checkout",
            hint=instead,
        )
    done = _run(root, "rev-parse", "--is-inside-work-tree")
    if done.code:
        raise _unreadable(root, what, done.errors, instead)
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(
            f"git does not know the revision {revision!r}.",
            code="unknown-revision",
            hint="Name a commit, branch or tag. A shallow clone has only some commits: fetch more of the history.",
        )
    return commit.strip()


def blobs_at(workspace: Workspace, commit: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the files of ``commit`` in ``folders``: path relative to the root → id of the git blob with its content."""
    listed = _told(workspace.root, "ls-tree", "-r", "-z", commit, "--", *folders)
    found = {}
    for entry in filter(None, listed.split("\0")):
        about, _, path = entry.partition("\t")
        found[path] = about.split()[2]
    return found


def text_at(workspace: Workspace, blob: str) -> str:
    """Return the content of a git blob as text. ``blob`` is an id from :func:`blobs_at`."""
    return _told(workspace.root, "cat-file", "blob", blob)


def head(workspace: Workspace) -> tuple[str, bool]:
    """Return the current commit of the checkout, and whether files below the root differ from it.

    Outside of a checkout, and if git does not read the checkout or is not installed, the result is ("", False).
    """
    if workspace.is_installed:
        return "", False
    try:
        commit = _git(workspace.root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except UsageError as error:
        if error.code != "missing-program":
            raise
        commit = None
    return (commit.strip(), bool(changed_files(workspace, "HEAD"))) if commit else ("", False)


def refusal_to_read(workspace: Workspace, what: str) -> UsageError | None:
    """Return the error for a checkout that git does not read, such as that of another user; None if git reads it.

    If git is not installed, the code of the error is ``missing-program``. Also return None if there is no checkout. The message
    names ``what``, which needs the commit.
    """
    root = workspace.root
    if workspace.is_installed:
        return None
    try:
        done = _run(root, "rev-parse", "--is-inside-work-tree")
    except UsageError as error:
        if error.code != "missing-program":
            raise
        if not any((folder / ".git").exists() for folder in (root, *root.parents)):
            return None
        return UsageError(f"{what} needs git, and git is not installed.", code=error.code, hint="Install git.")
    if done.code == 0 or "not a git repository" in done.errors:
        return None
    return _unreadable(root, what, done.errors, "Publish from a checkout of your own.")


def _unreadable(root: Path, what: str, errors: str, instead: str) -> UsageError:
    """Return the error for a folder that git refuses to read. ``errors`` is the message of git."""
    if "dubious ownership" in errors:
        folder = errors.partition("repository at '")[2].partition("'")[0] or str(root)
        return UsageError(
            f"{what} needs git, and git does not read {folder}, because it belongs to another user.",
            code="unsafe-checkout",
            hint=f"If you trust its files, run `git config --global --add safe.directory {shlex.quote(folder)}`. Otherwise: "
            f"{instead}",
        )
    if "not a git repository" in errors:
        return UsageError(
            f"{what} works only in a git checkout of envbuild, and {root} is not one.", code="no-checkout", hint=instead
        )
    return UsageError(
        f"{what} needs git, and git cannot read {root}: {_first(errors)}.", code="no-checkout", hint=f"Correct this. {instead}"
    )


def _first(errors: str) -> str:
    """Return the first line of git's error message, without the ``fatal:`` or ``error:`` at its start."""
    line = next(iter(errors.strip().splitlines()), "it does not say why")
    return line.removeprefix("fatal: ").removeprefix("error: ").rstrip(".")


def _told(root: Path, *words: str) -> str:
    """Return the output of git. Raise if git fails: without an error, it would look as if no environment had changed."""
    done = _run(root, *words)
    if done.code:
        raise UsageError(
            f"git cannot list the changed files: `git {words[0]}` failed in {root}: {_first(done.errors)}.",
            code="no-checkout",
            hint="Run `git status` there to see more, or name the environments.",
        )
    return done.output


def _git(root: Path, *words: str) -> str | None:
    """Return the output of git; None if git failed."""
    done = _run(root, *words)
    return done.output if done.code == 0 else None


def _run(root: Path, *words: str) -> procs.Result:
    return procs.run(["git", "-C", str(root), *words], env=_QUIET, split=True)


def _below(workspace: Workspace, folder: Path) -> str:
    """Return ``folder`` relative to the root, with a slash at its end; empty if the folder is not below the root."""
    return f"{folder.relative_to(workspace.root).as_posix()}/" if folder.is_relative_to(workspace.root) else ""


def _part(path: str, folder: str) -> str:
    """Return the first component of ``path`` after ``folder``; empty if the path is not in this folder."""
    return PurePosixPath(path.removeprefix(folder)).parts[0] if folder and path.startswith(folder) else ""


def _recipes(tools: Tools, name: str) -> set[str]:
    """Return the recipes of the environment's frameworks, and the recipes whose adapters they use.

    The result is empty if there is no lock, or if the lock is damaged.
    """
    try:
        locked = read_locked(tools, name)
    except InvalidInputError:  # one damaged lock must not stop the check of the other environments
        locked = None
    own = {framework.recipe for framework in locked.lock.environment.frameworks} if locked else set()
    return own | {other for recipe in own if recipe in tools.recipes for other in tools.recipes[recipe].adapters}
