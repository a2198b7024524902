"""A client for one repository of a registry: it gets tokens, repeats failed requests, and explains errors.

The protocol: https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md. Requests for tokens follow
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests

from envbuild.compose.outputs.bounded_adapter import BoundedAdapter
from envbuild.compose.outputs.credentials import DOCKER_HUB, Credentials
from envbuild.compose.outputs.registry_errors import (
    UNTRUSTED,
    PassingError,
    Repository,
    bad_name,
    bad_reference,
    broken_off,
    insecure,
    is_never_connected,
    is_other_digest,
    is_silent,
    no_token,
    other_size,
    refused,
    too_long,
    unreachable,
)
from envbuild.compose.outputs.registry_requests import Body, Unsized, patience, with_digest
from envbuild.compose.outputs.registry_trust import Header, Session, is_local, trust
from envbuild.errors import PublishError

T = TypeVar("T")
Answer = tuple[requests.Response, bytes]
_ATTEMPTS = 6
_FEW_ATTEMPTS = 3  # if the host is silent, or has never answered and cannot be connected to; the pauses are about 2 s in total
_ANSWERED: set[str] = set()  # hosts that answered this process before; if such a host is down, it may only be restarting
_LONGEST_PAUSE_S = 60.0
_CONNECT_S = 10
_PIECE = 1 << 18
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_UPLOAD_LOST = (404, 409, 416)  # the registry has forgotten the upload, or has received another number of bytes
_TOKEN = re.compile("[!-~]+")
_REFERENCE = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64}")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_TARGET = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")


def parse(text: str) -> Repository:
    """Parse ``HOST/REPOSITORY``. Raises :class:`PublishError` (``repository-name``) if ``text`` has another form."""
    host, _, name = text.partition("/")
    if "@" in text.partition("@sha256:")[0]:  # the error does not quote this part, which may be a password
        raise PublishError(
            "The name of a repository has a user name or a password before its host.",
            code="repository-name",
            hint=f"Write {text.rpartition('@')[2]}, and log in with `docker login`.",
        )
    found = _HOST.fullmatch(host)
    if not _TARGET.fullmatch(name) or not found or not ("." in host or ":" in host or host == "localhost"):
        raise bad_name(text)
    if found[1] and not 0 < int(found[1]) < 65536:
        raise bad_name(text, f"A port is a number from 1 to 65535, not {found[1]}.")
    return Repository(host=host, name=name)


class Client:
    """Sends requests to one repository. Threads may share the client."""

    def __init__(
        self,
        repository: Repository,
        credentials: Credentials,
        *,
        also_read: tuple[str, ...] = (),
        writes: bool = True,
        deletes: bool = False,
        has_layers: bool = False,
        pause: Callable[[float], object] = time.sleep,
        on_retry: Callable[[str], object] = lambda _words: None,
    ) -> None:
        """``also_read`` names other repositories of the registry, from which layers are copied. Tokens include the right to
        read, to write if ``writes`` is true, and to delete if ``deletes`` is true. If ``has_layers`` is true, errors mention
        layers. ``pause`` waits before a request is repeated. If ``pause`` returns True, the request is not repeated."""
        self.repository = repository
        self._credentials = credentials
        self._has_layers = has_layers
        self._also_read = also_read
        self._rights, self._verb = ("pull,push", "push to") if writes else ("pull", "pull from")
        if deletes:
            self._rights, self._verb = f"{self._rights},delete", "delete from"
        self._pause = pause
        self._on_retry = on_retry
        self._authorization = ""
        self._lock = threading.Lock()
        self._session = Session(repository)
        self._session.mount("https://", BoundedAdapter(pool_maxsize=8))
        self._session.mount("http://", BoundedAdapter(pool_maxsize=8))
        self._verify = trust(self._session, repository.host)
        self._base = self._find_base()

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def url(self, path: str) -> str:
        """The address of ``path`` (a blob, a manifest or an upload) in the repository. Raises :class:`PublishError` for a bad
        tag."""
        if path.startswith("manifests/") and not _REFERENCE.fullmatch(path, len("manifests/")):
            raise bad_reference(self.repository, path.removeprefix("manifests/"))
        return f"{self._base}/v2/{self.repository.name}/{path}"

    def absolute(self, base: str, address: str) -> str:
        """Make ``address`` absolute. The registry gave this address in its answer from the URL ``base``. Raises
        :class:`PublishError` if the address is invalid."""
        try:
            return urljoin(base, address)
        except ValueError as error:
            raise self._unreachable(error) from error

    def ask(
        self,
        method: str,
        url: str,
        expected: tuple[int, ...],
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> requests.Response:
        """Send a request, and return the answer, which has an ``expected`` status. Repeat the request after temporary failures.
        Raises :class:`PublishError`."""
        return self._try(lambda: self._once(method, url, expected, headers=headers, body=body))

    def ask_long(self, url: str, expected: tuple[int, ...], largest: int, headers: Mapping[str, str]) -> Answer:
        """Send a GET request. Return the answer, and its body of at most ``largest`` bytes. Raises the errors of :meth:`ask`,
        and ``too-long``."""

        def attempt() -> Answer:
            with self._once("GET", url, expected, headers=headers, stream=True) as answer:
                content = bytearray()
                try:
                    for piece in answer.iter_content(_PIECE):
                        content += piece
                        if len(content) > largest:
                            raise too_long(self.repository, url, largest)
                except requests.RequestException as error:
                    raise PassingError(self._unreachable(error)) from error
                return answer, bytes(content)

        return self._try(attempt)

    def blob(self, digest: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of a blob, at most ``size``. The caller compares the digest. An interrupted transfer continues where
        it stopped.

        Raises :class:`PublishError` if several attempts in succession give no bytes.
        """
        done = failures = 0
        while done < size:
            before = done
            try:
                for piece in self._blob_from(digest, size, done):
                    done += len(piece)
                    if done > size:
                        raise other_size(self.repository, digest)
                    yield piece
                if done < size:
                    raise PassingError(broken_off(self.repository))
            except PassingError as passing:
                failures = 1 if done > before else failures + 1
                if failures >= self._most_attempts(passing):
                    raise passing.reason from passing
                self._wait(failures, passing)

    def _blob_from(self, digest: str, size: int, begin: int) -> Iterator[bytes]:
        """Yield the rest of a blob, from offset ``begin`` on. If the registry ignores the range and sends the whole blob, the
        first bytes are dropped here."""
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={begin}-"} if begin else {})}
        with self._once("GET", self.url(f"blobs/sha256:{digest}"), (200, 206), headers=headers, stream=True) as answer:
            told = answer.headers.get("Content-Length", "")
            is_whole = answer.status_code == 200 and "Content-Encoding" not in answer.headers
            if is_whole and re.fullmatch("[0-9]{1,19}", told) and int(told) != size:
                raise other_size(self.repository, digest)
            drop = begin if answer.status_code == 200 else 0
            try:
                for piece in answer.iter_content(_PIECE):
                    if drop < len(piece):
                        yield piece[drop:]
                    drop = max(0, drop - len(piece))
            except requests.RequestException as error:
                raise PassingError(self._unreachable(error)) from error

    def upload(self, digest: str, body: Body | bytes) -> None:
        """Send a blob in one request. After a temporary failure, send it again from the beginning as a new upload.

        If the registry computes another digest, send the blob once more.
        """
        try:
            self._try(lambda: self._upload_once(digest, body))
        except PublishError as error:
            if not is_other_digest(error):
                raise
            if self.ask("HEAD", self.url(f"blobs/sha256:{digest}"), (200, 404)).status_code == 404:
                self._try(lambda: self._upload_once(digest, body))

    def _upload_once(self, digest: str, body: Body | bytes) -> requests.Response:
        began = self._once("POST", self.url("blobs/uploads/"), (202,))
        try:
            location = urljoin(began.url, began.headers.get("Location", ""))
        except ValueError as error:
            raise PassingError(self._unreachable(error)) from error
        kind = {"Content-Type": "application/octet-stream"}
        passing = (*_TRANSIENT, *_UPLOAD_LOST)
        return self._once("PUT", with_digest(location, digest), (201,), headers=kind, body=body, passing=passing)

    def upload_unfinished(self, pieces: Callable[[], Iterator[bytes]], digest: Callable[[], str]) -> None:
        """Send a blob that is still being written. Do not repeat a failed request. When ``pieces`` has yielded all bytes,
        ``digest`` returns the digest.

        If ``pieces`` raises, finish the request: the answer names the upload, so that the registry can be told to delete it.
        """
        failed: list[Exception] = []

        def until_failure() -> Iterator[bytes]:
            try:
                yield from pieces()
            except Exception as error:
                failed.append(error)

        began = self._once("POST", self.url("blobs/uploads/"), (202,))
        kind = {"Content-Type": "application/octet-stream"}
        location = self.absolute(began.url, began.headers.get("Location", ""))
        sent = self._once("PATCH", location, (202, 204), headers=kind, body=Unsized(until_failure))
        location = self.absolute(sent.url, sent.headers.get("Location", location))
        if failed:
            with contextlib.suppress(PublishError, PassingError):  # some registries cannot delete an upload
                self._once("DELETE", location, (204,))
            raise failed[0]
        self._once("PUT", with_digest(location, digest()), (201,), headers=kind, body=b"")

    def _try(self, attempt: Callable[[], T]) -> T:
        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except PassingError as passing:
                if number >= self._most_attempts(passing):
                    raise passing.reason from passing
                self._wait(number, passing)
        raise AssertionError("the last attempt returns or raises")

    def _most_attempts(self, passing: PassingError) -> int:
        """The number of attempts. It is lower after silence, because each attempt then takes long. It is also lower if no
        connection succeeded, and the registry has never answered this process: its address may then be wrong."""
        cause = passing.__cause__
        return _FEW_ATTEMPTS if is_silent(cause) or (is_never_connected(cause) and self._is_new()) else _ATTEMPTS

    def _is_new(self) -> bool:
        return self.repository.host not in _ANSWERED

    def _unreachable(self, error: Exception) -> PublishError:
        return unreachable(self.repository, error, has_layers=self._has_layers, is_new=self._is_new())

    def _refused(self, method: str, answer: requests.Response) -> PublishError:
        return refused(self.repository, self._verb, method, answer, has_layers=self._has_layers)

    def _once(
        self,
        method: str,
        url: str,
        expected: tuple[int, ...],
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Body | Unsized | None = None,
        passing: tuple[int, ...] = _TRANSIENT,
        stream: bool = False,
    ) -> requests.Response:
        """Send a request. If the registry demands a token, get one and send the request again."""
        try:
            used = self._authorization
            answer = self._send(method, url, headers, body, used, stream=stream)
            if answer.status_code == 401 and self._is_own(answer.url):
                self._authorize(answer, used)
                answer = self._send(method, url, headers, body, self._authorization, stream=stream)
        except (requests.RequestException, ValueError) as error:  # the registry may send an invalid address
            raise PassingError(self._unreachable(error)) from error
        if answer.status_code in expected:
            return answer
        refusal = self._refused(method, answer)
        # docker-registry 2.8 may read a file that it is still writing for another client. It then answers 500, or says that the
        # digest of a manifest is wrong.
        if answer.status_code in passing or ("/manifests/" in url and is_other_digest(refusal)):
            raise PassingError(refusal, answer.headers.get("Retry-After", ""))
        raise refusal

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        body: bytes | Body | Unsized | None,
        authorization: str,
        *,
        stream: bool,
    ) -> requests.Response:
        own = self._is_own(url)  # an upload may go to another server, if the registry says so
        if not own:
            self._require_tls(url)
        data: Any = body
        answer = self._session.request(
            method,
            url,
            headers=dict(headers or {}),
            data=data,
            auth=Header(authorization if own else ""),
            timeout=(_CONNECT_S, patience(method, url, is_first=self._is_new())),
            verify=self._verify,
            allow_redirects=method in ("GET", "HEAD"),
            stream=stream,
        )
        _ANSWERED.add(self.repository.host)
        return self._session.checked(answer)

    def _is_own(self, url: str) -> bool:
        """Whether ``url`` is at the registry itself. Passwords and tokens are sent to no other host, and never by http if the
        registry uses https."""
        return urlsplit(url)[:2] == urlsplit(self._base)[:2]

    def _require_tls(self, url: str) -> None:
        if urlsplit(url).scheme != "https" and urlsplit(self._base).scheme == "https":
            raise insecure(self.repository, url)

    def _wait(self, number: int, passing: PassingError) -> None:
        """Wait before the next attempt: longer after each attempt, and at least as long as the registry demands."""
        seconds = 0.5 * 2 ** (number - 1) * random.uniform(1, 1.5)  # noqa: S311 - clients must not all retry at once
        seconds = min(max(seconds, passing.asked_for), _LONGEST_PAUSE_S)
        self._on_retry(f"{passing.reason.message.rstrip('.')}; trying again in {seconds:.0f} s")
        if self._pause(seconds) is True:  # another layer failed or Ctrl-C was pressed
            raise passing.reason from passing

    def _find_base(self) -> str:
        """The registry's address. It begins with http only if the registry is on this machine and does not support https."""
        host = "registry-1.docker.io" if self.repository.host == DOCKER_HUB else self.repository.host
        if is_local(host):
            try:
                self._session.get(f"https://{host}/v2/", timeout=_CONNECT_S, auth=Header(""), verify=self._verify)
            except requests.RequestException as error:
                return f"https://{host}" if UNTRUSTED in str(error) else f"http://{host}"
        return f"https://{host}"

    def _authorize(self, answer: requests.Response, used: str) -> None:
        """Get the token that the registry demands in ``answer``, unless another thread has already got one."""
        with self._lock:
            if self._authorization != used:
                return
            kind, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
            if kind.lower() == "basic" and self._credentials.basic and used != self._credentials.basic:
                self._authorization = self._credentials.basic
            elif kind.lower() == "bearer":
                self._authorization = f"Bearer {self._token(dict(_PARAMETER.findall(rest)))}"
            else:
                raise self._refused("", answer)

    def _token(self, said: Mapping[str, str]) -> str:
        scopes = [f"repository:{self.repository.name}:{self._rights}", *(f"repository:{name}:pull" for name in self._also_read)]
        realm, service = said.get("realm", ""), said.get("service", "")
        who = self._credentials
        try:
            self._require_tls(realm)
            if who.identity_token:
                form = {"grant_type": "refresh_token", "service": service, "client_id": "envbuild", "scope": " ".join(scopes)}
                form["refresh_token"] = who.identity_token
                answer = self._session.post(realm, data=form, timeout=_CONNECT_S, auth=Header(""), allow_redirects=False)
            else:
                query = {"service": service, "scope": scopes}
                answer = self._session.get(realm, params=query, timeout=_CONNECT_S, auth=Header(who.basic))
            if answer.status_code in _TRANSIENT:
                raise PassingError(self._refused("GET", answer), answer.headers.get("Retry-After", ""))
            if answer.status_code != 200:
                raise self._refused("GET", answer)
            told = answer.json()
            token = str(told.get("token") or told["access_token"])
            if not _TOKEN.fullmatch(token):
                raise ValueError("its answer to a request for a token is not a token")
            return token
        except (requests.RequestException, ValueError, LookupError, AttributeError) as error:
            raise PassingError(no_token(self.repository, realm, error)) from error
