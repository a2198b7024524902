"""``bundle``: write everything that builds of some environments need into one folder, for machines without a network.

A file that the folder already has with the right hash is not fetched again. So an interrupted run can be continued, and
environments share files. The manifest is written last.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import envbuild
from envbuild import codec, files, guard, image_inputs
from envbuild.engine import bases, bootstrap, package_store
from envbuild.errors import (
    BuildError,
    EngineError,
    EnvbuildError,
    InterruptedByUserError,
    InvalidInputError,
    Problem,
    UsageError,
)
from envbuild.model.lock import Lock
from envbuild.model.progress import Progress, as_news, counted
from envbuild.names import is_plain_name
from envbuild.pipeline import bundle_contents, bundle_folder, bundle_sources, locking
from envbuild.pipeline.bundle_folder import BundledEnvironment, BundledFile, BundleFolder, BundleManifest, Kind, OwnFile
from envbuild.pipeline.bundle_sources import WantedFile
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

_PARALLEL = 4
_RESERVE = 64 * 2**20  # bytes of disk space that must stay free for the manifest, folders, and other programs
_UNPACKED = 4  # estimated size of a base's tar file, divided by the size of its Debian packages
_WORK = "work-"
# A killed run can leave an unfinished manifest behind. The name of such a file begins with these characters.
_UNFINISHED = f".{bundle_folder.MANIFEST}."
_PATIENCE_S = 10.0  # how long an interrupted run waits at most for its downloads to stop


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePlan:
    """The number of ``files`` that a run will add to the folder, and the disk space that they need (``size``, in bytes).

    ``held`` counts the files that the folder already has. ``unknown`` counts the new files of unknown size. The disk has
    ``free`` bytes left.
    """

    files: int
    size: int
    held: int
    unknown: int
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundled:
    """The result: the folder of the bundle, its manifest, the plan that was carried out, and notes for the user."""

    folder: Path
    manifest: BundleManifest
    plan: BundlePlan
    notes: tuple[str, ...]


def bundle(tools: Sequence[Tools], names: Sequence[str], folder: Path, on_plan: Callable[[BundlePlan], None]) -> Bundled:
    """Write a bundle with the environments ``names`` into ``folder``, or add these environments to the bundle there.

    ``tools`` has the tools for each name, in the order of ``names``. ``on_plan`` is called before anything is fetched.
    Raises :class:`InvalidInputError` (``not-bundleable``) for environments whose builds always need a network,
    :class:`UsageError` (``folder-in-use``), and :class:`BuildError` (``no-space``, and the errors of fetching).
    """
    chosen = [(each, locking.require_lock(each, name)) for each, name in zip(tools, names, strict=True)]
    _require_bundleable([locked.lock for _, locked in chosen])
    _prepare(folder)
    with (
        files.locked(folder / ".lock", as_news("bundle", tools[0].on_progress)),
        guard.temporary_folder(_WORK, folder) as work,
    ):
        for left in folder.glob(f"{_WORK}*"):  # from a run that was killed together with its guard process
            if left != work:
                shutil.rmtree(left, ignore_errors=True)
        for part in folder.glob(f"{_UNFINISHED}*"):
            part.unlink(missing_ok=True)
        # Read the manifest only after the folder is locked, because another run may have added environments until then.
        held = BundleFolder(folder).manifest() if (folder / bundle_folder.MANIFEST).exists() else None
        return _Run(BundleFolder(folder), work, chosen, held).work(on_plan)


def _require_bundleable(locks: Sequence[Lock]) -> None:
    problems = [
        Problem(where=lock.environment.name, line=0, message=why) for lock in locks for why in bundle_contents.obstacles(lock)
    ]
    if problems:
        names = ", ".join(dict.fromkeys(problem.where for problem in problems))
        raise InvalidInputError(
            f"{names} cannot be built without a network, whatever the bundle contains.",
            code="not-bundleable",
            problems=problems,
            hint="To pin what can be pinned now, run `envbuild lock NAME`. Or choose environments whose files are all "
            "pinned: `envbuild show NAME` lists the unpinned ones.",
        )


def _prepare(folder: Path) -> None:
    """Make the folder if it does not exist. Refuse a folder with other files, or with an invalid manifest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise files.explain_os_error(error, folder, continues=True) from error
    ours = {bundle_folder.MANIFEST, bundle_folder.FILES, ".lock"}
    others = {name for name in names if not name.startswith((_WORK, _UNFINISHED))} - ours
    if others or (folder / bundle_folder.FILES).is_symlink():
        raise UsageError(
            f"{folder} contains files that do not belong to a bundle.",
            code="folder-in-use",
            hint="Name an empty folder, a folder that does not exist, or a bundle.",
        )
    if bundle_folder.MANIFEST in names:
        BundleFolder(folder).manifest()


