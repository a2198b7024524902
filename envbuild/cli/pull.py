"""``envbuild pull NAME…``: fetch published images into the engine or into files, or build them if none is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from envbuild.cli import image_source, make, options, wording
from envbuild.cli.options import REGISTRY
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import PublishError, UsageError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.make import Made
    from envbuild.pipeline.pulling import PulledImage


@click.command("pull")
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@image_source.image_source
@click.option(
    "--tag",
    default="",
    metavar="TAG",
    help="Pull the image with this tag or digest, instead of the image with the inputs of this checkout.",
)
@click.option(
    "--to",
    "place",
    default="",
    metavar="PLACE",
    help="Write the image to this place, not into the engine: oci:FOLDER[:NAME] or docker-archive:FILE.",
)
@options.builder
@options.engine
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], *, tag: str, place: str, start_engine: bool, **values: Any) -> int:
    """Pull the image of each NAME from a registry into the engine. Layers that are in the cache folder are not fetched.

    Without --tag, the image that was made from the inputs of this checkout is pulled. envbuild finds it by the tag that ends
    in the digest of all inputs. The image is compared with its lock before it gets its tags here; one of them is NAME, as after
    `build`. An image of another environment is refused, also with --tag. `build` and `make` then use
    this image and build no other. envbuild uses the credentials of `docker login`.

    If no registry is named, or the registry in ENVBUILD_REGISTRY does not have the image, the image is built as by `make`. With
    --from, --tag or --to, nothing is built: an image that the registry does not have is then an error.
    """
    from envbuild.attest import keys
    from envbuild.pipeline import pulling, resolving, saving

    repository, key_file = values["repository"], values["key_file"]
    image_source.require_registry_for_key(repository)
    if not repository and (tag or place):
        raise UsageError(
            f"{'--tag' if tag else '--to'} needs --from.", hint=f"Name the registry with --from HOST/REPOSITORY or {REGISTRY}."
        )
    target = saving.parse_target(place) if place else None
    key = keys.public_key(key_file) if key_file and repository else None
    if len(set(names)) > 1 and (tag or (target and (target.name or target.form == "docker-archive"))):
        raise UsageError(
            "A tag, a name in a layout, or an archive file can hold only one image, but several were named.",
            hint="Pull the images one by one, or use oci:FOLDER without --tag.",
        )
    named_by = click.get_current_context().get_parameter_source("repository")
    may_build = named_by is not ParameterSource.COMMANDLINE and not tag and target is None
    told: list[dict[str, Any]] = []
    with display(session) as shown:
        for name in names:
            tools = session.tools([name], on_progress=shown.news, start_engine=start_engine)
            try:
                if not repository:
                    raise PublishError("No registry is named.", code="not-in-registry")
                environment = resolving.resolve_request(tools, [name], options.chosen({})).environment
                aliases = options.alias(name, {})
                found = pulling.pull(tools, environment.name, repository, tag, target, key, aliases=aliases)
            except PublishError as error:
                if error.code != "not-in-registry" or not may_build:
                    raise
                shown.line(f"{error.message} The image is built here.")
                made = make.make_image(tools, name, {}, values["builder"], shown.line)
                told.append(_built(made))
                shown.line(f"{made.record.tags[0]}  built on {made.engine}")
                continue
            document = _pulled(environment.name, found) | {"place": place, "signed": found.signed}
            document["verified"] = found.ours and target is None
            told.append(document)
            for line in _lines(found, place):
                shown.line(line)
    session.document({"schema": 1, "repository": repository, "images": told})
    return 0


def _pulled(name: str, found: PulledImage) -> dict[str, Any]:
    return {
        "name": name, "origin": "registry", "image": found.image, "digest": found.pulled.digest, "tag": found.tag,
        "tags": list(found.tags), "received_bytes": found.pulled.received, "layers": len(found.pulled.image.layers),
        "present": found.pulled.present, "same_inputs": found.ours,
    }  # fmt: skip


def _built(made: Made) -> dict[str, Any]:
    """Return the document of an image that was built, because no registry has it. Such an image has no digest in a registry."""
    return {
        "name": made.environment.name, "origin": "built", "image": made.record.image, "digest": "", "tag": "",
        "tags": list(made.record.tags), "received_bytes": 0, "layers": 0, "present": 0, "same_inputs": True,
        "place": "", "signed": False, "verified": True,
    }  # fmt: skip


def _lines(found: PulledImage, place: str) -> list[str]:
    layers, received = len(found.pulled.image.layers), wording.size(found.pulled.received)
    there = f"{found.pulled.present} of {counted(layers, 'layer')} already there"
    lines = [
        f"{found.tags[0] if found.tags else place}  {received} received, {there}",
        f"  digest  {found.pulled.digest}",
    ]
    if not found.ours:
        lines.append("  This image is not the one that this checkout builds, and was not verified.")
    elif place:
        lines.append("  The image was not verified, because only an engine can start it.")
    else:
        lines.append(f"  tags    {', '.join(found.tags)}")
    return lines
