"""``fetch``: downloads every pinned file and checks its hash, to prove that it is available or to fill a folder.

Each checked hash is recorded immediately, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from envbuild import files
from envbuild.engine import package_store
from envbuild.errors import BuildError, EnvbuildError, UsageError
from envbuild.model.lock import Artifact, DebianPackage, Lock, Missing
from envbuild.model.progress import Progress, counted
from envbuild.pipeline import evidence, locking, proofs
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.index.project_pages import IndexFile

_PARALLEL = 4  # number of parallel downloads; more of them would only share the same bandwidth
_TRIES = 3
WAIT_S = 2.0  # wait before the first retry of an interrupted download; before each further retry, the wait is longer
_CONTRADICTS = ("hash-differs", "artifact-gone")  # these errors mean that a file was changed or removed on its server
_REASONS = {
    "index-unreachable": "its host could not be reached",
    "artifact-gone": "the index no longer offers it",
    "package-gone": "neither a mirror nor the snapshot archive has it",
    "hash-differs": "the server has a different file",
}
_NOTE = re.compile(r"([0-9a-f]{64})  .*\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """One file that a lock pins. It comes from a package index (``artifact``), from ``url``, or from ``origins`` (a ``deb``).

    ``size`` is 0 if the size is unknown.
    """

    filename: str
    sha256: str
    size: int
    artifact: Artifact | None = None
    url: str = ""
    deb: DebianPackage | None = None
    origins: tuple[package_store.PackageServer, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """The result for one environment. ``failed`` has the errors about files that could not be fetched.

    ``known`` is the number of ``files`` that earlier runs had checked. ``unpinned`` are files that the lock does not pin. If
    there are any, nothing is proved. ``contradicted`` is true if a file is gone from its server or differs from its pin.
    """

    name: str
    files: int
    size: int
    known: int
    failed: tuple[str, ...]
    unpinned: tuple[str, ...] = ()
    contradicted: bool = False


def pins(lock: Lock) -> tuple[Pin, ...]:
    """Return the files that ``lock`` pins by address and hash: packages, build tools, Python interpreters, CUDA, .deb files."""
    environment = lock.environment
    found = [
        Pin(filename=each.filename, sha256=each.sha256, size=each.size or 0, artifact=each)
        for each in (*lock.tools, *(a for prefix in lock.prefixes for a in prefix.files))
    ]
    pythons = [plan.python for plan in environment.plans()]
    base = environment.base
    needed = [*(file for python in pythons for file in (*python.files, python.installer)), *base.files, base.installer]
    fetched = [file for file in needed if file is not None]
    remote = [(file.url, file.sha256) for file in fetched]
    remote += [(package.url, package.sha256) for package in (*base.packages, *base.build_packages)]
    found += [
        Pin(filename=unquote(urlsplit(url).path).rpartition("/")[2], sha256=sha256, size=0, url=url)
        for url, sha256 in remote
        if url and sha256
    ]
    asked = package_store.servers_of(lock, package_store.host_mirrors(lock)) if lock.apt else ()
    found += [Pin(filename=each.filename, sha256=each.sha256, size=each.size, deb=each, origins=asked) for each in lock.debs()]
    return tuple({pin.sha256: pin for pin in found}.values())


def fetch(
    tools: Tools, names: Sequence[str], *, into: Path | None = None, on_done: Callable[[Fetched], None] = lambda _: None
) -> list[Fetched]:
    """Fetch and check every file that the locks of ``names`` pin, each file once. Store them in the folder ``into``, if given.

    The smallest environments come first. An environment whose files are all correct gets evidence (``downloaded``). A file that
    cannot be fetched is reported in the result of its environments, and the other files are still fetched.
    """
    run = _Run(tools, into, {name: locking.require_lock(tools, name) for name in names}, on_done)
    run.work()
    return [run.told[name] for name in names]


class _Run:
    def __init__(
        self, tools: Tools, into: Path | None, locked: Mapping[str, Locked], on_done: Callable[[Fetched], None]
    ) -> None:
        self._tools = tools
        self._into = into
        self._locked = locked
        self._on_done = on_done
        self._pins = {name: pins(each.lock) for name, each in locked.items()}
        self._notes = tools.workspace.home / "fetched"
        self._had = frozenset(_read(self._notes)) if into is None else frozenset()
        self._store = package_store.Store(tools.workspace)
        self._store.sweep()
        self._whole: dict[str, bool] = {}
        self._failed: dict[str, EnvbuildError] = {}
        self._bytes: dict[str, float] = {}
        self.told: dict[str, Fetched] = {}

    def work(self) -> None:
        """Fetch and check every file that was not checked before, and report each environment when all its files are done.

        The files of the smallest environments come first.
        """
        from envbuild.index.thread_pool import DaemonPool, finished

        order = sorted(self._pins, key=lambda name: (sum(pin.size for pin in self._open(name)), name))
        if self._into is not None:
            _refuse_clashes(pin for name in order for pin in self._pins[name])
        queue = {pin.sha256: pin for name in order for pin in self._open(name)}
        left = {name: {pin.sha256 for pin in self._open(name)} for name in order}
        known: dict[str, int] = {name: len(self._pins[name]) - len(left[name]) for name in order}
        total = float(sum(pin.size for pin in queue.values()))
        pool = DaemonPool(_PARALLEL)
        jobs: dict[Future[None], Pin] = {pool.submit(self._have, pin, len(queue), total): pin for pin in queue.values()}
        for name in [name for name in order if not left[name]]:
            self._finish(name, known[name])
        for job in finished(jobs):
            pin = jobs[job]
            self._note(pin, job.exception())
            for name in [name for name in order if pin.sha256 in left[name]]:
                left[name].remove(pin.sha256)
                if not left[name]:
                    self._finish(name, known[name])

    def _open(self, name: str) -> list[Pin]:
        return [pin for pin in self._pins[name] if not self._is_known(pin)]

    def _is_known(self, pin: Pin) -> bool:
        """Whether the file was checked before. A .deb file must also still be in the store, where builds look for it."""
        if pin.sha256 not in self._had or pin.deb is None:
            return pin.sha256 in self._had
        if pin.sha256 not in self._whole:
            self._whole[pin.sha256] = self._store.holds(pin.deb)
        return self._whole[pin.sha256]

    def _have(self, pin: Pin, count: int, total: float) -> None:
        """Fetch one file, in a thread of the pool. An interrupted download is retried."""

        def tell(news: Progress) -> None:
            self._bytes[pin.sha256] = news.done or 0
            done = sum(list(self._bytes.values()))
            message = f"{counted(count, 'file')}, each checked by its hash"
            self._tools.on_progress(Progress(stage="fetch", message=message, done=done, total=total or None, unit="bytes"))

        if pin.deb is not None:
            path = self._store.get(pin.deb, pin.origins)
            if self._into is not None:
                files.write_atomic(self._into / pin.filename, path.read_bytes())
            tell(Progress(stage="fetch", message="", done=pin.size))
            return
        index, into = self._tools.index, self._into
        if into is None:
            receive(self._tools, pin, lambda file: index.inspect(file, tell, sha256=pin.sha256))
        else:
            receive(self._tools, pin, lambda file: index.download(file, into, tell, sha256=pin.sha256))

    def _note(self, pin: Pin, error: BaseException | None) -> None:
        if isinstance(error, EnvbuildError):
            self._failed[pin.sha256] = error
        elif error is not None:
            raise error
        else:
            _write(self._notes, pin)

    def _unchecked(self, lock: Lock, mine: Iterable[Pin]) -> Iterator[evidence.Unchecked]:
        """Yield each file that could not be fetched, and then each file that is not pinned.

        The result contains no details of this machine.
        """
        for pin in mine:
            if (error := self._failed.get(pin.sha256)) is not None:
                yield evidence.Unchecked(
                    file=pin.filename, host=_host(pin), why=_REASONS.get(error.code, "could not be downloaded")
                )
        for gap in _unpinned(lock):
            yield evidence.Unchecked(file=gap.what, host="", why=gap.why)

    def _finish(self, name: str, known: int) -> None:
        mine = self._pins[name]
        failed = [self._failed[pin.sha256] for pin in mine if pin.sha256 in self._failed]
        lock = self._locked[name].lock
        pinned = {framework for prefix in lock.prefixes for framework in prefix.frameworks}
        contradicted = any(error.code in _CONTRADICTS for error in failed)
        if contradicted:
            proofs.contradict(self._tools, name, "downloaded")
        digest = self._locked[name].digest
        if not failed and pinned >= {framework.name for framework in lock.environment.frameworks}:
            proofs.prove_lock(self._tools, name, digest, "downloaded")
        else:
            proofs.leave_open(self._tools, name, digest, "downloaded", tuple(self._unchecked(lock, mine)))
        messages = tuple(dict.fromkeys(error.message for error in failed))
        told = Fetched(
            name=name,
            files=len(mine),
            size=sum(pin.size for pin in mine),
            known=known,
            failed=messages,
            unpinned=tuple(gap.what for gap in _unpinned(lock)),
            contradicted=contradicted,
        )
        self.told[name] = told
        self._on_done(told)


def receive(tools: Tools, pin: Pin, read: Callable[[IndexFile], object]) -> None:
    """Call ``read`` with the location of a pinned file that is no .deb. If the download is interrupted, call ``read`` again."""
    index = tools.index
    for attempt in range(1, _TRIES + 1):
        try:
            read(remote(pin) if pin.artifact is None else index.file_of(pin.artifact))
            return
        except BuildError as error:
            if error.code == "artifact-gone" or attempt == _TRIES or index.is_dead(pin.artifact, pin.url):
                raise
            time.sleep(WAIT_S * attempt)


def _unpinned(lock: Lock) -> list[Missing]:
    """Return the entries in the lock's ``missing`` about frameworks of which the lock pins no file."""
    return [gap for gap in lock.missing if gap.what.startswith("the files of ")]