class _Run:
    def __init__(
        self, target: BundleFolder, work: Path, chosen: Sequence[tuple[Tools, Locked]], held: BundleManifest | None
    ) -> None:
        self._target = target
        self._work = work
        self._chosen = chosen
        self._held = held
        self._tools = chosen[0][0]
        self._done: dict[str, int] = {}
        self._notes: list[str] = []
        self._stopped = False

    def work(self, on_plan: Callable[[BundlePlan], None]) -> Bundled:
        wanted = {each.sha256: each for tools, locked in self._chosen for each in bundle_sources.pinned(tools, locked.lock)}
        known = {file.sha256: file for file in self._held.files} if self._held else {}
        left = [each for each in wanted.values() if not self._holds(each.sha256)]
        plan = self._plan(left, len(wanted))
        on_plan(plan)
        if plan.size + _RESERVE > plan.free:
            raise BuildError(
                f"{self._target.folder} needs {plan.size / 1000000000.0:.2f} GB more, but its disk has only "
                f"{plan.free / 1000000000.0:.2f} GB free.",
                code="no-space",
                hint="Free some space there, or name a folder on a larger disk. Files that are already in the folder are "
                "not fetched again.",
            )
        self._fetch(left)
        bundled = [self._environment(tools, locked) for tools, locked in self._chosen]
        matrix = [self._keep_file(path, "matrix") for path in self._tools.workspace.overlays]
        added = [file for _, files_of in bundled for file in files_of]
        added += [self._file(each.name, each.kind, each.sha256) for each in wanted.values()]
        added += matrix
        listed = known | {file.sha256: file for file in added}
        environments = {each.name: each for each in (self._held.environments if self._held else ())}
        environments |= {each.name: each for each, _ in bundled}
        rows = dict.fromkeys([*(self._held.matrix if self._held else ()), *(file.sha256 for file in matrix)])
        manifest = BundleManifest(
            schema=1,
            made_by=f"envbuild {envbuild.__version__}",
            environments=tuple(environments[name] for name in sorted(environments)),
            files=tuple(sorted(listed.values(), key=lambda file: (file.kind, file.name, file.sha256))),
            matrix=tuple(rows),
        )
        files.write_atomic(self._target.folder / bundle_folder.MANIFEST, codec.dumps(manifest))
        return Bundled(folder=self._target.folder, manifest=manifest, plan=plan, notes=tuple(self._notes))

    def _holds(self, sha256: str) -> bool:
        """Whether the folder has the undamaged file with this hash. A damaged file is removed."""
        fault = self._target.fault(sha256, lambda count: self._tell("checking the files that are already there", sha256, count))
        if fault not in (None, "missing"):
            path = self._target.path(sha256)
            try:
                path.unlink()
            except OSError as error:
                raise files.explain_os_error(error, path, continues=True) from error
        return fault is None

    def _plan(self, left: Sequence[WantedFile], count: int) -> BundlePlan:
        device = self._target.folder.stat().st_dev
        home = next(parent for parent in (self._tools.workspace.home, *self._tools.workspace.home.parents) if parent.exists())
        # Fetched Debian packages and bases are also stored in the cache folder, so they can need their disk space twice.
        cached = {path.stem for path in package_store.Store(self._tools.workspace).folder.glob("*.deb")}
        twice = [each for each in left if each.kind == "Debian package" and each.sha256 not in cached]
        bases_size = sum(
            {sha256: size for _, locked in self._chosen for sha256, size in self._base_sizes(locked.lock)}.values()
        )
        return BundlePlan(
            files=len(left),
            size=sum(each.size for each in (*left, *(twice if home.stat().st_dev == device else ()))) + bases_size,
            held=count - len(left),
            unknown=sum(not each.size for each in left),
            free=shutil.disk_usage(self._target.folder).free,
        )

    def _base_sizes(self, lock: Lock) -> Iterator[tuple[str, int]]:
        """Yield a key that identifies the base's tar file, and the size of the file. Yield nothing if the bundle has the file.

        If the tar file does not exist yet, its size is estimated.
        """
        planned = lock.base.bootstrap
        assert planned is not None
        rootfs = bootstrap.cached(self._tools.workspace, planned)
        if rootfs is None:
            yield bootstrap.key(planned), _UNPACKED * sum(package.size for package in planned.packages)
        elif not self._target.path(rootfs.archive_sha256).exists():
            yield rootfs.archive_sha256, rootfs.path.stat().st_size

    def _fetch(self, left: Sequence[WantedFile]) -> None:
        from concurrent.futures import wait

        from envbuild.index.thread_pool import DaemonPool, finished

        total, self._done = float(sum(each.size for each in left)), {}
        message = f"{counted(len(left), 'file')}, each checked by its hash"
        pool = DaemonPool(_PARALLEL)
        largest_first = sorted(left, key=lambda each: -each.size)

        def counter(sha256: str) -> Callable[[int], None]:
            def tell(count: int) -> None:
                self._require_running()
                self._tell(message, sha256, count, total)

            return tell

        jobs: dict[Future[None], WantedFile] = {
            pool.submit(self._put, each, counter(each.sha256)): each for each in largest_first
        }
        failed: list[tuple[WantedFile, EnvbuildError]] = []
        try:
            for job in finished(jobs):
                error = job.exception()
                if isinstance(error, EnvbuildError) and error.code not in ("no-space", "not-writable"):
                    failed.append((jobs[job], error))
                elif error is not None:
                    raise error
        except BaseException:
            self._stopped = True
            wait(jobs, timeout=_PATIENCE_S)  # no thread may write into the temporary folder while it is removed
            raise
        if failed:
            raise BuildError(
                f"{counted(len(failed), 'file')} could not be fetched. The first: {failed[0][1].message}",
                code="not-fetched",
                problems=[Problem(where=each.name, line=0, message=error.message) for each, error in failed],
                hint="Finished files stay in the folder. Repeat the command when the other files can be reached.",
            )

    def _put(self, wanted: WantedFile, on_bytes: Callable[[int], None]) -> None:
        """Fetch one file, check its hash, and move it to its place in the bundle."""
        folder = self._work / wanted.sha256
        self._require_running()
        try:
            folder.mkdir()
            part = folder / "file"
            wanted.put(part, on_bytes)
            found = bundle_folder.hash_of(part)
            if found != wanted.sha256:
                raise BuildError(f"{wanted.name} has the sha256 {found} instead of {wanted.sha256}.", code="hash-differs")
            self._give_name(part, wanted.sha256)
        except OSError as error:
            raise files.explain_os_error(error, self._target.path(wanted.sha256), continues=True) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _require_running(self) -> None:
        if self._stopped:
            raise InterruptedByUserError("Another file could not be written, or the command was interrupted.")

    def _give_name(self, part: Path, sha256: str) -> None:
        target = self._target.path(sha256)
        target.parent.mkdir(exist_ok=True)
        part.chmod(0o644)
        part.replace(target)

    def _environment(self, tools: Tools, locked: Locked) -> tuple[BundledEnvironment, list[BundledFile]]:
        from envbuild.lock import lock_file

        name = locked.lock.environment.name
        lock = self._keep(lock_file.dumps(locked.lock).encode(), f"{name}.lock.json", "lock")
        base = self._base(tools, locked.lock)
        recipe: list[OwnFile] = []
        own: list[BundledFile] = []
        for path, source in _users_files(tools, locked.lock).items():
            file = self._keep_file(source, "recipe")
            executable = path != bundle_folder.RECIPE and image_inputs.mode_of(source) == 0o755
            recipe.append(OwnFile(path=path, sha256=file.sha256, executable=executable))
            own.append(file)
        environment = BundledEnvironment(name=name, lock=lock.sha256, base=base.sha256 if base else "", recipe=tuple(recipe))
        return environment, [lock, *([base] if base else []), *own]

    def _base(self, tools: Tools, lock: Lock) -> BundledFile | None:
        """Add the base as a tar file, for machines without mmdebstrap.

        Return None if this machine has no mmdebstrap, which makes the tar file.
        """
        assert lock.base.bootstrap is not None
        have = package_store.collector(tools.workspace, lock, tools.on_progress)
        try:
            rootfs = bases.root_file_system(lock.base.bootstrap, tools.workspace, tools.on_progress, have)
        except EngineError as error:
            if error.code != "missing-program":
                raise
            self._notes.append(
                f"{lock.environment.name}: the bundle contains the base only as Debian packages, because mmdebstrap is "
                "not installed here. Machines that build from the bundle will need mmdebstrap."
            )
            return None
        self._done = {}
        name, sha256 = f"{bootstrap.reference(rootfs.bootstrap).rpartition(':')[2]}.tar", rootfs.archive_sha256
        if not self._holds(sha256):
            size = rootfs.path.stat().st_size
            self._put(
                WantedFile(name=name, kind="base", sha256=sha256, size=size, put=bundle_sources.copying(rootfs.path, sha256)),
                lambda count: self._tell(f"copying {name}", sha256, count, float(size)),
            )
        return self._file(name, "base", sha256)

    def _keep(self, content: bytes, name: str, kind: Kind) -> BundledFile:
        """Add a small file with this content to the bundle."""
        import hashlib

        sha256 = hashlib.sha256(content).hexdigest()
        files.write_atomic(self._target.path(sha256), content)
        return self._file(name, kind, sha256)

    def _keep_file(self, source: Path, kind: Kind) -> BundledFile:
        """Add a file of the user to the bundle."""
        whole = source.resolve()
        sha256 = files.sha256_of(whole)
        if not self._holds(sha256):
            wanted = WantedFile(
                name=source.name, kind=kind, sha256=sha256, size=whole.stat().st_size, put=bundle_sources.copying(whole, sha256)
            )
            self._put(wanted, lambda count: self._tell(f"copying {source.name}", sha256, count))
        return self._file(source.name, kind, sha256)

    def _file(self, name: str, kind: Kind, sha256: str) -> BundledFile:
        name = name if is_plain_name(name) else _plain(name)
        return BundledFile(name=name, kind=kind, sha256=sha256, size=self._target.path(sha256).stat().st_size)

    def _tell(self, message: str, key: str, count: int, total: float | None = None) -> None:
        self._done[key] = self._done.get(key, 0) + count
        done = float(sum(list(self._done.values())))
        self._tools.on_progress(Progress(stage="bundle", message=message, done=done, total=total or None, unit="bytes"))


def _plain(name: str) -> str:
    """Return ``name`` with underscores in place of characters that some file systems do not allow in names."""
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "._-" else "_" for letter in name)
    return plain.lstrip(".-")[:200] or "file"


def _users_files(tools: Tools, lock: Lock) -> Mapping[str, Path]:
    """Return the user's recipe and the files that it names: path relative to the recipe's folder → path on this machine.

    The result is empty if the environment does not come from a user's recipe.
    """
    recipe = tools.workspace.user_recipe
    if recipe is None or tools.user_recipe is None:
        return {}
    listed = tools.user_recipe.requirements
    named = {listed: recipe.parent / listed} if listed else {}
    copied = image_inputs.users_files(tools.workspace, lock.environment.custom).values()
    return {
        bundle_folder.RECIPE: recipe,
        **named,
        **{source.relative_to(recipe.parent).as_posix(): source for source in copied},
    }
