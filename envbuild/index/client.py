"""The client of package indexes. It uses this machine's pip configuration, and passes this configuration on to pip, uv and
builds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, RLock
from urllib.parse import urljoin

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.files import explain_os_error, locked, open_new, sha256_of
from envbuild.index import limits
from envbuild.index.project_pages import ACCEPT, IndexFile, parse
from envbuild.index.server_errors import refused, unreachable
from envbuild.index.settings import Settings, host_of, read_settings
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.index.transport import Transport, name_in, number
from envbuild.model.lock import Artifact
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress
from envbuild.names import is_plain_name

_PARALLEL = 8


class Index:
    """Queries indexes, fetches files, and returns the settings with which uv, pip and builds reach the same indexes.

    The network is not used before the first query. Answers are kept as long as this object exists.
    """

    def __init__(self, settings: Settings | None = None, on_progress: OnProgress = ignore_progress) -> None:
        """``on_progress`` gets a message if a query has to wait for a long time."""
        self.on_progress = on_progress
        self._settings = settings
        self._made: Transport | None = None
        self._skipped: dict[tuple[str, str], tuple[str, ...]] = {}
        self._pages: dict[tuple[str, str], Future[list[IndexFile]]] = {}
        self._guard = Lock()
        self._first = RLock()  # a lock, because reading pip's configuration redirects the standard output of all threads
        self._pool = DaemonPool(_PARALLEL)

    @property
    def settings(self) -> Settings:
        """pip's configuration on this machine. It is read on first use."""
        with self._first:
            if self._settings is None:
                self._settings = read_settings()
            return self._settings

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user: which parts of this machine's configuration are not used, and why."""
        return self.settings.notes

    @property
    def place(self) -> str:
        """The hosts of all indexes in pip's configuration, for messages. The text never contains credentials."""
        return self._place("default")

    def project_files(self, project: str, index: str = "default") -> list[IndexFile]:
        """Return every file of ``project``. By default, query all indexes in pip's configuration. If ``index`` is a base URL,
        query only this index.

        Raises :class:`UnknownNameError` if no index has the project, and :class:`BuildError` (``index-unreachable``) if an
        index cannot be reached.
        """
        return result_of(self._page(project, index))

    def skipped(self, project: str, index: str = "default") -> tuple[str, ...]:
        """Return a line for each malformed entry on the page of ``project``. Call :meth:`project_files` first."""
        return self._skipped.get((index, canonicalize_name(project)), ())

    def is_dead(self, artifact: Artifact | None, url: str) -> bool:
        """Whether all hosts that could have a locked file have failed to answer. This run does not query these hosts again.

        These are the hosts of the indexes of ``artifact``. Without ``artifact``, only the host of ``url`` counts.
        """
        if artifact is None:
            return self._transport.is_dead(url)
        places = self.settings.indexes if artifact.index == "default" else (artifact.index,)
        return all(self._transport.is_dead(place) for place in places)

    def prefetch(self, projects: Iterable[str], index: str = "default") -> None:
        """Start to query several projects in parallel. Errors are raised later, by :meth:`project_files`."""
        for project in projects:
            self._page(project, index)

    def file_of(self, artifact: Artifact) -> IndexFile:
        """Return a locked file as the index offers it now. The sha256 of the result equals the sha256 in the lock, or is empty
        if the index states no sha256."""
        for file in self.project_files(artifact.project, artifact.index):
            if file.filename == artifact.filename and file.sha256 in ("", artifact.sha256):
                return file
        raise BuildError(
            f"The package index at {self._place(artifact.index)} no longer offers {artifact.filename} with the hash in the "
            "lock.",
            code="artifact-gone",
            hint=f"Lock the environment again, or use an index that still has {artifact.name} {artifact.version}.",
        )

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ignore_progress) -> Path:
        """Return the path of a locked file in ``folder``. The file is fetched if it is missing, or if its sha256 differs from
        the one in the lock."""
        held = folder / artifact.filename
        if held.is_file() and sha256_of(held) == artifact.sha256:
            return held
        return self.download(self.file_of(artifact), folder, on_progress, sha256=artifact.sha256)

    def download(self, file: IndexFile, folder: Path, on_progress: OnProgress = ignore_progress, *, sha256: str = "") -> Path:
        """Download a file into ``folder`` and check it, unless the checked file is there already.

        If the process is killed, at most a ``.part`` file is left. The next download of the same file overwrites it. The file
        is not synced to the disk, because every later use compares its hash again.
        """
        wanted = sha256 or file.sha256
        target = folder / file.filename
        if not is_plain_name(file.filename):
            raise BuildError(f"{file.filename[:100]!r} cannot be the name of a file to download.", code="bad-file-name")
        with locked(folder / f".{file.filename}.lock", as_news("download", on_progress)):
            if wanted and target.is_file() and sha256_of(target) == wanted:
                return target
            part = folder / f".{file.filename}.part"
            try:
                seen = hashlib.sha256()
                with open_new(part) as out:

                    def keep(piece: bytes) -> None:
                        seen.update(piece)
                        out.write(piece)

                    self._stream(file, keep, on_progress)
                _must_match(file, seen.hexdigest(), wanted)
                part.replace(target)
            except OSError as error:
                raise explain_os_error(error, target) from error
            finally:
                part.unlink(missing_ok=True)
        return target

    def inspect(self, file: IndexFile, on_progress: OnProgress = ignore_progress, *, sha256: str = "") -> None:
        """Download the whole file and compare its hash, as :meth:`download` does, but do not store the file."""
        seen = hashlib.sha256()
        self._stream(file, seen.update, on_progress)
        _must_match(file, seen.hexdigest(), sha256 or file.sha256)

    def read_range(self, url: str, start: int, end: int | None) -> tuple[bytes, int] | None:
        """Return the bytes from ``start`` to ``end`` (inclusive), and the size of the file. A negative ``start`` counts from
        the end.

        Returns None if the server cannot send parts of files.
        """
        what = f"bytes={start}" if start < 0 else f"bytes={start}-{end if end is not None else ''}"
        headers = {"Range": what, "Accept-Encoding": "identity"}
        return self._transport.ask_part(url, start, end, headers=headers, file=name_in(url))

    def fetch_bytes(self, url: str) -> bytes:
        """Return the content of a small file."""
        return self._transport.ask(url, most=limits.SMALL_FILE_BYTES, file=name_in(url)).content

    def size_of(self, file: IndexFile) -> int | None:
        """Return the file's size in bytes, as the index states it. If the index states no size, query the file's server."""
        if file.size is not None:
            return file.size
        answer = self._transport.ask(file.url, most=0, file=file.filename, method="HEAD", any_status=True)
        return number(answer.headers.get("Content-Length", "")) if answer.status < 400 else None

    def sizes(self, files: Iterable[IndexFile]) -> list[int | None]:
        """Return the result of :meth:`size_of` for each of ``files``, in the same order."""
        _ = self._transport
        return [result_of(future) for future in [self._pool.submit(self.size_of, file) for file in files]]

    def build_secrets(self) -> dict[str, bytes]:
        """Return the secrets that a build needs to reach the index, as a mapping from ids to contents. Never write the contents
        to permanent storage."""
        from envbuild.index.tool_settings import build_secrets

        return build_secrets(self.settings)

    def _page(self, project: str, index: str) -> Future[list[IndexFile]]:
        key = (index, canonicalize_name(project))
        with self._guard:
            if key not in self._pages:
                if len(self._pages) >= limits.PROJECTS:
                    raise BuildError(
                        f"More than {limits.PROJECTS} projects were requested: some packages require one another without end.",
                        code="too-many-projects",
                        hint="Look at the projects that were read last. To end the search, limit the version of the first of "
                        "them in the matrix row or in envbuild.yaml.",
                    )
                _ = self._transport  # make it before the threads start, so that they share it
                self._pages[key] = self._pool.submit(self._fetch_page, key[1], index)
            return self._pages[key]

    def _fetch_page(self, project: str, index: str) -> list[IndexFile]:
        bases = self.settings.indexes if index == "default" else (index,)
        files: dict[tuple[str, str], IndexFile] = {}
        skipped: list[str] = []
        found = False
        for base in bases:
            url = urljoin(base.rstrip("/") + "/", f"{project}/")
            answer = self._transport.ask(url, most=limits.PAGE_BYTES, headers={"Accept": ACCEPT}, any_status=True)
            if answer.status in (404, 410):
                continue
            if answer.status >= 400:
                raise refused(base, answer.status, answer.reason)
            found = True
            kind = answer.headers.get("Content-Type", "")
            text = answer.content.decode("utf-8", "replace")
            try:
                page = parse(text, content_type=kind, url=answer.url, project=project, index=index, skipped=skipped)
            except ValueError as error:
                raise unreachable(base, f"its page of {project} cannot be read ({str(error)[:300]})") from error
            for file in page:
                files.setdefault((file.filename, file.sha256), file)
        if not found:
            raise UnknownNameError(
                f"The package index at {self._place(index)} has no project named {project}.",
                code="unknown-project",
                hint="Look at the spelling in envbuild.yaml, the matrix or the recipe, or at pip's index-url on this machine.",
            )
        self._skipped[index, project] = tuple(skipped)
        return list(files.values())

    def _place(self, index: str) -> str:
        return " and ".join(host_of(url) for url in (self.settings.indexes if index == "default" else (index,)))

    def _stream(self, file: IndexFile, write: Callable[[bytes], object], on_progress: OnProgress) -> None:
        def tell(done: int, total: int | None) -> None:
            whole = None if total is None else float(total)
            on_progress(Progress(stage="download", message=file.filename, done=done, total=whole, unit="bytes"))

        most = limits.FILE_BYTES if file.size is None else file.size
        self._transport.stream(file.url, write, tell, file=file.filename, most=most)

    def _tell(self, message: str) -> None:
        self.on_progress(Progress(stage="index", message=message))

    @property
    def _transport(self) -> Transport:
        with self._first:
            if self._made is None:
                self._made = Transport(self.settings, self._tell)
            return self._made


def _must_match(file: IndexFile, found: str, wanted: str) -> None:
    if wanted and found != wanted:
        raise BuildError(
            f"{file.filename} from {host_of(file.url)} is not the expected file: sha256 {found}, not {wanted}.",
            code="hash-differs",
            hint="The download was damaged or the file was replaced. Try again; if it happens again, do not trust the index.",
        )
