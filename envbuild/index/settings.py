"""Read how this machine reaches package indexes: pip's configuration, proxies, certificates, mirrors.

In the package ``index``, only this module reads environment variables.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from envbuild import download_mirrors
from envbuild.errors import UsageError
from envbuild.index import pip_internals

# Where distributions keep their certificate bundle, which includes certificate authorities that an administrator has added.
_SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of pip on this machine, and other settings that builds need to reach package indexes and mirrors.

    ``proxies`` and ``mirrors`` map names of environment variables to their values. The names of proxy variables are in lower
    case; the names for mirrors are those of :mod:`envbuild.mirrors`. ``notes`` says which settings are not used, and why. URLs
    may contain credentials: never show them unchanged.
    """

    index_url: str
    is_default: bool
    extra_index_urls: tuple[str, ...]
    ca_bundle: str
    client_cert: str
    proxy: str
    proxies: dict[str, str]
    mirrors: dict[str, str]
    trusted_hosts: tuple[str, ...]
    timeout_s: float
    keyring_provider: str
    notes: tuple[str, ...]

    @property
    def indexes(self) -> tuple[str, ...]:
        """The main index, followed by the extra indexes."""
        return (self.index_url, *self.extra_index_urls)


def read_settings() -> Settings:
    """Read pip's settings from environment variables and configuration files.

    Package sources that exist only on this machine (``file:`` indexes, find-links) are left out with a note, because a lock
    made from them would be useless elsewhere. Raises :class:`UsageError` if the main index cannot be used.
    """
    options = pip_internals.read_options()
    if options.no_index:
        raise UsageError(
            "pip is configured with no-index on this machine, so envbuild may not use any package index.",
            code="no-index",
            hint="Locking needs an index: unset PIP_NO_INDEX or no-index in pip's configuration, or lock on another machine.",
        )
    notes: list[str] = []
    if _is_local(options.index_url):
        raise UsageError(
            f"pip's index-url on this machine is {without_credentials(options.index_url)}, which no other machine can reach.",
            code="local-index",
            hint="Set index-url to an index that is served over http(s), for example with PIP_INDEX_URL.",
        )
    extra = []
    for url in options.extra_index_urls:
        if _is_local(url):
            notes.append(f"pip's extra index {without_credentials(url)} is local to this machine and is not used.")
        else:
            extra.append(url)
    notes.extend(
        f"pip's find-links {without_credentials(link)} is not an index and is not used." for link in options.find_links
    )
    settings = Settings(
        index_url=options.index_url,
        is_default=options.index_url.rstrip("/") == pip_internals.default_index().rstrip("/"),
        extra_index_urls=tuple(extra),
        ca_bundle=_ca_bundle(options.cert),
        client_cert=options.client_cert or "",
        proxy=options.proxy or "",
        proxies={name: value for name in _PROXY_VARIABLES if (value := os.environ.get(name) or os.environ.get(name.upper()))},
        mirrors={name: value.rstrip("/") for name in download_mirrors.PREFIXES if (value := os.environ.get(name))},
        trusted_hosts=tuple(options.trusted_hosts),
        timeout_s=float(options.timeout),
        keyring_provider=getattr(options, "keyring_provider", "auto"),
        notes=tuple(notes),
    )
    for url in settings.indexes:
        _refuse_insecure(url, settings.trusted_hosts)
    return settings


def without_credentials(url: str) -> str:
    """Return ``url`` without user and password, so that it can be shown."""
    return re.sub(r"//[^/@]*@", "//", url)


def host_of(url: str) -> str:
    """Return the host of ``url``, with its port if it has one, for messages and for pip's trusted hosts."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or url


def is_trusted(url: str, trusted_hosts: tuple[str, ...]) -> bool:
    """Whether pip's setting trusted-host includes the host of ``url``, with or without its port."""
    return host_of(url) in trusted_hosts or (urlsplit(url).hostname or "") in trusted_hosts


def _is_local(url: str) -> bool:
    return urlsplit(url).scheme not in ("http", "https")


def _refuse_insecure(url: str, trusted_hosts: tuple[str, ...]) -> None:
    # pip refuses such an index, too: over plain http, an attacker could change the hashes that are locked.
    if urlsplit(url).scheme == "https" or urlsplit(url).hostname in _LOCAL_HOSTS or is_trusted(url, trusted_hosts):
        return
    raise UsageError(
        f"The package index at {host_of(url)} is reached over plain http, and pip does not trust that host.",
        code="insecure-index",
        hint=f"Use https, or tell pip to trust the host: PIP_TRUSTED_HOST={urlsplit(url).hostname}.",
    )


def _ca_bundle(configured: str | None) -> str:
    if configured:
        return configured
    for name in _BUNDLE_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    for candidate in (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES):
        if candidate and Path(candidate).is_file():
            return candidate
    import certifi

    return certifi.where()
