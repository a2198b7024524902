"""Errors of registries (refused requests, wrong answers, failed connections), with hints for the user."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

import requests

from envbuild.errors import PublishError

UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
CERTIFICATES = Path("/etc/docker/certs.d")
_AGAIN = "Run the command again."
_AGAIN_WITH_LAYERS = "Run the command again: it transfers only the layers that are still missing."
# docker-registry answers 500 without a reason if its disk is full.
_LOOK_INTO_LOG = " If it is refused again, the log of the registry has the cause, for example a full disk."
_FAILED_INSIDE = (500, 507)
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH)
_OTHER_DIGEST = "DIGEST_INVALID"  # an error code of the distribution specification
_LONGEST = 300  # characters of a registry's message that are shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A repository of a registry, for example ``lab/images`` of the host ``ghcr.io``."""

    host: str
    name: str

    def __str__(self) -> str:
        return f"{self.host}/{self.name}"


class PassingError(Exception):
    """A temporary failure, so the next attempt may succeed. ``reason`` is the error to raise if no attempt succeeds."""

    def __init__(self, reason: PublishError, retry_after: str = "") -> None:
        super().__init__(reason.message)
        self.reason = reason
        self.asked_for = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0


def bad_name(text: str, why: str = "") -> PublishError:
    """The error for a ``text`` that does not name a repository. ``why`` is the reason as a sentence. If ``why`` is empty, the
    error states the right form."""
    return PublishError(
        f"{text!r} is not the name of a repository.",
        code="repository-name",
        hint=why or "Write HOST/REPOSITORY in lower case and without a tag, for example registry.example.org/lab/images",
    )


def insecure(repository: Repository, address: str) -> PublishError:
    """The error if a request by https gets an answer that names an ``address`` without TLS."""
    return PublishError(
        f"The registry of {repository} redirects to an address without TLS: {address.partition('?')[0][:_LONGEST]!r}.",
        code="insecure-address",
        hint="Tell the operator of the registry. If a proxy ends TLS, it must send the header X-Forwarded-Proto.",
    )


def bad_reference(repository: Repository, reference: str) -> PublishError:
    """The error for text that is neither a tag nor a digest. Such text could address something outside the repository."""
    return PublishError(
        f"{repository} has no image {reference[:_LONGEST]!r}: this is neither a tag nor a digest.",
        code="not-in-registry",
        hint="A tag has up to 128 letters, digits, '.', '_' and '-'; a digest is sha256: and 64 hexadecimal digits.",
    )


def no_registry(repository: Repository, address: str = "") -> PublishError:
    """The error for a host that is not a registry. If the host answered with a web page, ``address`` is the address of this
    page."""
    page = f": it sent the web page {address.partition('?')[0][:_LONGEST]!r}" if address else ""
    return PublishError(
        f"{repository.host} does not answer as a registry{page}.",
        code="unknown-format",
        hint="Check the name. A web page, or the login page of a proxy, may be at this address.",
    )


def tag_taken(repository: Repository, tag: str, there: str) -> PublishError:
    """The error if a tag that never moves is on another image, which has the digest ``there`` (empty: the tag was removed)."""
    return PublishError(
        f"{repository}:{tag} is already a different image ({there})."
        if there
        else f"Another process removed {repository}:{tag} at the same time.",
        code="tag-taken",
        hint="This tag never moves. Remove it from the registry, or push to another repository."
        if there
        else "Run the command again.",
    )


def tag_moved(repository: Repository, tag: str, there: str) -> PublishError:
    """The error if another process has moved a tag to the digest ``there`` in the meantime (empty: the tag was removed)."""
    return PublishError(
        f"Another process moved {repository}:{tag} at the same time ({there or 'it was removed'}).",
        code="tag-moved",
        hint="Somebody else is pushing to this tag. Run the command again if the tag must name your image.",
    )


