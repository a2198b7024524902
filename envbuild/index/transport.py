"""Query servers with limits on bytes and time, and report a long wait.

``requests`` limits the time between two bytes, not the time of a whole answer. A server that sends one byte every few seconds,
in the headers or the body, blocks ``requests`` for ever. So each exchange runs in its own thread, and the waiting thread breaks
the connection at the end of the time limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from envbuild import network
from envbuild.index import limits
from envbuild.index.deadlines import BrokenOffError, Clock, TookTooLongError, Watch, note_socket, watched
from envbuild.index.server_errors import refused, unfit, unreachable
from envbuild.index.settings import Settings, host_of, is_trusted, without_credentials

if TYPE_CHECKING:
    import requests

_PIECE = 64 * 2**10
# Status codes with which servers refuse to send a part of a file.
_NO_PARTS = (400, 405, 416, 501)
_BUSY = (429, 500, 502, 503, 504)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A complete answer. ``url`` is the final address after redirects."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Queries servers with this machine's settings. After a host has not answered, this object does not query it again."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._session = _make_session(settings)
        self._dead: dict[str, str] = {}
        self._answered: set[str] = set()
        self._broken: dict[str, int] = {}
        self._limit_s = max(limits.ANSWER_S, limits.PATIENT * settings.timeout_s)

    def is_dead(self, url: str) -> bool:
        """Whether the host of ``url`` is no longer queried, because it did not answer before."""
        return host_of(url) in self._dead

    def ask(
        self,
        url: str,
        *,
        most: int,
        file: str = "",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        any_status: bool = False,
    ) -> Answer:
        """Return the whole answer, of at most ``most`` bytes. ``file`` is the name of the requested file, or empty for a page.

        Raises :class:`BuildError` (``index-unreachable``), or :class:`FileUnavailableError` if only this file is affected.
        """

        def exchange(watch: Watch) -> Answer:
            with self._request(method, url, headers) as answer:
                content = _body(answer, most, watch) if method != "HEAD" else b""
                return Answer(
                    url=answer.url,
                    status=answer.status_code,
                    reason=answer.reason or "",
                    headers=answer.headers,
                    content=content,
                )

        answer = self._patiently(url, file, exchange)
        if answer.status >= 400 and not any_status:
            raise refused(url, answer.status, answer.reason, file=file)
        return answer

    def ask_part(
        self, url: str, start: int, end: int | None, *, headers: Mapping[str, str], file: str
    ) -> tuple[bytes, int] | None:
        """Return the requested part of a file, and the size of the file. Return None if the server does not send exactly this
        part."""

        def exchange(watch: Watch) -> Answer:
            with self._request("GET", url, headers) as answer:
                told = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})", answer.headers.get("Content-Range", ""))
                content = b""
                if answer.status_code == 206 and told:
                    first, last, total = map(int, told.groups())
                    asked = max(0, total + start) if start < 0 else start
                    ends = total - 1 if start < 0 or end is None else min(end, total - 1)
                    if (first, last) == (asked, ends) and last - first < limits.SMALL_FILE_BYTES:
                        content = _body(answer, last - first + 1, watch)
                        fits = len(content) == last - first + 1
                        size = {"whole": str(total)} if fits else {}
                        return Answer(url=url, status=206, reason="", headers=size, content=content)
                status = 200 if answer.status_code == 206 else answer.status_code
                return Answer(url=url, status=status, reason=answer.reason or "", headers=answer.headers, content=b"")

        answer = self._patiently(url, file, exchange)
        if answer.status == 206 and "whole" in answer.headers:
            return answer.content, int(answer.headers["whole"])
        if answer.status >= 400 and answer.status not in _NO_PARTS:
            raise refused(url, answer.status, answer.reason, file=file)
        return None

    def stream(
        self, url: str, write: Callable[[bytes], object], on_bytes: Callable[[int, int | None], object], *, file: str, most: int
    ) -> None:
        """Pass the bytes of a file to ``write`` as they arrive. ``on_bytes`` gets the number of bytes that have arrived, and
        the file's size if it is known."""
        host = host_of(url)

        def exchange(watch: Watch) -> Answer:
            with self._request("GET", url, {"Accept-Encoding": "identity"}) as answer:
                if answer.status_code < 400:
                    self._pour(answer, watch, write, on_bytes, file=file, most=most)
                return Answer(
                    url=url, status=answer.status_code, reason=answer.reason or "", headers=answer.headers, content=b""
                )

        try:
            answer = self._patiently(url, file, exchange, endless=True)
        except BrokenOffError as error:
            self._broken[host] = self._broken.get(host, 0) + 1
            if self._broken[host] >= limits.BROKEN_DOWNLOADS:
                self._dead[host] = f"{self._broken[host]} downloads from it were interrupted"
            raise unreachable(url, str(error), file=file) from error
        self._broken.pop(host, None)
        if answer.status >= 400:
            raise refused(url, answer.status, answer.reason, file=file)

    def _pour(
        self,
        answer: requests.Response,
        watch: Watch,
        write: Callable[[bytes], object],
        on_bytes: Callable[[int, int | None], object],
        *,
        file: str,
        most: int,
    ) -> None:
        import urllib3

        total = number(answer.headers.get("Content-Length", ""))
        if (total or 0) > most:
            raise unfit(answer.url, f"it has {total} bytes, but at most {most} are expected", file=file)
        try:
            for piece in answer.raw.stream(_PIECE, decode_content=False):
                watch.count += len(piece)
                if watch.stopped:
                    return
                if watch.count > most:
                    raise unfit(answer.url, f"it has more than the expected {most} bytes", file=file)
                write(piece)
                on_bytes(watch.count, total)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise  # an error of the disk, which must not count as a network error
            raise BrokenOffError(f"the download was interrupted: {_why(error)}") from error
        if total is not None and watch.count != total:
            raise BrokenOffError(f"the download was interrupted after {watch.count} of {total} bytes")

    def _patiently(self, url: str, file: str, exchange: Callable[[Watch], Answer], *, endless: bool = False) -> Answer:
        """Return the answer of ``exchange``. Within the time limit, retry if the server is busy or a connection broke."""
        import requests

        host = host_of(url)
        what = file or urlsplit(url).path or url
        end = time.monotonic() + self._limit_s
        for attempt in range(1, limits.ATTEMPTS + 1):
            if host in self._dead:
                raise unreachable(url, self._dead[host], file=file)
            try:
                answer = watched(exchange, Clock(host, what, end, self._say, endless=endless))
            except TookTooLongError as error:
                self._dead[host] = str(error)
                raise unreachable(url, str(error), file=file) from error
            except (requests.ConnectionError, requests.Timeout, OSError) as error:
                if (
                    isinstance(error, OSError)
                    and error.filename is not None
                    and not isinstance(error, requests.RequestException)
                ):
                    raise
                # Retry only once. If the host has not answered yet, never retry after a timeout: otherwise, dozens of queued
                # queries would each wait for the same timeout.
                is_final = isinstance(error, requests.Timeout) and host not in self._answered
                if attempt >= 2 or not isinstance(error, requests.RequestException) or is_final:
                    self._dead[host] = _why(error)
                    raise unreachable(url, self._dead[host], file=file) from error
                answer = None
            except (requests.RequestException, ValueError) as error:  # too many redirects, or an invalid address
                raise unfit(url, _why(error), file=file) from error
            if answer is not None:
                self._answered.add(host)
                if answer.status not in _BUSY or attempt == limits.ATTEMPTS:
                    return answer
            self._pause(host, answer, attempt, end, url=url, file=file)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, host: str, answer: Answer | None, attempt: int, end: float, *, url: str, file: str) -> None:
        """Wait before the next attempt: as long as the server requests, or briefly if it requests nothing. Raises an error if
        the server requests a wait that is too long."""
        wish = _retry_after(answer.headers.get("Retry-After", "")) if answer is not None else None
        wait = 0.3 * 2 ** (attempt - 1) if wish is None else wish
        if wait > min(limits.RETRY_AFTER_S, max(0.0, end - time.monotonic())):
            status = answer.status if answer is not None else 0
            why = f"it answered {status} and asks to wait {wait:.0f} s, but envbuild waits at most {limits.RETRY_AFTER_S:.0f} s"
            self._dead[host] = why
            raise unreachable(url, why, file=file)
        if wait > 1 and answer is not None:
            self._say(f"waiting {wait:.0f} s, because {host} answered {answer.status} and asks for it")
        time.sleep(wait)

    def _request(self, method: str, url: str, headers: Mapping[str, str] | None) -> requests.Response:
        network.require(f"{method} {without_credentials(url)}")
        settings = self._settings
        return self._session.request(
            method,
            url,
            headers={"Accept-Encoding": "gzip", **(headers or {})},
            stream=True,
            allow_redirects=True,
            timeout=(min(limits.CONNECT_S, settings.timeout_s), settings.timeout_s),
            # This is passed with every request, because REQUESTS_CA_BUNDLE would override a setting of the session.
            verify=False if is_trusted(url, settings.trusted_hosts) else settings.ca_bundle,
        )


