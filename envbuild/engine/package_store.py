"""Store the .deb files that locks pin, named by their hash. A missing file is fetched from a mirror, else from a snapshot
archive.

Only complete files with the hash in the lock are stored: each file is first written under another name and checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from envbuild import files, network, procs
from envbuild.engine import host_apt
from envbuild.errors import BuildError, EnvbuildError, Problem, TimedOutError
from envbuild.index.thread_pool import DaemonPool, finished
from envbuild.model.lock import DebianPackage, Lock
from envbuild.model.progress import OnProgress, Progress, as_news
from envbuild.workspace import Workspace

_PARALLEL = 4  # parallel downloads; more of them would only share the same connection
_DEADLINE_S = 600.0  # seconds for the download of one file; apt itself stops within seconds if a server is silent
_SHOWN = 3
# Pauses in seconds. If a server could not be reached, all servers are asked again after each pause: the resolution of names may
# fail for a moment.
_PAUSES_S = (1.0, 3.0)
_UNREACHED = re.compile(r"Temporary failure|Could not (connect|resolve)|NewConnection|NameResolution")
APT_HELPER = "/usr/lib/apt/apt-helper"
_SLACK = 1 << 20  # bytes by which a download may be longer than the package before it is stopped; enough for an error page


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageServer:
    """A mirror of ``archive``. If ``is_snapshot`` is true, it is a snapshot of this archive. Package paths are relative to
    ``root``."""

    archive: str
    root: str
    is_snapshot: bool = False

    @property
    def title(self) -> str:
        """The name of the server for messages."""
        return f"the snapshot {self.root.rstrip('/')}" if self.is_snapshot else "this machine's mirror"

    def url(self, package: DebianPackage) -> str:
        """Return the address of ``package`` on this server."""
        return self.root + quote(package.path.partition("/")[2])


def mirror_servers(sources: Iterable[host_apt.Source]) -> list[PackageServer]:
    """Return the mirrors in apt's ``sources``."""
    return [PackageServer(archive=source.archive, root=source.root) for source in sources]


def servers_of(lock: Lock, sources: Iterable[host_apt.Source]) -> tuple[PackageServer, ...]:
    """Return the servers that may have the packages of ``lock``, in the order to try: this machine's mirrors, then the
    snapshots."""
    urls = [url.rstrip("/") for url in (lock.apt.snapshots if lock.apt else ())]
    snapshots = [PackageServer(archive=url.split("/")[-2], root=f"{url}/", is_snapshot=True) for url in urls]
    return tuple(dict.fromkeys([*mirror_servers(sources), *snapshots]))


def host_mirrors(lock: Lock) -> list[host_apt.Source]:
    """Return this machine's apt mirrors of the lock's suite, without contacting them. Without apt, the result is empty."""
    suite = lock.base.bootstrap.suite if lock.base.bootstrap else ""
    return host_apt.sources_for(suite, host_apt.host_sources(), codename=host_apt.codename()) if suite else []


class Store:
    """A folder of files. The name of each file is its sha256."""

    def __init__(self, workspace: Workspace) -> None:
        self.folder = workspace.downloads / "debs"

    def path(self, package: DebianPackage) -> Path:
        """Return the path of the file of ``package``. The file need not exist."""
        return self.folder / f"{package.sha256}.deb"

    def holds(self, package: DebianPackage) -> bool:
        """Whether the file exists and has the right hash. A damaged file is removed."""
        path = self.path(package)
        try:
            if files.sha256_of(path) == package.sha256:
                return True
            path.unlink()
        except FileNotFoundError:
            pass
        return False

    def get(self, package: DebianPackage, servers: Sequence[PackageServer]) -> Path:
        """Return the file of ``package``. If it is missing, fetch it.

        Raises :class:`BuildError`: ``package-gone`` if no server gives the file, with the reason of each server, and
        ``no-space`` if the disk is full.
        """
        path = self.path(package)
        if self.holds(package):
            return path
        network.require(f"The Debian package {package.filename}")
        asked = [each for each in servers if each.archive == package.path.partition("/")[0]]
        refused = self._download_from(asked, package)
        for pause in _PAUSES_S:
            if not any(_UNREACHED.search(why) for why in refused):
                break
            time.sleep(pause)
            refused = self._download_from(asked, package)
        if self.holds(package):
            return path
        told = [f"not in the store {self.folder}"]
        told += (
            [] if any(not each.is_snapshot for each in servers) else ["the apt configuration of this machine names no mirror"]
        )
        told += refused
        told += [] if any(each.is_snapshot for each in servers) else ["no snapshot archive in the lock"]
        raise BuildError(
            f"{package.name} {package.version} (sha256 {package.sha256}) is unavailable: {'; '.join(told)}.",
            code="package-gone",
            hint="Run the command on a machine that can reach the snapshot archive. Or copy the file to "
            f"{path}. To use today's packages instead, run `envbuild lock NAME --relock`.",
        )

    def _download_from(self, servers: Sequence[PackageServer], package: DebianPackage) -> list[str]:
        """Put the file of ``package`` into the store, from the first server that has it. If none has it, return the reason of
        each server."""
        refused = []
        part = self.folder / f".{package.sha256}.{os.getpid()}.part"
        for server in servers:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                why = _download(server.url(package), part, package)
                if not why:
                    part.replace(self.path(package))
                    return []
            except OSError as error:
                raise files.explain_os_error(error, part, continues=True) from error
            finally:
                part.unlink(missing_ok=True)
            refused.append(f"{server.title}: {why}")
        return refused

    def collect(self, packages: Iterable[DebianPackage], servers: Sequence[PackageServer], on_progress: OnProgress) -> None:
        """Fetch all of ``packages``, several in parallel. A single error lists all unavailable packages.

        Any other error, such as a full disk, ends the downloads at once.
        """
        self.sweep()
        wanted = [package for package in packages if not self.holds(package)]
        if not wanted:
            return
        # Two runs often need the same packages: the packages of a base. The second run waits here until the first run has
        # stored the files.
        with files.locked(self.folder / ".collecting", as_news("packages", on_progress)):
            self._fetch([package for package in wanted if not self.holds(package)], servers, on_progress)

    def _fetch(self, wanted: Sequence[DebianPackage], servers: Sequence[PackageServer], on_progress: OnProgress) -> None:
        total = float(sum(package.size for package in wanted))
        pool, done, failed = DaemonPool(_PARALLEL), 0.0, []
        jobs = {pool.submit(self.get, package, servers): package for package in wanted}
        for job in finished(jobs):
            error = job.exception()
            if isinstance(error, EnvbuildError) and error.code == "package-gone":
                failed.append(error)
            elif error is not None:
                raise error
            done += jobs[job].size
            message = f"{len(wanted)} system packages, each checked by its hash"
            on_progress(Progress(stage="packages", message=message, done=done, total=total, unit="bytes"))
        if failed:
            raise _together(failed)

    def sweep(self) -> None:
        """Remove incomplete files that killed runs left."""
        for part in self.folder.glob(".*.part") if self.folder.is_dir() else ():
            with contextlib.suppress(ValueError, OSError):
                if not Path("/proc", str(int(part.name.split(".")[2]))).exists():
                    part.unlink()


