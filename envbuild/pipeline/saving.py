"""``save``: writes a built image to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import UsageError
from envbuild.pipeline import building
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.compose.model import ComposedImage
    from envbuild.compose.outputs.compression import Compression
    from envbuild.compose.store import LayerStore
    from envbuild.model.progress import OnProgress

FORMS = ("oci", "docker-archive")


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveTarget:
    """The place where an image is saved: the ``form`` of the files, their path, and the image's name there (may be empty)."""

    form: str
    path: Path
    name: str


def parse_target(text: str) -> SaveTarget:
    """Parse ``oci:FOLDER[:NAME]`` or ``docker-archive:FILE``, the syntax of skopeo and Podman. Raises :class:`UsageError`."""
    form, _, rest = text.partition(":")
    path, _, name = rest.partition(":") if form == "oci" else (rest, "", "")
    if form not in FORMS or not path:
        raise UsageError(
            f"{text!r} is not a place to which an image can be saved.",
            hint="Write oci:FOLDER, oci:FOLDER:NAME or docker-archive:FILE.",
        )
    return SaveTarget(form=form, path=Path(path), name=name)


def save(tools: Tools, name: str, target: SaveTarget, compression: Compression | None) -> str:
    """Write the image of ``name`` that was built last to ``target``, and return the image's id.

    Without ``compression``, the layers keep the compression that they have in the layer store. Raises :class:`BuildError`
    (``no-image``) if this machine has built no image, and the errors of writing.
    """
    from envbuild.compose.store import LayerStore

    record, store = building.last_built(tools, name), LayerStore(tools.workspace.layers)
    image = built_image(tools, record, store)
    if compression is not None:
        from envbuild.compose.outputs import compression as compressions

        image = compressions.converted(image, store, compression, tools.on_progress)
    write(image, store, target, record.tags, tools.on_progress)
    return record.image


def write(
    image: ComposedImage, store: LayerStore, target: SaveTarget, references: Sequence[str], on_progress: OnProgress
) -> str:
    """Write ``image`` with the names ``references`` to ``target``, and return the id of the image."""
    from envbuild.compose.outputs import docker_archive, manifest, oci

    if target.form == "oci":
        oci.write(image, store, target.path, target.name or references[0].rpartition(":")[2], on_progress)
    else:
        docker_archive.write(image, store, target.path, references, on_progress)
    return f"sha256:{manifest.config(image).digest}"


def built_image(tools: Tools, record: BuildRecord, store: LayerStore) -> ComposedImage:
    """Return the image of ``record``. Layers that are not in the layer store are taken from the engine."""
    from envbuild.compose import engine_image

    known = engine_image.recall(tools.workspace.composed_images, record.image)
    if known is None:
        known = engine_image.describe(tools.engine, record.image, store)
        engine_image.remember(tools.workspace.composed_images, known, record.image)
    return engine_image.complete(lambda: tools.engine, record.image, known, store)
