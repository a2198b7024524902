"""Query a registry, and pull images from it, through the engine. If the registry cannot be reached, fail within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbuild import network
from envbuild.errors import FREE_SPACE, BuildError, says_disk_full
from envbuild.model.progress import OnProgress, Progress

if TYPE_CHECKING:
    from docker import DockerClient

_ASK_S = 10
_SILENCE_S = 60


def digest(client: DockerClient, reference: str) -> str:
    """Return the digest of ``reference``. Raises :class:`BuildError` (``base-unreachable``) if the registry gives none."""
    from docker.errors import DockerException
    from requests import RequestException

    network.require(f"The digest of the image {reference}")
    before, client.api.timeout = client.api.timeout, _ASK_S
    try:
        api: Any = client.api
        answer: dict[str, Any] = api.inspect_distribution(reference)
    except (DockerException, RequestException) as error:
        raise _unreachable(reference, error) from error
    finally:
        client.api.timeout = before
    return str(answer["Descriptor"]["digest"])


def pull(client: DockerClient, reference: str, on_progress: OnProgress) -> str:
    """Pull ``reference`` and return its digest. Raises :class:`BuildError` (``base-unreachable`` or ``no-space``)."""
    from docker.errors import DockerException
    from requests import RequestException

    network.require(f"The image {reference}")
    wanted = reference if "@" in reference else f"{reference.partition('@')[0]}@{digest(client, reference)}"
    name = reference.partition("@")[0]
    repository = name.rpartition(":")[0] if ":" in name.rsplit("/", 1)[-1] else name
    pinned = f"{repository}@{wanted.partition('@')[2]}"
    before, client.api.timeout = client.api.timeout, _SILENCE_S
    layers: dict[str, tuple[float, float]] = {}
    try:
        for news in client.api.pull(pinned, stream=True, decode=True):
            if "error" in news:
                raise _failed(reference, str(news["error"]))
            _tell(news, layers, reference, on_progress)
    except (DockerException, RequestException) as error:
        raise _unreachable(reference, error) from error
    finally:
        client.api.timeout = before
    return pinned.partition("@")[2]


def _tell(news: dict[str, Any], layers: dict[str, tuple[float, float]], reference: str, on_progress: OnProgress) -> None:
    detail = news.get("progressDetail") or {}
    if news.get("status") == "Downloading" and detail.get("total"):
        layers[str(news.get("id"))] = (float(detail["current"]), float(detail["total"]))
        done, total = (sum(column) for column in zip(*layers.values(), strict=True))
        on_progress(Progress(stage="base", message=f"pulling {reference}", done=done, total=total, unit="bytes"))


def _failed(reference: str, words: str) -> BuildError:
    if says_disk_full(words):
        return BuildError(
            f"The engine's disk is full: {reference} could not be pulled ({words}).",
            code="no-space",
            hint=FREE_SPACE,
        )
    return BuildError(f"The base image {reference} could not be pulled ({words}).", code="base-unreachable")


def _unreachable(reference: str, error: Exception) -> BuildError:
    words = " ".join(str(getattr(error, "explanation", "") or error).split())
    return BuildError(f"The registry does not have {reference}: {words}.", code="base-unreachable")