def _body(answer: requests.Response, most: int, watch: Watch) -> bytes:
    """Return the unpacked body, of at most ``most`` bytes. Raises ValueError if it is longer or has an unexpected encoding."""
    import urllib3

    packed = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", ""):  # other encodings are refused: repeated gzip can turn a few bytes into gigabytes
        raise ValueError(f"its answer is compressed with {packed[:40]}, which was not requested")
    pieces = []
    try:
        for piece in answer.raw.stream(_PIECE, decode_content=True):
            watch.count += len(piece)
            if watch.count > most:
                raise ValueError(f"its answer has more than {most} bytes")
            if watch.stopped:
                break
            pieces.append(piece)
    except urllib3.exceptions.HTTPError as error:
        raise _as_requests_does(error) from error
    return b"".join(pieces)


def _as_requests_does(error: Exception) -> Exception:
    import requests
    import urllib3

    if isinstance(error, urllib3.exceptions.DecodeError):
        return requests.exceptions.ContentDecodingError(error)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return requests.ReadTimeout(error)
    return requests.ConnectionError(error)


def _retry_after(text: str) -> float | None:
    """Return the seconds to wait that the header Retry-After states, or None without this header. If the header contains a
    date, the wait counts as too long."""
    if not text:
        return None
    seconds = number(text.strip())
    return float(seconds) if seconds is not None else limits.RETRY_AFTER_S + 1


