"""``pull``: fetches images from registries into the engine or into files."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envbuild import codec, files
from envbuild.errors import PublishError
from envbuild.pipeline import image_labels, own_images
from envbuild.pipeline.own_images import OwnImage
from envbuild.pipeline.saving import SaveTarget
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.compose.outputs.pull import Pulled
    from envbuild.compose.store import LayerStore

_REPOSITORY = "envbuild"
# The repository name for images that this checkout does not build. Such images must never get the name of a verified image.
_OTHERS = "envbuild/pulled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_OLDER = "Check out the revision from which the image was built."
_MOVING = "To pull the image that the moving tag names now, without a comparison with a lock, add `--tag {tag}`."


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledImage:
    """The result. ``image`` is the id of the image. ``tags`` are its names in the engine; empty if files were written.

    ``ours`` is true if this checkout builds the same image. If such an image was pulled into the engine, it was verified, and
    has a build record like an image that was built here. ``signed`` is true if its signature was checked.
    """

    pulled: Pulled
    image: str
    tag: str
    tags: tuple[str, ...]
    ours: bool
    signed: bool


def pull(  # noqa: PLR0917 - source, name and target of the pull
    tools: Tools,
    name: str,
    repository: str,
    tag: str,
    target: SaveTarget | None,
    key: PublicKey | None = None,
    *,
    aliases: Sequence[str] = (),
) -> PulledImage:
    """Pull the image of ``name`` from ``repository`` (``HOST/REPOSITORY``) into the engine, or to ``target``.

    If ``tag`` is empty, pull the image whose inputs are those of this checkout. An image with these inputs is verified before
    it gets a name in the engine. ``aliases`` are further tags for such an image, as for a build. If ``key`` is given or the
    policy has signers, nothing is fetched unless the image has the required signature. Raises :class:`PublishError`
    (``image-of-another-environment`` and others), :class:`PolicyError`, and the errors of the engine and of the verification.
    """
    from envbuild import build
    from envbuild.compose import engine_image
    from envbuild.compose.outputs import engine as engine_output
    from envbuild.compose.outputs import pull as registry
    from envbuild.compose.store import LayerStore
    from envbuild.engine import temporary_names
    from envbuild.pipeline import image_checks, saving, trusted_sources

    keys = trusted_sources.trusted(tools, repository, (key,) if key is not None else ())
    store = LayerStore(tools.workspace.layers)
    by_tag = _MOVING.format(tag=own_images.moving_tag(name))
    own = own_images.find(tools, name) if tag else own_images.require(tools, name, or_else=by_tag)
    wanted = tag or (own.fixed if own else "")
    try:
        pulled = _pulled(tools, name, repository, wanted, store, keys, own)
    except PublishError as error:
        if error.code != "not-in-registry" or tag or own is None:
            raise
        raise own_images.absent(name, repository, own, f"{_OLDER} {by_tag}") from error
    if own and wanted != own.fixed and registry.digest_of(repository, own.fixed) != pulled.digest:
        own = None
    if target is not None:
        reference = f"{_REPOSITORY}:{own.fixed}" if own else f"{_OTHERS}:{wanted.replace(':', '-')}"
        image = saving.write(pulled.image, store, target, (reference,), tools.on_progress)
        return PulledImage(pulled=pulled, image=image, tag=wanted, tags=(), ours=own is not None, signed=bool(keys))
    tags: tuple[str, ...] = (f"{_OTHERS}:{wanted.replace(':', '-')}",)
    if own:
        carried = build.carried_aliases(tools.engine, build.read_record(tools.workspace, name))
        tags = tuple(dict.fromkeys((*build.tags_of(own.locked.lock, own.inputs, aliases), *carried)))
    unverified = temporary_names.name_for(tools.workspace.home, pulled.digest)
    image = engine_output.load(
        tools.engine,
        pulled.image,
        store,
        [unverified],
        tools.on_progress,
        recall=functools.partial(engine_image.recall, tools.workspace.composed_images),
    )
    try:
        if own:
            image_checks.verify_image(tools, own.locked.lock, own.locked.digest, image, replay=True)
        for each in tags:
            tools.engine.tag(image, each)
    finally:
        tools.engine.remove_unused(unverified)
    engine_image.remember(tools.workspace.composed_images, pulled.image, image)
    if own:
        _record(tools, own, image, tags, f"{repository}@{pulled.digest}")
    return PulledImage(pulled=pulled, image=image, tag=wanted, tags=tags, ours=own is not None, signed=bool(keys))


def _pulled(  # noqa: PLR0917 - source, name and target of the pull
    tools: Tools, name: str, repository: str, tag: str, store: LayerStore, keys: Sequence[PublicKey], own: OwnImage | None
) -> Pulled:
    """Pull the image. Its labels must name ``name``, and the lock of ``own`` if ``tag`` is the tag of ``own`` that never moves.

    With ``keys``, pull the digest whose signature was checked, because the tag can move in the meantime.
    """
    from envbuild.compose.outputs import pull as registry
    from envbuild.pipeline import trusted_sources

    def require(config: bytes) -> None:
        label = image_labels.of_config(config).get(image_labels.NAME, name)
        if label != name:
            raise _of_another(label, name, repository, tag)
        if own is not None and tag == own.fixed:
            image_labels.require(image_labels.of_config(config), own.locked, f"{repository}:{tag}")

    if not keys:
        return registry.pull(repository, tag, store, tools.on_progress, require=require)
    digest = registry.digest_of(repository, tag)
    if not digest:
        raise registry.absent(repository, tag)
    trusted_sources.require_signed(tools, repository, digest, keys)
    return registry.pull(repository, digest, store, tools.on_progress, require=require)


def _of_another(label: str, name: str, repository: str, tag: str) -> PublishError:
    is_name = _NAME.fullmatch(label) is not None  # the label may have any text: print no command that contains other text
    command = f" To pull this image, run `envbuild pull {label} --from {repository} --tag {tag}`." if is_name else ""
    return PublishError(
        f"{repository} has an image of {label if is_name else 'another environment'} under {tag}, not of {name}.",
        code="image-of-another-environment",
        hint=f"Name another tag or digest with --tag.{command}",
    )


def _record(tools: Tools, own: OwnImage, image: str, tags: tuple[str, ...], place: str) -> None:
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
        tags=tags,
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