def _host(pin: Pin) -> str:
    """Return the server of a file; empty for this machine's own index, which may be a private mirror."""
    if pin.deb is not None:
        return urlsplit(pin.origins[-1].root).hostname or "" if pin.origins else ""
    index = pin.artifact.index if pin.artifact else pin.url
    return "" if index == "default" else urlsplit(index).hostname or ""


def remote(pin: Pin) -> IndexFile:
    """Return the location of a file that the lock pins by its own URL."""
    from envbuild.index.project_pages import IndexFile

    return IndexFile.pinned(pin.url, pin.filename, pin.sha256)


def _refuse_clashes(wanted: Iterable[Pin]) -> None:
    """Raise :class:`UsageError` for two different files with the same name, because they cannot be in one folder.

    Two indexes can have different builds of one package under the same name.
    """
    seen: dict[str, str] = {}
    for pin in wanted:
        if seen.setdefault(pin.filename, pin.sha256) != pin.sha256:
            raise UsageError(
                f"The locks pin two different files named {pin.filename}.",
                hint="Fetch these environments into separate folders.",
            )


def _read(notes: Path) -> list[str]:
    """Return the recorded hashes. Ignore an incomplete line, which a killed run can leave."""
    try:
        lines = notes.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError:
        return []
    return [match[1] for match in map(_NOTE.fullmatch, lines) if match is not None]


def _write(notes: Path, pin: Pin) -> None:
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        with notes.open("a", encoding="utf-8") as stream:
            stream.write(f"{pin.sha256}  {pin.filename}\n")
    except OSError as error:
        raise files.explain_os_error(error, notes) from error
