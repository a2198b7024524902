"""The files that build steps have downloaded, and that BuildKit keeps for the next build (`--mount=type=cache,id=envbuild`).

uv keeps each wheel there unpacked, so this cache gets as large as the images. Docker 20.10 reports its size as 0, and therefore
does not remove it when the disk gets full. So envbuild removes it when a build needs the space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envbuild.model.progress import OnProgress, Progress

if TYPE_CHECKING:
    from docker import DockerClient

ENOUGH = 20_000_000_000  # bytes: room for the largest image of the matrix, and for the wheels of this image once more
_OURS = "cached mount /mnt/cache from"  # how BuildKit describes the cache of images/partials/step.sh


def make_room(client: DockerClient, free: int | None, on_progress: OnProgress) -> bool:
    """Remove the cache if ``free``, the free bytes of the engine's disk, is less than ENOUGH. None means that it is not known.

    Return whether any file was removed. Files that a running build uses are not removed.
    """
    if free is None or free >= ENOUGH:
        return False
    removed = False
    for record in client.api.df().get("BuildCache") or ():
        if str(record.get("Description", "")).startswith(_OURS) and not record["InUse"]:
            message = "the engine's disk is nearly full: removing files that earlier builds downloaded"
            on_progress(Progress(stage="build", message=message, log=True))
            only: Any = {"id": record["ID"]}
            client.api.prune_builds(filters=only)
            removed = True
    return removed
