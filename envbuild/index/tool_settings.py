"""Convert the index settings to environment variables for uv and pip, and to secrets for builds. The only file that this module
reads is the CA bundle."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

from envbuild import build_secret, files
from envbuild.errors import UsageError
from envbuild.index.settings import Settings

ENV_SECRET = "envbuild-env"  # noqa: S105 - the id of a secret, not a secret
CA_SECRET = "envbuild-ca"  # noqa: S105
# The most bytes that a CA bundle may have: a little less than 500 KiB, BuildKit's limit for a secret
# (session/secrets/secrets.go, MaxSecretSize).
MAX_SECRET = 480 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.*?-----END (?:TRUSTED )?CERTIFICATE-----\n?", re.DOTALL)


def uv_variables(settings: Settings) -> dict[str, str]:
    """Return environment variables for uv. The order of indexes does not matter, because uv chooses files by the locked
    hash."""
    values = {
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_TIMEOUT": str(round(settings.timeout_s)),
        "UV_KEYRING_PROVIDER": "subprocess" if settings.keyring_provider == "subprocess" else "disabled",
        "UV_FIND_LINKS": "",
    }
    if not settings.is_default:
        values["UV_DEFAULT_INDEX"] = settings.index_url
    if settings.extra_index_urls:
        values["UV_INDEX"] = " ".join(settings.extra_index_urls)
        values["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if settings.trusted_hosts:
        values["UV_INSECURE_HOST"] = " ".join(settings.trusted_hosts)
    if settings.client_cert:
        values["SSL_CLIENT_CERT"] = settings.client_cert
    return values | _bundle_variables(settings.ca_bundle) | _proxies(settings)


def pip_variables(settings: Settings) -> dict[str, str]:
    """Return environment variables for pip of any version. They switch off package sources that exist only on this machine."""
    values = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_EXTRA_INDEX_URL": " ".join(settings.extra_index_urls),
        "PIP_TIMEOUT": str(round(settings.timeout_s)),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }
    if not settings.is_default:
        values["PIP_INDEX_URL"] = settings.index_url
    if settings.trusted_hosts:
        values["PIP_TRUSTED_HOST"] = " ".join(settings.trusted_hosts)
    if settings.client_cert:
        values["PIP_CLIENT_CERT"] = settings.client_cert
    if settings.ca_bundle:
        values["PIP_CERT"] = settings.ca_bundle
    return values | _bundle_variables(settings.ca_bundle) | _proxies(settings)


def build_secrets(settings: Settings) -> dict[str, bytes]:
    """Return the secrets of a build, as a mapping from ids to contents. The first secret is a file of ``export`` lines. If
    these lines name a CA bundle, the second secret is this bundle.

    Raises :class:`UsageError` if the bundle cannot be a secret, or if the index requires a client certificate.
    """
    if settings.client_cert:
        raise UsageError(
            f"pip's client certificate ({settings.client_cert}) cannot be passed to a build.",
            code="client-cert",
            hint="Use an index that builds can reach with a password or without one, for example a mirror.",
        )
    secrets = {}
    bundle = _small_bundle(Path(settings.ca_bundle)) if settings.ca_bundle else b""
    inside = replace(settings, ca_bundle=build_secret.CA if bundle else "")
    if bundle:
        secrets[CA_SECRET] = bundle
    variables = pip_variables(inside) | uv_variables(inside) | settings.mirrors
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    secrets[ENV_SECRET] = "".join(lines).encode()
    return secrets


def _bundle_variables(path: str) -> dict[str, str]:
    if not path:
        return {}
    return {name: path for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}


def _proxies(settings: Settings) -> dict[str, str]:
    named = settings.proxies | (dict.fromkeys(("http_proxy", "https_proxy"), settings.proxy) if settings.proxy else {})
    return named | {name.upper(): value for name, value in named.items()}


def _small_bundle(path: Path) -> bytes:
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise UsageError(
            f"The certificate bundle {path}, which pip uses here, cannot be read: {error.strerror or error}.",
            code="ca-bundle",
            hint="Correct `cert` in pip's configuration, or REQUESTS_CA_BUNDLE or SSL_CERT_FILE.",
        ) from error
    if len(content) <= MAX_SECRET:
        return content
    # A bundle that is too large often fits without the comments and duplicates that some tools add.
    reduced = b"".join(dict.fromkeys(part.rstrip(b"\n") + b"\n" for part in _CERTIFICATE.findall(content)))
    if not reduced or len(reduced) > MAX_SECRET:
        raise UsageError(
            f"The certificate bundle {path} has {len(content)} bytes, but a build secret can have at most {MAX_SECRET}.",
            code="ca-bundle",
            hint="Set REQUESTS_CA_BUNDLE, or pip's `cert`, to a bundle that contains only the authorities of your index.",
        )
    return reduced
