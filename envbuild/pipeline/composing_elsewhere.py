"""``build --to``: composes an image directly into a registry or into files. The image is not loaded into the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild.pipeline import composing, incomplete_locks, saving
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.compose.composer import Composed
    from envbuild.compose.store import LayerStore
    from envbuild.model.lock import Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """The result. ``reference`` is the name of the written image, and ``image`` is its id.

    ``layers`` is the number of its layers. ``made`` is the number of layers that were not in the layer store before.
    """

    reference: str
    image: str
    digest: str
    layers: int
    made: int


def build_to(tools: Tools, lock: Lock, rendering: Mapping[str, str], place: str) -> Placed:
    """Compose the image that ``lock`` describes, and write it to ``place``.

    ``place`` is oci:FOLDER[:NAME], docker-archive:FILE or HOST/REPOSITORY. A registry gets each layer as soon as the layer is
    made. The image is not verified, so its tag ends in ``-unverified``. Tags without this ending name verified images.
    """
    from envbuild import build, image_inputs

    incomplete_locks.require_complete(tools, lock)
    inputs = image_inputs.inputs_digest(tools.workspace, lock, tools.recipes, rendering)
    tag = build.unverified_tag(lock, inputs)
    if place.partition(":")[0] in saving.FORMS:
        return _to_files(tools, lock, rendering, saving.parse_target(place), tag)
    return _to_registry(tools, lock, rendering, place, tag)


def _to_files(tools: Tools, lock: Lock, rendering: Mapping[str, str], target: saving.SaveTarget, tag: str) -> Placed:
    from envbuild import build

    def write(composed: Composed, store: LayerStore) -> Placed:
        saving.write(composed.image, store, target, [f"{build.REPOSITORY}:{tag}"], tools.on_progress)
        return _placed(composed, str(target.path))

    return composing.compose_elsewhere(tools, lock, rendering, write)


def _to_registry(tools: Tools, lock: Lock, rendering: Mapping[str, str], repository: str, tag: str) -> Placed:
    from envbuild.compose.outputs import push as registry

    with registry.EarlyPush(composing.store_of(tools), repository, tools.on_progress) as early:
        early.require_access(tag)

        def push(composed: Composed, store: LayerStore) -> Placed:
            early.finish()
            registry.push(composed.image, store, repository, registry.Tags(moving=[tag]), tools.on_progress)
            return _placed(composed, f"{repository}:{tag}")

        return composing.compose_elsewhere(tools, lock, rendering, push, on_layer=early.add, on_begin=early.follow)


def _placed(composed: Composed, reference: str) -> Placed:
    from envbuild.compose.outputs import manifest

    return Placed(
        reference=reference,
        image=f"sha256:{manifest.config(composed.image).digest}",
        digest=f"sha256:{manifest.manifest(composed.image).digest}",
        layers=composed.layers,
        made=composed.made,
    )
