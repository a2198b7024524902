"""The one client of package indexes: this machine's pip configuration, translated for us, for pip and uv, and for builds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.files import explain_os_error, locked, sha256_of
from envbuild.index.pages import ACCEPT, IndexFile, parse
from envbuild.index.pool import DaemonPool
from envbuild.index.settings import Settings, host_of, is_trusted, read_settings, without_credentials
from envbuild.model import Artifact, OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    import requests

__all__ = ["Index", "IndexFile", "Settings"]

# Long enough for a slow proxy to answer, short enough that an unreachable index is an error within seconds.
_CONNECT_S = 5.0
_RETRIES = 2
_PIECE = 1 << 20
_PARALLEL = 8


class Index:
    """Answers what an index offers, fetches files, and says what others (uv, pip, builds) need to reach the same index.

    Nothing is asked of the network before the first question. Answers are kept for the life of the object.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._session: requests.Session | None = None
        self._pages: dict[tuple[str, str], Future[list[IndexFile]]] = {}
        self._guard = Lock()
        self._first = RLock()  # reading pip's configuration captures what is printed, which is all threads' own
        self._pool = DaemonPool(_PARALLEL)
        self._down: dict[str, str] = {}

    @property
    def settings(self) -> Settings:
        """pip's configuration on this machine, read when first needed."""
        with self._first:
            if self._settings is None:
                self._settings = read_settings()
            return self._settings

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the machine's configuration is not used, and why; for showing to the user."""
        return self.settings.notes

    @property
    def place(self) -> str:
        """The hosts of the default index, for messages; never with credentials."""
        return self._place("default")

    def project_files(self, project: str, index: str = "default") -> list[IndexFile]:
        """Every file of ``project``: on the host's own indexes together, or on the one whose base URL is given.

        Raises :class:`UnknownNameError` where no index has the project, :class:`BuildError` (``index-unreachable``) where one
        cannot be asked.
        """
        return self._page(project, index).result()

    def prefetch(self, projects: Iterable[str], index: str = "default") -> None:
        """Start asking for several projects at once; what goes wrong is raised by :meth:`project_files`, if ever asked."""
        for project in projects:
            self._page(project, index)

    def file_of(self, artifact: Artifact) -> IndexFile:
        """Where the index offers a locked file today; the sha256 is the lock's, whatever the index says."""
        for file in self.project_files(artifact.project, artifact.index):
            if file.filename == artifact.filename and file.sha256 in ("", artifact.sha256):
                return file
        raise BuildError(
            f"The package index at {self._place(artifact.index)} no longer offers {artifact.filename} with the locked hash.",
            code="artifact-gone",
            hint=f"Lock the environment again, or use an index that still has {artifact.name} {artifact.version}.",
        )

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ignore_progress) -> Path:
        """A locked file in ``folder``, checked against the lock's sha256; no index is asked where it is there already."""
        held = folder / artifact.filename
        if held.is_file() and sha256_of(held) == artifact.sha256:
            return held
        return self.download(self.file_of(artifact), folder, on_progress, sha256=artifact.sha256)

    def download(self, file: IndexFile, folder: Path, on_progress: OnProgress = ignore_progress, *, sha256: str = "") -> Path:
        """The file, whole and checked, in ``folder``; at once where it is there already.

        A kill at any moment leaves at most a ``.part`` file, which the next download of that file overwrites.
        """
        wanted = sha256 or file.sha256
        target = folder / file.filename
        with locked(folder / f".{file.filename}.lock"):
            if wanted and target.is_file() and sha256_of(target) == wanted:
                return target
            part = folder / f".{file.filename}.part"
            try:
                with part.open("wb") as out:
                    self._stream(file, out.write, on_progress)
                    out.flush()
                    os.fsync(out.fileno())
                _must_match(file, sha256_of(part), wanted)
                part.replace(target)
            except OSError as error:
                raise explain_os_error(error, target) from error
            finally:
                part.unlink(missing_ok=True)
        return target

    def inspect(self, file: IndexFile, on_progress: OnProgress = ignore_progress, *, sha256: str = "") -> None:
        """Read the file through to its end and check it as :meth:`download` does; nothing of it is kept."""
        seen = hashlib.sha256()
        self._stream(file, seen.update, on_progress)
        _must_match(file, seen.hexdigest(), sha256 or file.sha256)

    def read_range(self, url: str, start: int, end: int | None) -> tuple[bytes, int] | None:
        """Bytes ``start`` to ``end`` (inclusive; the last ``-start`` bytes where ``start`` is negative) and the whole size.

        None where the server does not serve parts of files.
        """
        what = f"bytes={start}" if start < 0 else f"bytes={start}-{end if end is not None else ''}"
        with self._get(url, file=_name_in(url), headers={"Range": what, "Accept-Encoding": "identity"}, stream=True) as answer:
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status_code != 206 or not total.isdigit():
                return None
            return answer.content, int(total)

    def fetch_bytes(self, url: str) -> bytes:
        """A small file, whole."""
        return self._get(url, file=_name_in(url)).content

    def size_of(self, file: IndexFile) -> int | None:
        """The file's size in bytes: as the index says, else as its server says."""
        if file.size is not None:
            return file.size
        with self._get(file.url, file=file.filename, method="HEAD", any_status=True) as answer:
            length = answer.headers.get("Content-Length", "") if answer.ok else ""
        return int(length) if length.isdigit() else None

    def sizes(self, files: Iterable[IndexFile]) -> list[int | None]:
        """:meth:`size_of` for several files at once, in their order."""
        _ = self._http()
        return [future.result() for future in [self._pool.submit(self.size_of, file) for file in files]]

    def uv_environment(self) -> dict[str, str]:
        """Variables that make uv on this machine use the same indexes, certificates and proxies."""
        from envbuild.index.handover import uv_variables

        return uv_variables(self.settings, ca_bundle=self.settings.ca_bundle)

    def pip_environment(self) -> dict[str, str]:
        """Variables that make any pip on this machine use the same indexes, certificates and proxies, and nothing local."""
        from envbuild.index.handover import pip_variables

        return pip_variables(self.settings, ca_bundle=self.settings.ca_bundle)

    def build_secrets(self) -> dict[str, bytes]:
        """What a build needs to reach the index: secret id → content. Never write these where they could be kept."""
        from envbuild.index.handover import build_secrets

        return build_secrets(self.settings)

    def _page(self, project: str, index: str) -> Future[list[IndexFile]]:
        key = (index, canonicalize_name(project))
        with self._guard:
            if key not in self._pages:
                _ = self._http()  # made here, so that the threads share one
                self._pages[key] = self._pool.submit(self._fetch_page, key[1], index)
            return self._pages[key]

    def _fetch_page(self, project: str, index: str) -> list[IndexFile]:
        bases = self.settings.indexes if index == "default" else (index,)
        files: dict[tuple[str, str], IndexFile] = {}
        found = False
        for base in bases:
            answer = self._get(urljoin(base.rstrip("/") + "/", f"{project}/"), headers={"Accept": ACCEPT}, any_status=True)
            if answer.status_code in (404, 410):
                continue
            _must_be_ok(answer, base)
            found = True
            kind = answer.headers.get("Content-Type", "")
            try:
                page = parse(
                    answer.content.decode("utf-8", "replace"), content_type=kind, url=answer.url, project=project, index=index
                )
            except ValueError as error:
                raise _unreachable(base, f"its page of {project} cannot be understood ({error})") from error
            for file in page:
                files.setdefault((file.filename, file.sha256), file)
        if not found:
            raise UnknownNameError(
                f"The package index at {self._place(index)} has no project named {project}.",
                code="unknown-project",
                hint="Look at the spelling in envbuild.yaml, the matrix or the recipe, or at pip's index-url on this machine.",
            )
        return list(files.values())

    def _place(self, index: str) -> str:
        return " and ".join(host_of(url) for url in (self.settings.indexes if index == "default" else (index,)))

    def _stream(self, file: IndexFile, write: Callable[[bytes], object], on_progress: OnProgress) -> None:
        import requests
        import urllib3

        with self._get(file.url, file=file.filename, headers={"Accept-Encoding": "identity"}, stream=True) as answer:
            length = answer.headers.get("Content-Length", "")
            total = float(length) if length.isdigit() else None
            done = 0
            try:
                for piece in answer.iter_content(_PIECE):
                    write(piece)
                    done += len(piece)
                    on_progress(Progress(stage="download", message=file.filename, done=done, total=total, unit="bytes"))
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                raise _unreachable(file.url, f"the download broke off: {_why(error)}", file=file.filename) from error
            if total is not None and done != total:
                raise _unreachable(file.url, f"the download broke off after {done} of {length} bytes", file=file.filename)

    def _get(
        self,
        url: str,
        *,
        file: str = "",
        method: str = "GET",
        headers: dict[str, str] | None = None,
        stream: bool = False,
        any_status: bool = False,
    ) -> requests.Response:
        """What ``url`` answers; ``file`` is the name of the file that it is, empty for a page of an index."""
        import requests

        settings, host = self.settings, host_of(url)
        if host in self._down:
            raise _unreachable(url, self._down[host], file=file)
        try:
            answer = self._http().request(
                method,
                url,
                headers=headers,
                stream=stream,
                allow_redirects=True,
                timeout=(min(_CONNECT_S, settings.timeout_s), settings.timeout_s),
                # Said with every request: requests would let REQUESTS_CA_BUNDLE win over the session's.
                verify=False if is_trusted(url, settings.trusted_hosts) else settings.ca_bundle,
            )
        except (requests.RequestException, OSError) as error:
            # Not asked again by this object: dozens of queued questions would each wait for the same time-out.
            self._down[host] = _why(error)
            raise _unreachable(url, self._down[host], file=file) from error
        if not any_status:
            _must_be_ok(answer, url, file=file)
        return answer

    def _http(self) -> requests.Session:
        with self._first:
            if self._session is None:
                self._session = _make_session(self.settings)
            return self._session


