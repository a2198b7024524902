"""Finds the committed environments whose images have inputs that changed since a git revision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from envbuild import procs
from envbuild.errors import InvalidInputError, UsageError
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def changed(tools: Tools, names: Sequence[str], revision: str) -> list[str]:
    """Return those of ``names`` that have a changed file: a file that is new, or that differs from its version in ``revision``.

    The files of an environment are its folder (lock and rendering), the recipes of its frameworks, and the recipes whose
    adapters these recipes use. Files that all images share count for every environment: ``images/partials``, ``images/overlay``
    and the smoke test. A changed row of the matrix counts only if it changes the lock. Raises :class:`UsageError`
    (``no-checkout``, ``unknown-revision``).
    """
    paths = changed_files(tools.workspace, revision)
    return affected(tools.workspace, names, paths, lambda name: _recipes(tools, name))


def affected(
    workspace: Workspace, names: Sequence[str], paths: Sequence[str], recipes_of: Callable[[str], set[str]]
) -> list[str]:
    """Return those of ``names`` that are affected by a change of the files ``paths``, which are relative to the root.

    ``recipes_of`` gets the name of an environment, and returns the names of the recipes that it uses.
    """
    shared = [_below(workspace, folder) for folder in (workspace.partials, workspace.overlay, workspace.guest)]
    if any(path.startswith(folder) for folder in shared if folder for path in paths):
        return list(names)
    folders = {part for path in paths if (part := _part(path, _below(workspace, workspace.environments)))}
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
    (``no-checkout``, ``unknown-revision``).
    """
    root = workspace.root
    if workspace.is_packaged or _git(root, "rev-parse", "--is-inside-work-tree") is None:
        raise UsageError(
            f"{what} works only in a git checkout of envbuild, and {root} is not one.",
            code="no-checkout",
            hint="Name the environments, or use --match."
            if what == "--changed-since"
            else "Clone the repository, and run it there.",
        )
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

    Outside of a checkout the result is ("", False).
    """
    commit = None if workspace.is_packaged else _git(workspace.root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return (commit.strip(), bool(changed_files(workspace, "HEAD"))) if commit else ("", False)


def _told(root: Path, *words: str) -> str:
    """Return the output of git. Raise if git fails: without an error, it would look as if no environment had changed."""
    output = _git(root, *words)
    if output is None:
        raise UsageError(
            f"git cannot list the changed files: `git {words[0]}` failed in {root}.",
            code="no-checkout",
            hint="Run `git status` there to see why, or name the environments.",
        )
    return output


def _git(root: Path, *words: str) -> str | None:
    """Return the output of git; None if git failed."""
    done = procs.run(["git", "-C", str(root), *words], env=_QUIET, split=True)
    return done.output if done.code == 0 else None


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