def is_web_page(answer: requests.Response) -> bool:
    """Whether the header of an answer says that it is HTML. No document of a registry is HTML."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml")


def refused(
    repository: Repository, verb: str, method: str, answer: requests.Response, *, has_layers: bool = False
) -> PublishError:
    """The error for a refused request. ``verb`` is the action that the user requested, such as ``pull from``. ``has_layers`` is
    true if the command transfers layers."""
    try:
        told = answer.json()["errors"][0]
        words = f"{told.get('code', '')}: {told.get('message', '')}".strip(": ")
    except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError):
        words = answer.reason or ""
    words = "".join(each if each.isprintable() else " " for each in words[:_LONGEST])
    what = f"{answer.status_code} {words}".strip()
    if is_web_page(answer):
        what = f"{what}, with a web page, perhaps of a proxy"
    if answer.status_code in (401, 403):
        return PublishError(
            f"The registry does not let this user {verb} {repository} ({what}).",
            code="denied",
            hint=f"Run `docker login {repository.host}` as a user who may {'write' if 'push' in verb else 'read'} there.",
        )
    return PublishError(
        f"The registry of {repository} refused a request ({f'{method} ' if method else ''}{what}).",
        code="registry-refused",
        hint=(_AGAIN_WITH_LAYERS if has_layers else _AGAIN)
        + (_LOOK_INTO_LOG if method not in ("GET", "HEAD") and answer.status_code in _FAILED_INSIDE else ""),
    )


def is_other_digest(error: PublishError) -> bool:
    """Whether a registry refused an upload because it computed another digest."""
    return error.code == "registry-refused" and _OTHER_DIGEST in error.message


def other_size(repository: Repository, digest: str) -> PublishError:
    """The error for a blob whose size differs from the announced size."""
    return PublishError(
        f"The answer of {repository} for sha256:{digest} has a different size than its manifest says.",
        code="digest-differs",
        hint="Either a program between this machine and the registry changes the data, or the registry's disk is damaged. "
        "Tell the operator of the registry.",
    )


def too_long(repository: Repository, url: str, largest: int) -> PublishError:
    """The error for a document of more than ``largest`` bytes."""
    return PublishError(
        f"{url.partition('?')[0]} of {repository} is longer than {largest >> 20} MiB.",
        code="too-long",
        hint="Anybody who may write to the repository could have attached so many statements: `oras discover` lists them.",
    )


def broken_off(repository: Repository) -> PublishError:
    """The error for a blob that ended too early."""
    return PublishError(
        f"The registry of {repository} stopped in the middle of a layer.",
        code="registry-unreachable",
        hint=_AGAIN_WITH_LAYERS,
    )


def unreachable(repository: Repository, error: Exception, *, has_layers: bool = False, is_new: bool = False) -> PublishError:
    """The error for a connection that failed with ``error``. ``has_layers`` is true if the command transfers layers. ``is_new``
    is true if the registry has never answered, so that its name may be wrong."""
    words = " ".join(str(error).split())
    certificate = UNTRUSTED in words
    if is_never_connected(error) or (is_new and is_silent(error)):
        hint = (
            f"Check that {repository.host} is the name and port of the registry, and that it runs. Then run the command again."
        )
    else:
        hint = _AGAIN_WITH_LAYERS if has_layers else _AGAIN
    return PublishError(
        f"The registry of {repository} cannot be reached: {_cause(error)}.",
        code="registry-unreachable",
        hint=f"Put its CA into {CERTIFICATES / repository.host}/ca.crt, or name a bundle in REQUESTS_CA_BUNDLE."
        if certificate
        else hint,
    )


def no_token(repository: Repository, realm: str, error: Exception) -> PublishError:
    """The error if the server at ``realm``, to which the registry sends its users for a token, gave none because of
    ``error``."""
    return PublishError(
        f"The login server of {repository} ({realm.partition('?')[0][:_LONGEST]}) gave no token: {_cause(error)}.",
        code="registry-unreachable",
        hint=f"{_AGAIN} If the error stays, tell the operator of the registry, which names this server.",
    )


def is_never_connected(error: BaseException | None) -> bool:
    """Whether ``error`` means that no connection was made: the name cannot be resolved, the address cannot be reached, or no
    program listens there."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    first = _first(error)
    return isinstance(first, ConnectionRefusedError | socket.gaierror) or getattr(first, "errno", None) in _NO_ROUTE


def is_silent(error: BaseException | None) -> bool:
    """Whether ``error`` means that a connection was made, and that the registry then sent no answer or stopped reading."""
    return not is_never_connected(error) and isinstance(_first(error), TimeoutError)


def _first(error: BaseException | None) -> BaseException | None:
    while error is not None and (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _cause(error: BaseException) -> str:
    """Return the operating system's message of the first failure. The text of `requests` would also contain the address
    twice."""
    error = _first(error) or error
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return words[:_LONGEST].rstrip(".") or type(error).__name__
