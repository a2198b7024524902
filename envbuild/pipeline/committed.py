"""The committed environments: lists them, and compares their files with the renderings of their locks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files, image_inputs, yaml_reader
from envbuild.errors import EnvbuildError, InvalidInputError, Problem
from envbuild.pipeline import evidence, proofs, rendering
from envbuild.pipeline.locking import require_lock
from envbuild.pipeline.rendering import FileDifference
from envbuild.pipeline.stored_locks import read_lock
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace, can_be_name

if TYPE_CHECKING:
    from envbuild.model.lock import Artifact

SCHEMA = 1
FILE = "environments.yaml"


def listed(workspace: Workspace) -> dict[str, str]:
    """Return the environments in ``images/environments.yaml``, in the order of the file: canonical name → reason.

    The result is empty if the workspace has no such file. Raises :class:`InvalidInputError` with all problems of the file.
    """
    path = workspace.images / FILE
    where = str(path.relative_to(workspace.root))
    problems: list[Problem] = []
    try:
        table = yaml_reader.load(files.read_bytes(path), where, problems)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInputError(f"Cannot read {where}: {error.strerror}.", hint="Restore the file.") from error
    found: dict[str, str] = {}
    if table is not None:
        table.schema(SCHEMA)
        found = table.text_map("environments")
        for name in found:
            if not can_be_name(name):
                table.problem(f"{name!r} is not the name of an environment", "environments")
        table.finish()
    yaml_reader.raise_for(problems, "The list of environments")
    return found


def names(tools: Tools) -> list[str]:
    """Return the sorted canonical names of all environments that have a folder."""
    return sorted({folder.name for folder in _folders(tools)})


def kept(tools: Tools) -> list[str]:
    """Return the names of all environments that have a folder or are listed in ``images/environments.yaml``, sorted."""
    return sorted({*names(tools), *listed(tools.workspace)})


def compiled_wheels(tools: Tools) -> dict[str, Artifact]:
    """Return all wheels with compiled code in the committed locks, by file name, sorted.

    Wheels on other indexes than the default one are left out. Raises :class:`InvalidInputError` for an unreadable lock.
    """
    paths = (tools.workspace.committed_environments / name / image_inputs.LOCK for name in names(tools))
    pinned = [
        artifact
        for path in paths
        if path.is_file()
        for prefix in read_lock(path).prefixes
        for artifact in prefix.artifacts
        if artifact.filename.endswith(".whl") and not artifact.filename.endswith("-any.whl") and artifact.index == "default"
    ]
    return {each.filename: each for each in sorted(pinned, key=lambda each: each.filename)}


def check_all(tools: Tools) -> list[FileDifference]:
    """Return all differences between committed files and the renderings of their locks, and all invalid evidence files."""
    found: list[FileDifference] = []
    for folder in _folders(tools):
        found += _check_folder(tools, folder)
    found += check_evidence(tools)
    return found


def check_one(tools: Tools, name: str) -> list[FileDifference]:
    """Return the files of the environment ``name`` that differ from the rendering of its lock. The lock must exist."""
    locked = require_lock(tools, name)
    if tools.user_recipe is not None:
        return rendering.differences(tools.workspace.rendering(name), rendering.render_text(tools, locked.lock))
    return _check_folder(tools, locked.path.parent)


def _folders(tools: Tools) -> list[Path]:
    workspace = tools.workspace
    places = dict.fromkeys((workspace.committed_environments, workspace.environments))
    return sorted(folder for place in places if place.is_dir() for folder in place.iterdir() if folder.is_dir())


def _check_folder(tools: Tools, folder: Path) -> list[FileDifference]:
    path = folder / image_inputs.LOCK
    if not path.is_file():
        return [FileDifference(kind="orphan", path=folder, note="there is no lock")]
    try:
        lock = read_lock(path)
        if lock.environment.name != folder.name:
            return [FileDifference(kind="differs", path=path, note=f"the lock is for {lock.environment.name}")]
        return rendering.differences(folder, rendering.render_text(tools, lock))
    except EnvbuildError as error:
        return [FileDifference(kind="unreadable", path=path, note=error.message)]


def check_evidence(tools: Tools) -> list[FileDifference]:
    """Return evidence files that are unreadable, belong to no environment, or contain stale proofs.

    If envbuild is an installed package, nothing is checked. The evidence in the package is about the locks in the package, and
    the user's own lock can replace such a lock.
    """
    if tools.workspace.is_packaged:
        return []
    found = []
    for path in sorted(tools.workspace.committed_evidence("x").parent.glob("*.json")):
        try:
            subject = proofs.subject_of(tools, path.stem)
            held = evidence.read(path, path.stem)
        except EnvbuildError as error:
            found.append(FileDifference(kind="unreadable", path=path, note=error.message))
            continue
        if subject is None:
            found.append(FileDifference(kind="orphan", path=path, note="the matrix has no such environment"))
        elif held != evidence.current(held, subject):
            found.append(
                FileDifference(kind="differs", path=path, note="To remove stale proofs, run: envbuild evidence --all --prune")
            )
    return found
