"""Builds from a bundle without a network: the bundle's locks and files replace package indexes and mirrors.

The bundle is only read. Its locks are copied to a folder below the cache folder. Its Debian packages and sources are copied
into the caches that every build uses. Its Python packages are copied directly into the build context.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import build_secret, files, git_sources
from envbuild.engine import bootstrap, package_store
from envbuild.errors import BuildError, Problem, UsageError
from envbuild.index.client import Index
from envbuild.model.lock import Artifact, Lock
from envbuild.model.progress import OnProgress, Progress, counted, ignore_progress
from envbuild.pipeline import bundle_contents, bundle_folder, fetching
from envbuild.pipeline.bundle_contents import Needed
from envbuild.pipeline.bundle_folder import BundledEnvironment, BundleFolder, BundleManifest
from envbuild.pipeline.tools import Tools
from envbuild.workspace import PRIVATE

if TYPE_CHECKING:
    from envbuild.workspace import Workspace

_SHOWN = 3


class BundleIndex(Index):
    """Provides the pinned files of a bundle in place of package indexes.

    This index cannot be queried for versions, and does not read the configuration of pip.
    """

    def __init__(self, bundle: BundleFolder, on_progress: OnProgress = ignore_progress) -> None:
        super().__init__(on_progress=on_progress)
        self._bundle = bundle

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ignore_progress) -> Path:  # noqa: ARG002
        """Return the path of a locked file in ``folder``. If the file is missing there, copy it from the bundle."""
        held = folder / artifact.filename
        if not (held.is_file() and files.sha256_of(held) == artifact.sha256):
            bundle_folder.copy(self._bundle.path(artifact.sha256), held, artifact.sha256)
        return held

    def build_secrets(self) -> dict[str, bytes]:
        """Return the secrets of a build that takes all its files from the build context."""
        return build_secret.offline()


class Offline:
    """A bundle that is used in place of the network. :func:`tools_for` opens the bundle."""

    def __init__(self, bundle: BundleFolder, manifest: BundleManifest) -> None:
        self.bundle = bundle
        self.manifest = manifest
        self.recipes: dict[str, Path] = {}  # name of an environment → the copy of its user's recipe

    def names(self) -> list[str]:
        """Return the names of all environments in the bundle, sorted."""
        return sorted(each.name for each in self.manifest.environments)

    def require(self, name: str) -> BundledEnvironment:
        """Return the environment ``name``. Raises :class:`BuildError` (``not-in-bundle``) if the bundle does not have it."""
        found = self.manifest.environment(name)
        if found is None:
            held = ", ".join(each.name for each in self.manifest.environments) or "no environment"
            raise BuildError(
                f"The bundle {self.bundle.folder} does not have {name}.",
                code="not-in-bundle",
                hint=f"It contains {held}. To add an environment, run `envbuild bundle {name} -o FOLDER` on a machine "
                "with a network.",
            )
        return found

    def supply(self, tools: Tools, lock: Lock, *, wheels: bool) -> Mapping[str, Path]:
        """Check and provide all files that a build of ``lock`` needs. Return a mapping: path in the build context → file.

        ``wheels`` is false if no step of the build installs the wheels. Raises :class:`BuildError` (``not-in-bundle``) with all
        files that are missing or damaged. In that case, nothing was copied.
        """
        environment = self.require(lock.environment.name)
        self._require_buildable(lock)
        self._check(tools, environment, lock)
        self._fill_caches(tools, environment, lock)
        return _context_files(self.bundle, lock, wheels=wheels)

    def _require_buildable(self, lock: Lock) -> None:
        if why := list(bundle_contents.obstacles(lock)):
            raise BuildError(
                f"{lock.environment.name} cannot be built without a network: {'; '.join(why[:_SHOWN])}.",
                code="not-in-bundle",
                problems=[Problem(where=lock.environment.name, line=0, message=each) for each in why],
            )

    def _check(self, tools: Tools, environment: BundledEnvironment, lock: Lock) -> None:
        wanted = bundle_contents.needed(lock)
        base = [each for each in bundle_contents.own(environment, self.manifest) if each.sha256 == environment.base]
        if bundle_contents.needs_base_file(tools.workspace, lock, environment.base):
            if not base:
                raise _no_base(lock)
            wanted += tuple(base)
        sizes = {file.sha256: file.size for file in self.manifest.files}
        total, done = float(sum(sizes.get(each.sha256, 0) for each in wanted)), 0

        def counter(_file: Needed) -> Callable[[int], None]:
            def tell(count: int) -> None:
                nonlocal done
                done += count
                message = f"checking {counted(len(wanted), 'file')} of the bundle"
                tools.on_progress(Progress(stage="bundle", message=message, done=done, total=total or None, unit="bytes"))

            return tell

        found = list(bundle_contents.lacks(self.bundle, wanted, counter))
        if found:
            told = "; ".join(map(str, found[:_SHOWN])) + (f"; and {len(found) - _SHOWN} more" if found[_SHOWN:] else "")
            raise BuildError(
                f"The bundle {self.bundle.folder} is incomplete for {environment.name}: {told}. Nothing was built.",
                code="not-in-bundle",
                problems=[Problem(where=each.name, line=0, message=f"{each.fault}, sha256 {each.sha256}") for each in found],
                hint="Copy the bundle again from where it was made, or repeat `envbuild bundle` there: it fetches only "
                "missing or damaged files.",
            )

    def _fill_caches(self, tools: Tools, environment: BundledEnvironment, lock: Lock) -> None:
        workspace = tools.workspace
        store = package_store.Store(workspace)
        for package in lock.debs():
            if not store.holds(package):
                bundle_folder.copy(self.bundle.path(package.sha256), store.path(package), package.sha256)
        for source in lock.sources:
            target = git_sources.archive_path(source.repository, source.revision, workspace.downloads / "sources")
            if not (target.is_file() and files.sha256_of(target) == source.sha256):
                bundle_folder.copy(self.bundle.path(source.sha256), target, source.sha256)
        planned = lock.base.bootstrap
        if planned is not None and bundle_contents.needs_base_file(workspace, lock, environment.base):
            bootstrap.adopt(workspace, planned, self.bundle.path(environment.base), environment.base)


def _no_base(lock: Lock) -> BuildError:
    return BuildError(
        f"{lock.environment.name} cannot be built here: {bundle_contents.NO_BASE}.",
        code="not-in-bundle",
        hint="Install mmdebstrap on this machine, or make the bundle on a machine that has it.",
    )


def _context_files(bundle: BundleFolder, lock: Lock, *, wheels: bool) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for prefix in lock.prefixes:
        chosen = [*prefix.build_artifacts, *(each for each in prefix.artifacts if wheels or not each.filename.endswith(".whl"))]
        found |= {f"{build_secret.OFFLINE}/files/{each.filename}": bundle.path(each.sha256) for each in chosen}
    for pin in fetching.pins(lock):
        if pin.url:
            found[f"{build_secret.OFFLINE}/fetched/{build_secret.fetched_name(pin.url)}"] = bundle.path(pin.sha256)
    return found


def tools_for(workspace: Workspace, folder: Path, texts: list[str], tools: Callable[[Workspace], Tools]) -> Tools:
    """Return tools that take all files from the bundle in ``folder``. ``tools`` is a function that makes tools for a workspace.

    ``texts`` are the words of the request. If they are the name of a user's environment, the tools are for its recipe. The
    locks and the users' recipes of the bundle are written below the cache folder, so that the locks of a checkout do not
    change. Raises :class:`InvalidInputError` for an invalid bundle, and :class:`UsageError` if ``texts`` contain a path.
    """
    bundle = BundleFolder(folder)
    manifest = bundle.manifest()
    offline = Offline(bundle, manifest)
    home = workspace.home / "offline" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    rows = []
    for sha256 in manifest.matrix:
        rows.append(home / "matrix" / f"{sha256}.yaml")
        _write(rows[-1], bundle.content(sha256, "a file of matrix rows"))
    placed = replace(workspace, output=home / "images", overlays=tuple(dict.fromkeys((*rows, *workspace.overlays))))
    made = tools(placed)
    made.offline = offline
    made.__dict__["index"] = BundleIndex(bundle, made.on_progress)
    for environment in manifest.environments:
        lock = bundle.lock(environment)
        if not environment.recipe:
            _write(placed.written_lock(environment.name), _text(lock))
            continue
        recipe = _write_recipe(bundle, environment, home / "recipes" / environment.name)
        beside = placed.beside(recipe)
        _write(beside.written_lock(environment.name), _text(lock))
        offline.recipes[environment.name] = recipe
        if texts == [environment.name]:
            return made.for_recipe(recipe)
    if any("/" in text or text.endswith((".yaml", ".yml")) for text in texts):
        raise UsageError(
            "With --offline, name your own environment by its name, not by its file, because the bundle contains a copy "
            "of the file.",
            hint=f"It has {', '.join(each.name for each in manifest.environments)}.",
        )
    return made


def _write_recipe(bundle: BundleFolder, environment: BundledEnvironment, folder: Path) -> Path:
    with files.locked(folder.with_name(f".{folder.name}.lock")):
        lock = Path(bundle_folder.RECIPE).with_suffix(".lock.json").name
        _remove_others(folder, {lock, *(own.path for own in environment.recipe)})
        for own in environment.recipe:
            target = folder / own.path
            if not (target.is_file() and files.sha256_of(target) == own.sha256):
                bundle_folder.copy(bundle.path(own.sha256), target, own.sha256)
            target.chmod(0o755 if own.executable else 0o644)
    return folder / environment.recipe[0].path


def _remove_others(folder: Path, wanted: set[str]) -> None:
    """Remove all files from ``folder`` except ``wanted``: they come from an earlier bundle.

    A recipe that copies the whole folder would copy these earlier files into its image.
    """
    seen: list[Path] = []
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = [name for name in folders if here != folder or name != PRIVATE]
        seen += [here / name for name in folders]
        for path in (here / name for name in names):
            if path.relative_to(folder).as_posix() not in wanted:
                path.unlink(missing_ok=True)
    for path in reversed(seen):
        with contextlib.suppress(OSError):  # a folder with files of this bundle is not empty, and stays
            path.rmdir()


def _write(path: Path, content: bytes) -> None:
    if not (path.is_file() and path.read_bytes() == content):
        files.write_atomic(path, content)


def _text(lock: Lock) -> bytes:
    from envbuild.lock import lock_file

    return lock_file.dumps(lock).encode()
