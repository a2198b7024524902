"""Check and convert the names of images, so that other hosts can use these names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from envbuild.errors import UsageError
from envbuild.launch.hosts import Host
from envbuild.launch.launchers import Kind, Launcher

_LOCAL_HOSTS = ("localhost", "127.0.0.1")
_DIGEST = re.compile(r"(?P<name>[^@]+?)(:[^:/@]+)?@(?P<digest>sha256:[0-9a-f]{64})")


def has_registry(image: str) -> bool:
    """Whether ``image`` begins with a registry that other hosts can reach, as ``registry.example/team/envbuild:x`` does."""
    first, slash, _ = image.partition("/")
    host = first.partition(":")[0]
    return bool(slash) and ("." in first or ":" in first) and host not in _LOCAL_HOSTS


def require_reachable(
    launcher: Launcher, kind: Kind, image: str, hosts: Collection[Host], *, here: Collection[str] = ()
) -> None:
    """Refuse the name of an image that exists only on this machine if other hosts must pull the image.

    ``here`` has the names of this machine, which needs no registry. Raises :class:`UsageError` (``image-not-shared``).
    """
    if not kind.pulls or has_registry(image):
        return
    if hosts and all(host.name in (*_LOCAL_HOSTS, *here) for host in hosts):
        return
    raise UsageError(
        f"{image} is the name of an image on this machine. The hosts of {launcher.name} ({kind.name}) cannot pull it.",
        code="image-not-shared",
        hint="Push it to a registry and give --registry HOST/REPOSITORY, or --image REFERENCE. If every host already has "
        f"the image under this name (docker save, docker load), add --image {image}",
    )


def enroot_image(image: str) -> str:
    """Return the name in the form of enroot and pyxis: ``REGISTRY#IMAGE:TAG``. A file or a URI stays as it is.

    If the name has a digest, the digest replaces the tag, because enroot before 4 cannot read ``TAG@DIGEST``.
    """
    if image.startswith(("/", "./")) or image.endswith(".sqsh") or "#" in image or "://" in image:
        return image
    if (pinned := _DIGEST.fullmatch(image)) is not None:
        image = f"{pinned['name']}:{pinned['digest']}"
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and ("." in first or ":" in first or first == "localhost") else image
