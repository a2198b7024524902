"""Decides what a connection to a registry may trust: no password but the given one, no redirect to plain http, no web page in
place of a manifest, and the CA that Docker trusts for this registry."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from envbuild.compose.outputs.registry_errors import CERTIFICATES, Repository, insecure, is_web_page, no_registry

_DOCUMENTS = re.compile("/v2/.+/(?:manifests|tags)/")


class Header(AuthBase):
    """Sends exactly this Authorization header. Without this class, `requests` would take the password from ~/.netrc."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the header of ``request``. If the value is empty, set none."""
        if self._value:
            request.headers["Authorization"] = self._value
        return request


class Session(requests.Session):
    """Refuses every redirect from https to plain http, because the answer could contain a token, which everybody could then
    read."""

    def __init__(self, repository: Repository) -> None:
        super().__init__()
        self._repository = repository

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """The address to which ``resp`` redirects; None if it does not redirect. Raises :class:`PublishError`
        (``insecure-address``)."""
        target = super().get_redirect_target(resp)
        if target and urlsplit(resp.url).scheme == "https" and urlsplit(urljoin(resp.url, target)).scheme != "https":
            raise insecure(self._repository, target)
        return target

    def checked(self, answer: requests.Response) -> requests.Response:
        """Return ``answer``. Raise :class:`PublishError` (``unknown-format``) if it is a web page instead of a manifest or a
        list of tags. Without this check, the web page of a proxy could be taken for an image."""
        asked = (answer.history[0] if answer.history else answer).url
        if answer.status_code == 200 and is_web_page(answer) and _DOCUMENTS.search(urlsplit(asked).path):
            raise no_registry(self._repository, answer.url)
        return answer


def is_local(host: str) -> bool:
    """Whether ``host`` (with or without a port) is this machine. A registry on this machine may be without TLS."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def trust(session: requests.Session, host: str) -> str | None:
    """Return the file of the CA that Docker trusts for this registry, if any. Set the client certificate from the same folder.

    Pass the CA with each request: `requests` ignores the session's CA if REQUESTS_CA_BUNDLE is set.
    """
    folder = CERTIFICATES / host
    if not folder.is_dir():
        return None
    for certificate in sorted(folder.glob("*.cert")):
        session.cert = (str(certificate), str(certificate.with_suffix(".key")))
    return next((str(path) for path in sorted(folder.glob("*.crt"))), None)
