"""``push``: pushes a built image to a registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild import codec, files
from envbuild.errors import BuildError
from envbuild.pipeline.saving import built_image
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.compose.model import ComposedImage
    from envbuild.compose.outputs.compression import Compression
    from envbuild.compose.outputs.push import BeforeMoving, Lacking, Pushed, Tags
    from envbuild.compose.store import LayerStore
    from envbuild.model.progress import OnProgress


def push(
    tools: Tools,
    record: BuildRecord,
    repository: str,
    compression: Compression | None,
    before_moving: BeforeMoving = lambda _client, _manifest: None,
    *,
    moves_tags: bool = True,
) -> tuple[Pushed, tuple[str, ...]]:
    """Push the image of ``record`` to ``repository`` (``HOST/REPOSITORY``). Return what was sent, and the tags of the image.

    The image of ``record`` is pushed even if another image was built after it. The tag with the digest of all inputs never
    moves. The other tags move after ``before_moving`` was called, unless ``moves_tags`` is false. The pushed digest is added to
    the build record. Raises :class:`BuildError` and :class:`PublishError`.
    """
    from envbuild.compose.outputs import push as registry
    from envbuild.compose.store import LayerStore

    store = LayerStore(tools.workspace.layers)
    wanted = tags_of(record)
    set_now = wanted if moves_tags else registry.Tags(fixed=wanted.fixed)
    neighbours = _neighbours(repository, record.pushed)

    def send(image: ComposedImage) -> Pushed:
        return registry.push(
            image, store, repository, set_now, tools.on_progress, mount_from=neighbours, before_moving=before_moving
        )

    pushed = _sent(built_image(tools, record, store), store, compression, send, tools.on_progress)
    _note_place(tools, record, f"{repository}@{pushed.digest}")
    return pushed, (*wanted.moving, *wanted.fixed)


def compare(
    tools: Tools,
    record: BuildRecord,
    repository: str,
    compression: Compression | None,
    also: BeforeMoving,
    *,
    moves_tags: bool = True,
) -> Lacking | None:
    """Return the work that :func:`push` would do now, and write nothing.

    Return None if layers must be compressed first to find this out. ``also`` is called with the registry client and the
    image's manifest.
    """
    from envbuild.compose.outputs import push as registry
    from envbuild.compose.store import LayerStore

    store = LayerStore(tools.workspace.layers)
    image: ComposedImage | None = built_image(tools, record, store)
    if compression is not None and image is not None:
        from envbuild.compose.outputs import compression as compressions

        image = compressions.known(image, store, compression)
    wanted = tags_of(record)
    set_now = wanted if moves_tags else registry.Tags(fixed=wanted.fixed)
    return registry.compare(image, store, repository, set_now, also) if image else None


def tags_of(record: BuildRecord) -> Tags:
    """Return the tags that the image of ``record`` gets in a registry."""
    from envbuild.compose.outputs import push as registry

    tags = [tag.rpartition(":")[2] for tag in record.tags]
    fixed = f"{tags[0]}-{record.lock[:8]}-{record.inputs[:8]}"
    return registry.Tags(moving=[tag for tag in tags if tag != fixed], fixed=[fixed])


def _note_place(tools: Tools, pushed: BuildRecord, place: str) -> None:
    """Add ``place``, the image's address in a registry, to the build record of the image.

    Nothing is added if another image was built while this image was pushed.
    """
    from envbuild import build

    record = build.read_record(tools.workspace, pushed.name)
    if record is not None and record.image == pushed.image and place not in record.pushed:
        told = replace(record, pushed=(*record.pushed, place))
        files.write_atomic(tools.workspace.build_record(record.name), codec.dumps(told))


def _sent(
    image: ComposedImage,
    store: LayerStore,
    compression: Compression | None,
    send: Callable[[ComposedImage], Pushed],
    on_progress: OnProgress,
) -> Pushed:
    """Call ``send`` with the image in this compression.

    Layers are compressed again if a layer was never made in this compression, or if ``send`` needs a layer that is no longer
    in the layer store.
    """
    if compression is None:
        return send(image)
    from envbuild.compose.outputs import compression as compressions

    if known := compressions.known(image, store, compression):
        try:
            return send(known)
        except BuildError as error:
            if error.code != "layer-missing":
                raise
    return send(compressions.converted(image, store, compression, on_progress))


def _neighbours(repository: str, places: Sequence[str]) -> tuple[str, ...]:
    """Return other repositories of the same registry that have the image, so that the registry can mount their layers."""
    host = repository.partition("/")[0]
    found = (place.rpartition("@")[0].partition("/") for place in places)
    return tuple(dict.fromkeys(name for its_host, _, name in found if its_host == host and f"{host}/{name}" != repository))
