"""What an image is made from: the inputs of a build, envbuild's own programs, the user's files, and hashes over these files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from envbuild import files
from envbuild.model.progress import OnProgress, ignore_progress
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.model.custom import Custom
    from envbuild.model.lock import Artifact, Lock
    from envbuild.recipes import Recipe

LOCK = "lock.json"


class IndexLike(Protocol):
    """The methods of :class:`envbuild.index.client.Index` that a build uses."""

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ...) -> Path:
        """Return the path of the file, which has the right sha256. The file is downloaded unless an earlier run has downloaded
        it."""

    def build_secrets(self) -> dict[str, bytes]:
        """Return the secrets with which build steps reach the index. ``docs/architecture.md`` lists the secrets' names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildInputs:
    """What an image is made from: a lock, its rendering and its recipes. Further files come from ``workspace`` and ``index``.

    ``installs`` is false if no step of the rendering installs packages.
    """

    workspace: Workspace
    lock: Lock
    recipes: Mapping[str, Recipe]
    rendering: Mapping[str, str]
    index: IndexLike
    on_progress: OnProgress = ignore_progress
    installs: bool = True


def inputs_digest(workspace: Workspace, lock: Lock, recipes: Mapping[str, Recipe], rendering: Mapping[str, str]) -> str:
    """One sha256 over everything that the image is made from.

    The files of the build's tools (uv, pip) are left out, because the lock has their hashes. The bill of materials is left out,
    too, because it repeats facts of the lock in another form.
    """
    from envbuild.lock import lock_file

    whole = hashlib.sha256()
    parts = {path: text.encode() for path, text in rendering.items()}
    parts[LOCK] = lock_file.dumps(lock).encode()
    parts |= contents({**guest_files(workspace, lock, recipes), **step_files(workspace)})
    for path, content in sorted(parts.items()):
        whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    for path, source in users_files(workspace, lock.environment.custom).items():
        whole.update(f"{path}\0{files.sha256_of(source)} {mode_of(source):o}\n".encode())
    return whole.hexdigest()


def guest_digest(workspace: Workspace, lock: Lock, recipes: Mapping[str, Recipe]) -> str:
    """One sha256 over the guest in images of ``lock``: all files that :func:`guest_files` returns."""
    return _digest(contents(guest_files(workspace, lock, recipes)))


def rendering_digest(workspace: Workspace, custom: Custom | None, rendering: Mapping[str, bytes]) -> str:
    """One sha256 over the rendered files, the scripts that run build steps, and the user's files that steps copy."""
    users = {
        path: f"{files.sha256_of(source)} {mode_of(source):o}".encode()
        for path, source in users_files(workspace, custom).items()
    }
    return _digest({**rendering, **contents(step_files(workspace)), **users})


def rendered_files(folder: Path) -> dict[str, bytes]:
    """The rendered files in ``folder``: all files except the lock. The result is empty if the folder does not exist."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: files.read_bytes(path) for name, path in found.items() if name != LOCK}


def contents(sources: Mapping[str, Path]) -> dict[str, bytes]:
    """The bytes of the files: path in the context → bytes."""
    return {path: source.read_bytes() for path, source in sources.items()}


def _digest(parts: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for path, content in sorted(parts.items()):
        whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()


def guest_files(workspace: Workspace, lock: Lock, recipes: Mapping[str, Recipe]) -> dict[str, Path]:
    """envbuild's own programs that are copied into the image: path in the context → file on this machine.

    The programs are the smoke package, the adapters of the environment's recipes, the adapters that these adapters import, and
    the programs with which users add packages.
    """
    guest: dict[str, Path] = {}
    for folder, folders, names in os.walk(workspace.guest):
        folders[:] = (each for each in folders if each != "__pycache__")
        inside = Path(folder).relative_to(workspace.guest)
        paths = {(inside / name).as_posix(): Path(folder, name) for name in names if not name.startswith(".")}
        guest |= {f"envbuild/smoke/{name}": path for name, path in paths.items() if path.is_file()}
    own = [framework.recipe for framework in lock.environment.frameworks]
    borrowed = [other for recipe in own if recipe in recipes for other in recipes[recipe].adapters]
    for name in dict.fromkeys([*own, *borrowed]):
        adapter = workspace.recipes / name / "smoke.py"
        if adapter.is_file():
            guest[f"envbuild/smoke/adapters/{name}.py"] = adapter
    if any(prefix.pip for prefix in lock.prefixes):
        guest |= {f"envbuild/overlay/{path.name}": path for path in workspace.overlay.iterdir() if path.is_file()}
    return dict(sorted(guest.items()))


def step_files(workspace: Workspace) -> dict[str, Path]:
    """The scripts that run the steps of a build: path in the context → file on this machine. These scripts are not copied into
    the image."""
    return {f"step/{path.name}": path for path in sorted(workspace.partials.glob("*.sh"))}


def users_files(workspace: Workspace, custom: Custom | None) -> dict[str, Path]:
    """The files that a user's own recipe copies into the image: path in the context → file on this machine."""
    recipe = workspace.user_recipe
    if custom is None or recipe is None:
        return {}
    from envbuild.custom import copying

    return {
        f"files/{number}/{path}".rstrip("/"): source
        for number, copied in enumerate(custom.files)
        for path, source in copying.contents(recipe.parent, copied)
    }


def mode_of(source: Path) -> int:
    """The mode that a file gets in the image. Only the executable bit is kept."""
    return 0o755 if source.stat().st_mode & 0o100 else 0o644
