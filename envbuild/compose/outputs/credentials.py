"""Finds the credentials for a registry, which ``docker login`` stores in its file or with its helper programs."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from envbuild.errors import PublishError

DOCKER_HUB = "docker.io"


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A user name and password, or a token that a registry gave in exchange for them. All fields are empty for anonymous
    access.

    The fields are left out of ``repr``, so that they never appear in a log.
    """

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of the Authorization header; empty for anonymous access."""
        if not self.username:
            return ""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def find(host: str) -> Credentials:
    """The credentials for ``host`` from Docker's configuration (``DOCKER_CONFIG``, else ``~/.docker``) and its credential
    helpers.

    Raises :class:`PublishError` (``credentials``) if the credentials cannot be read. A push without them would only end with
    "denied".
    """
    from docker import auth
    from docker.errors import DockerException

    try:
        found = auth.load_config().resolve_authconfig(auth.INDEX_NAME if host == DOCKER_HUB else host) or {}
    except (DockerException, OSError, ValueError) as error:
        raise PublishError(
            f"Docker's credentials for {host} cannot be read: {' '.join(str(error).split())}.",
            code="credentials",
            hint=f"To write them again, run `docker login {host}`. DOCKER_CONFIG names the folder of config.json.",
        ) from error
    said = {str(name).lower(): str(value or "") for name, value in found.items()}
    return Credentials(
        username=said.get("username", ""), password=said.get("password", ""), identity_token=said.get("identitytoken", "")
    )