def collector(workspace: Workspace, lock: Lock, on_progress: OnProgress) -> Callable[[Sequence[DebianPackage]], Store]:
    """Return a function that fetches packages of ``lock`` into the store of ``workspace`` and returns the store."""
    store, servers = Store(workspace), servers_of(lock, host_mirrors(lock))

    def have(wanted: Sequence[DebianPackage]) -> Store:
        store.collect(wanted, servers, on_progress)
        return store

    return have


def link(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``. If no hard link is possible, make a copy."""
    import shutil

    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    target.chmod(0o644)  # fixed, not from the umask, so that equal build contexts have equal modes


def _together(failed: Sequence[EnvbuildError]) -> EnvbuildError:
    if len(failed) == 1:
        return failed[0]
    first = failed[0]
    return BuildError(
        f"{len(failed)} system packages are unavailable. The first: {first.message}",
        code=first.code,
        hint=first.hint,
        problems=[Problem(where="packages", line=0, message=each.message) for each in failed],
    )


def _download(url: str, target: Path, package: DebianPackage) -> str:
    """Fetch ``url`` into ``target``. On success, return an empty text; otherwise, return the reason for the failure."""
    fetch: Callable[[str, Path, int], str] = _by_apt if Path(APT_HELPER).is_file() else _by_requests
    why = fetch(url, target, package.size)
    if why or not target.is_file():
        return why or "no file"
    found = files.sha256_of(target)
    return "" if found == package.sha256 else f"the file there is not the pinned one (sha256 {found})"


def _by_apt(url: str, target: Path, size: int) -> str:
    """Download with apt, which knows this machine's proxies, certificates and passwords. Return the reason for a failure, or an
    empty text."""
    limit = [f"--fsize={size + _SLACK}", "--"]
    bounded = [prlimit, *limit] if (prlimit := procs.find("prlimit")) else []
    argv = [*bounded, APT_HELPER, *host_apt.TIMEOUTS, "-o", "APT::Sandbox::User=root", "download-file", url, str(target)]
    try:
        answer = procs.run(argv, timeout_s=_DEADLINE_S)
    except TimedOutError:
        return f"the download was not complete within {_DEADLINE_S:.0f} s"
    if answer.code == 0:
        return ""
    host_apt.require_space(answer.output, target)
    told = [line for line in answer.output.splitlines() if line.startswith("E: ") and line != "E: Download Failed"]
    return " ".join((told or [host_apt.reason(answer.output)])[0].removeprefix("E: ").split())


def _by_requests(url: str, target: Path, size: int) -> str:
    import requests

    try:
        with requests.get(url, stream=True, timeout=20) as answer, target.open("wb") as stream:
            if answer.status_code != requests.codes.ok:
                return f"HTTP {answer.status_code}"
            for piece in answer.iter_content(1 << 20):
                stream.write(piece)
                if stream.tell() > size + _SLACK:
                    return "the file is larger than the size in the lock"
    except requests.RequestException as error:
        return " ".join(str(error).split())[:200]
    return ""


def sums(packages: Iterable[DebianPackage]) -> str:
    """Return the text of a file with which sha256sum can check a folder of these packages."""
    return "".join(f"{package.sha256}  {package.filename}\n" for package in packages)