def _make_session(settings: Settings) -> requests.Session:
    import requests
    import urllib3
    from pip._internal.network.auth import MultiDomainBasicAuth
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    retries = urllib3.Retry(
        total=_RETRIES,
        connect=1,
        backoff_factor=0.3,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
        read=_RETRIES,
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries, pool_maxsize=_PARALLEL * 2))
    # pip's own rules for credentials: in the URL, in netrc, in the keyring, per index.
    session.auth = MultiDomainBasicAuth(  # type: ignore[assignment]
        prompting=False, index_urls=list(settings.indexes), keyring_provider=settings.keyring_provider
    )
    if settings.proxy:
        session.proxies = {"http": settings.proxy, "https": settings.proxy}
        session.trust_env = False
    if settings.client_cert:
        session.cert = settings.client_cert
    if settings.trusted_hosts:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session


def _must_match(file: IndexFile, found: str, wanted: str) -> None:
    if wanted and found != wanted:
        raise BuildError(
            f"{file.filename} from {host_of(file.url)} is not the expected file: sha256 {found}, not {wanted}.",
            code="hash-differs",
            hint="The download was damaged or the file was replaced: try again; if it stays, distrust the index.",
        )


def _must_be_ok(answer: requests.Response, url: str, *, file: str = "") -> None:
    if answer.status_code >= 400:
        answer.close()
        raise _unreachable(url, f"it answered {answer.status_code} {answer.reason or ''}".strip(), file=file)


def _why(error: BaseException) -> str:
    """The innermost reason, in one line: what the operating system or the TLS library said."""
    seen: BaseException = error
    while True:
        inner = getattr(seen, "reason", None) or seen.__cause__ or (seen.args[0] if seen.args else None)
        if not isinstance(inner, BaseException) or inner is seen:
            break
        seen = inner
    text = without_credentials(str(seen).strip() or type(seen).__name__)
    return text.rpartition("> ")[2] or text  # urllib3 puts the connection's repr before the reason


def _name_in(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _unreachable(url: str, why: str, *, file: str = "") -> BuildError:
    """A host that gives no page of an index, or not the ``file`` that is named: what lies where need not be an index."""
    what = f"{file} could not be had from {host_of(url)}" if file else f"The package index at {host_of(url)} could not be used"
    return BuildError(
        f"{what}: {why}.",
        code="index-unreachable",
        hint="Check the network, proxy and certificate settings that pip uses here (`pip config list`), then run it again: "
        "what was fetched already is kept.",
    )