def number(text: str) -> int | None:
    """Parse a number in a header. Return None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) else None


def _make_session(settings: Settings) -> requests.Session:
    import requests
    import urllib3

    from envbuild.index import pip_internals
    from envbuild.index.http_adapter import SocketReportingAdapter

    session = requests.Session()
    session.max_redirects = 10
    for scheme in ("https://", "http://"):
        session.mount(scheme, SocketReportingAdapter(note_socket))
    session.auth = pip_internals.credentials(settings.indexes, settings.keyring_provider)
    if settings.proxy:
        session.proxies = {"http": settings.proxy, "https": settings.proxy}
        session.trust_env = False
    if settings.client_cert:
        session.cert = settings.client_cert
    if settings.trusted_hosts:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session


def name_in(url: str) -> str:
    """Return the last part of the path of ``url``."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _why(error: BaseException) -> str:
    """Return the innermost cause in one line. It usually comes from the operating system or the TLS library."""
    seen: BaseException = error
    for _ in range(20):
        inner = getattr(seen, "reason", None) or seen.__cause__ or (seen.args[0] if seen.args else None)
        if not isinstance(inner, BaseException) or inner is seen:
            break
        seen = inner
    text = without_credentials(str(seen).strip() or type(seen).__name__)[:500]
    return text.rpartition("> ")[2] or text  # urllib3 puts the repr of the connection before the reason
