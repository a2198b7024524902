"""``pull``: fetches images from registries into the engine or into files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild import codec, files
from envbuild.errors import PublishError
from envbuild.pipeline import rendering
from envbuild.pipeline.saving import SaveTarget
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.compose.outputs.pull import Pulled
    from envbuild.compose.store import LayerStore

_REPOSITORY = "envbuild"
# The repository name for images that this checkout does not build. Such images must never get the name of a verified image.
_OTHERS = "envbuild/pulled"


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledImage:
    """The result. ``image`` is the id of the image. ``tags`` are its names in the engine; empty if files were written.

    ``ours`` is true if this checkout builds the same image. If such an image was pulled into the engine, it was verified, and
    has a build record like an image that was built here.
    """

    pulled: Pulled
    image: str
    tag: str
    tags: tuple[str, ...]
    ours: bool


def pull(  # noqa: PLR0917 - source, name and target of the pull
    tools: Tools, name: str, repository: str, tag: str, target: SaveTarget | None, key: PublicKey | None = None
) -> PulledImage:
    """Pull the image of ``name`` from ``repository`` (``HOST/REPOSITORY``) into the engine, or to ``target``.

    If ``tag`` is empty, pull the image whose inputs are those of this checkout. An image with these inputs is verified before
    it gets a name in the engine. With ``key``, nothing is fetched unless the image is signed with this key. Raises
    :class:`PublishError`, and the errors of the engine and of the verification.
    """
    from envbuild.compose import engine_image
    from envbuild.compose.outputs import engine as engine_output
    from envbuild.compose.outputs import pull as registry
    from envbuild.compose.store import LayerStore
    from envbuild.pipeline import image_checks, saving

    store = LayerStore(tools.workspace.layers)
    own = own_image(tools, name)
    wanted = tag or (own.fixed if own else "")
    try:
        pulled = _pulled(tools, name, repository, wanted, store, key)
    except PublishError as error:
        if error.code != "not-in-registry" or tag:
            raise
        raise _not_there(name, repository, wanted) from error
    if own and wanted != own.fixed and registry.digest_of(repository, own.fixed) != pulled.digest:
        own = None
    if target is not None:
        reference = f"{_REPOSITORY}:{own.fixed}" if own else f"{_OTHERS}:{wanted.replace(':', '-')}"
        image = saving.write(pulled.image, store, target, (reference,), tools.on_progress)
        return PulledImage(pulled=pulled, image=image, tag=wanted, tags=(), ours=own is not None)
    tags = own.tags if own else (f"{_OTHERS}:{wanted.replace(':', '-')}",)
    unverified = f"{_REPOSITORY}/unverified:{pulled.digest.removeprefix('sha256:')[:32]}"
    image = engine_output.load(tools.engine, pulled.image, store, [unverified], tools.on_progress)
    try:
        if own:
            image_checks.verify_image(tools, own.locked.lock, own.locked.digest, image, replay=True)
        for each in tags:
            tools.engine.tag(image, each)
    finally:
        tools.engine.remove_unused(unverified)
    engine_image.remember(tools.workspace.composed_images, pulled.image)
    if own:
        _record(tools, own, image, f"{repository}@{pulled.digest}")
    return PulledImage(pulled=pulled, image=image, tag=wanted, tags=tags, ours=own is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnImage:
    """The image that this checkout would build: its lock, rendering, inputs and tags."""

    locked: Locked
    rendering: Mapping[str, str]
    inputs: str
    tags: tuple[str, ...]

    @property
    def fixed(self) -> str:
        """The tag that never moves, and always names the image with these inputs."""
        return self.tags[2].rpartition(":")[2]


def own_image(tools: Tools, name: str) -> OwnImage | None:
    """Return the image that this checkout would build for ``name``; None if ``name`` has no lock."""
    from envbuild import build, image_inputs

    locked = read_locked(tools, name)
    if locked is None:
        return None
    texts = rendering.render_text(tools, locked.lock)
    inputs = image_inputs.inputs_digest(tools.workspace, locked.lock, tools.recipes, texts)
    return OwnImage(locked=locked, rendering=texts, inputs=inputs, tags=build.tags_of(locked.lock, inputs))


def _pulled(  # noqa: PLR0917 - source, name and target of the pull
    tools: Tools, name: str, repository: str, tag: str, store: LayerStore, key: PublicKey | None
) -> Pulled:
    """Pull the image. With ``key``, pull the digest whose signature was checked, because the tag can move in the meantime."""
    from envbuild.compose.outputs import pull as registry
    from envbuild.pipeline import signatures

    if not tag:
        raise _not_there(name, repository, tag)
    if key is None:
        return registry.pull(repository, tag, store, tools.on_progress)
    digest = registry.digest_of(repository, tag)
    if not digest:
        raise registry.absent(repository, tag)
    signatures.require_signed(repository, digest, key)
    return registry.pull(repository, digest, store, tools.on_progress)


def _not_there(name: str, repository: str, tag: str) -> PublishError:
    return PublishError(
        f"{repository} has no image of {name} with the inputs of this checkout ({tag})."
        if tag
        else f"{name} has no lock here, so envbuild cannot tell which of its images you mean.",
        code="not-in-registry",
        hint=f"To pull the image that was pushed last, use `--tag {name.replace('+', '_')}`.",
    )


def _record(tools: Tools, own: OwnImage, image: str, place: str) -> None:
    """Write a build record for the image, so that `verify`, `smoke`, `save` and `push` find the image."""
    from envbuild import build, image_inputs

    lock = own.locked.lock
    found = tools.engine.image(image)
    texts = {path: text.encode() for path, text in own.rendering.items()}
    record = build.BuildRecord(
        name=lock.environment.name,
        lock=own.locked.digest,
        inputs=own.inputs,
        image=image,
        tags=own.tags,
        base=build.BaseRecord(reference=lock.base.image, image="", how="pulled", digest=lock.base.digest or "", notes=()),
        engine=tools.engine_name,
        built_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=0.0,
        steps=0,
        cached=0,
        size=found.size if found else 0,
        kept=False,
        layers=found.layers if found else (),
        dated=True,
        rendering=image_inputs.rendering_digest(tools.workspace, lock.environment.custom, texts),
        guest=image_inputs.guest_digest(tools.workspace, lock, tools.recipes),
        builder=build.PULLED,
        pushed=(place,),
    )
    files.write_atomic(tools.workspace.build_record(record.name), codec.dumps(record))
