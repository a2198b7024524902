"""Compares the files from which images are made with the same files at a git revision, by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from envbuild import files, image_inputs, yaml_reader
from envbuild.errors import EnvbuildError, Problem
from envbuild.pipeline import changed_since
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.model.lock import Lock

Input = Literal["new", "lock", "base", "recipe", "partials", "services", "render", "guest", "overlay", "unfinished"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedInput:
    """An input of the image that changed, and the files of the checkout that differ.

    ``new``: the environment did not exist before. ``lock``: packages are pinned differently. ``base``: the base image is
    another one. ``recipe``, ``partials``, ``services``: files in the folder of this name differ. ``guest``: the smoke test
    differs. ``overlay``: the programs with which users add packages differ. ``render``: the rendering differs, although its
    sources are the same. In this case, another version of envbuild wrote the rendering. ``unfinished``: no input changed, but
    the publication of the image is not complete. ``lacks`` then names what the image lacks, in words for people.
    """

    input: Input
    files: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class Revision:
    """The files from which images are made, as they are in one commit."""

    def __init__(self, tools: Tools, revision: str) -> None:
        """List the files at ``revision``. Raises :class:`UsageError` (``no-checkout``, ``unknown-revision``)."""
        self._tools = tools
        workspace = tools.workspace
        self.commit = changed_since.commit_of(workspace, revision)
        self._root = workspace.root
        self._paths: dict[Path, str] = {}
        places: dict[Input, Path] = {
            "guest": workspace.guest, "overlay": workspace.overlay, "partials": workspace.partials, "recipe": workspace.recipes,
        }  # fmt: skip
        self._folders = {kind: f"{path}/" if (path := self._below(place)) else "" for kind, place in places.items()}
        folders = [f"{self._below(workspace.images)}/", *filter(None, [self._folders["guest"]])]
        self._before = changed_since.blobs_at(workspace, self.commit, folders)
        guest = (
            (path, PurePosixPath(path))
            for path in self._before
            if self.sees_the_guest and path.startswith(self._folders["guest"])
        )
        self._guest_before = {
            path: self._before[path]
            for path, place in guest
            if "__pycache__" not in place.parts and not place.name.startswith(".")
        }
        self._overlay_before, self._steps_before = self._files_before("overlay"), self._files_before("partials", ".sh")
        self._now: dict[Path, str] = {}

    @property
    def sees_the_guest(self) -> bool:
        """Whether the smoke test is a part of the checkout. The smoke test of an installed envbuild belongs to no revision."""
        return bool(self._folders["guest"])

    def names(self) -> set[str]:
        """Return the environments that had a lock at the revision."""
        folder = PurePosixPath(self._below(self._tools.workspace.committed_environments))
        found = (PurePosixPath(path) for path in self._before)
        return {path.parent.name for path in found if path.name == image_inputs.LOCK and path.parent.parent == folder}

    def reasons(self, locked: Locked, rendering: Mapping[str, str]) -> tuple[ChangedInput, ...]:
        """Return the reasons why the image of a lock differs from the image at the revision; empty if no input differs."""
        folder = f"{self._below(self._tools.workspace.committed_environments)}/{locked.lock.environment.name}/"
        before = self._before.get(folder + image_inputs.LOCK)
        if before is None:
            return (ChangedInput(input="new"),)
        found = self._of_lock(locked, before, folder + image_inputs.LOCK)
        found += self._of_rendering(locked.lock, rendering, folder)
        found += self._of_programs(locked.lock)
        return _joined(found)

    def _of_lock(self, locked: Locked, blob: str, path: str) -> list[ChangedInput]:
        from envbuild.lock import lock_file

        if blob == self._id(files.read_bytes(locked.path)):
            return []
        now = locked.lock
        try:
            old = lock_file.parse(changed_since.text_at(self._tools.workspace, blob), Path(path))
        except EnvbuildError:  # this version of envbuild cannot read the earlier lock
            return [ChangedInput(input="lock", files=(path,))]
        base_now, base_before = (now.base, now.environment.base), (old.base, old.environment.base)
        on_new_base = replace(old, base=now.base, environment=replace(old.environment, base=now.environment.base))
        kinds: list[Input] = ["base"] if base_now != base_before else []
        kinds += ["lock"] if lock_file.digest(on_new_base) != locked.digest else []
        return [ChangedInput(input=kind, files=(path,)) for kind in kinds]

    def _of_rendering(self, lock: Lock, rendering: Mapping[str, str], folder: str) -> list[ChangedInput]:
        """Return the reasons why the rendering differs from the rendering at the revision.

        Changed sources count only if the rendering differs, because some files, such as a README, change no image.
        """
        now = {folder + name: self._id(text.encode()) for name, text in rendering.items()}
        before = {path: blob for path, blob in self._before.items() if path.startswith(folder)}
        before.pop(folder + image_inputs.LOCK)
        differing = _differing(now, before)
        if not differing:
            return []
        workspace = self._tools.workspace
        own = {framework.recipe for framework in lock.environment.frameworks}
        sources: list[tuple[Input, Path]] = [("recipe", workspace.recipes / recipe) for recipe in sorted(own)]
        sources += [("partials", workspace.partials), ("services", workspace.services)]
        found = []
        for kind, place in sources:
            changed = [path for path in self._changed_below(place) if not path.endswith((".md", ".sh", "/smoke.py"))]
            found += [ChangedInput(input=kind, files=tuple(changed))] if changed else []
        return [*found, ChangedInput(input="render", files=tuple(differing))]

    def _of_programs(self, lock: Lock) -> list[ChangedInput]:
        """Return envbuild's own programs that differ: programs in the image, and programs that run the steps of its build."""
        workspace, recipes = self._tools.workspace, self._tools.recipes
        sources = [*image_inputs.guest_files(workspace, lock, recipes).values(), *image_inputs.step_files(workspace).values()]
        now = {path: self._of_file(source) for source in sources if (path := self._below(source))}
        return [ChangedInput(input=self._kind(path), files=(path,)) for path in _differing(now, self._programs_before(lock))]

    def _programs_before(self, lock: Lock) -> dict[str, str]:
        """Return the programs at the revision, chosen in the same way as :func:`image_inputs.guest_files` chooses them."""
        found = {**self._guest_before, **self._steps_before}
        if any(prefix.pip for prefix in lock.prefixes):
            found |= self._overlay_before
        paths = [f"{self._folders['recipe']}{recipe}/smoke.py" for recipe in self._adapters(lock)]
        return found | {path: self._before[path] for path in paths if path in self._before}

    def _files_before(self, kind: Input, suffix: str = "") -> dict[str, str]:
        """Return the files at the revision that are directly in the folder of the input ``kind``."""
        folder = self._folders[kind]
        return {
            path: blob
            for path, blob in self._before.items()
            if folder and path.startswith(folder) and "/" not in path[len(folder) :] and path.endswith(suffix)
        }

    def _adapters(self, lock: Lock) -> set[str]:
        """Return the recipes whose adapters are in the image.

        These are the recipes of the image's frameworks, and the recipes whose adapters they use.
        """
        own = {framework.recipe for framework in lock.environment.frameworks}
        return own.union(*(self._borrowed(recipe) for recipe in own))

    def _borrowed(self, recipe: str) -> Iterable[str]:
        source = self._tools.workspace.recipes / recipe / "recipe.yaml"
        path = self._below(source)
        blob = self._before.get(path)
        if blob is None or (source.is_file() and blob == self._of_file(source)):
            known = self._tools.recipes.get(recipe)
            return known.adapters if known else ()
        problems: list[Problem] = []
        table = yaml_reader.load(changed_since.text_at(self._tools.workspace, blob).encode(), path, problems)
        return table.texts("adapters") if table is not None else ()

    def _kind(self, path: str) -> Input:
        return next(kind for kind, folder in self._folders.items() if folder and path.startswith(folder))

    def _changed_below(self, folder: Path) -> list[str]:
        now = {self._below(path): self._of_file(path) for path in folder.rglob("*") if path.is_file()}
        own = f"{self._below(folder)}/"
        return _differing(now, {path: blob for path, blob in self._before.items() if path.startswith(own)})

    def _of_file(self, path: Path) -> str:
        if path not in self._now:
            self._now[path] = self._id(path.read_bytes())
        return self._now[path]

    def _id(self, content: bytes) -> str:
        """Return git's object id for this content: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects has the rule."""
        algorithm = "sha1" if len(self.commit) == 40 else "sha256"
        return hashlib.new(algorithm, b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def _below(self, path: Path) -> str:
        """Return ``path`` relative to the root; empty if it is not below the root."""
        if path not in self._paths:
            self._paths[path] = path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else ""
        return self._paths[path]


def _differing(now: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    return sorted(path for path in {*now, *before} if now.get(path) != before.get(path))


def _joined(reasons: Iterable[ChangedInput]) -> tuple[ChangedInput, ...]:
    """Merge reasons about the same input. Leave out ``render`` if a changed lock or source explains the new rendering."""
    found: dict[Input, list[str]] = {}
    for reason in reasons:
        found.setdefault(reason.input, []).extend(reason.files)
    if found.keys() & {"lock", "base", "recipe", "partials", "services"}:
        found.pop("render", None)
    return tuple(ChangedInput(input=kind, files=tuple(sorted(set(paths)))) for kind, paths in found.items())
