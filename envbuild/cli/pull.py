"""``envbuild pull NAME… --from HOST/REPOSITORY``: fetch images from a registry into the engine or into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError
from envbuild.model.progress import counted


@click.command("pull")
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("--from", "repository", required=True, metavar="HOST/REPOSITORY", help="The repository that has the images.")
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
@click.option(
    "--key",
    "key_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A public key, such as cosign.pub. The image is pulled only if its signature fits this key.",
)
@options.engine
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    names: tuple[str, ...],
    *,
    repository: str,
    tag: str,
    place: str,
    key_file: Path | None,
    start_engine: bool,
) -> int:
    """Pull the image of each NAME from a registry into the engine. Layers that are in the cache folder are not fetched.

    Without --tag, the image that was made from the inputs of this checkout is pulled. envbuild finds it by the tag that ends
    in the digest of all inputs. The image is compared with its lock before it gets its tags here; one of them is NAME, as after
    `build`. An image of another environment is refused, also with --tag. `build` and `make` then use
    this image and build no other. envbuild uses the credentials of `docker login`.
    """
    from envbuild.attest import keys
    from envbuild.pipeline import pulling, resolving, saving

    target = saving.parse_target(place) if place else None
    key = keys.public_key(key_file) if key_file else None
    if len(set(names)) > 1 and (tag or (target and (target.name or target.form == "docker-archive"))):
        raise UsageError(
            "A tag, a name in a layout, or an archive file can hold only one image, but several were named.",
            hint="Pull the images one by one, or use oci:FOLDER without --tag.",
        )
    told: list[dict[str, Any]] = []
    with display(session) as shown:
        for name in names:
            tools = session.tools([name], on_progress=shown.news, start_engine=start_engine)
            environment = resolving.resolve_request(tools, [name], options.chosen({})).environment
            aliases = options.alias(name, {})
            found = pulling.pull(tools, environment.name, repository, tag, target, key, aliases=aliases)
            layers = len(found.pulled.image.layers)
            told.append({
                "name": environment.name, "image": found.image, "digest": found.pulled.digest, "tag": found.tag,
                "tags": list(found.tags), "received_bytes": found.pulled.received, "layers": layers,
                "present": found.pulled.present, "same_inputs": found.ours, "place": place, "signed": key is not None,
                "verified": found.ours and target is None,
            })  # fmt: skip
            shown.line(
                f"{found.tags[0] if found.tags else place}  {wording.size(found.pulled.received)} received, "
                f"{found.pulled.present} of {counted(layers, 'layer')} already there"
            )
            shown.line(f"  digest  {found.pulled.digest}")
            if found.ours and target is None:
                shown.line(f"  tags    {', '.join(found.tags)}")
            if not found.ours:
                shown.line("  This image is not the one that this checkout builds, and was not verified.")
            elif target is not None:
                shown.line("  The image was not verified, because only an engine can start it.")
    session.document({"schema": 1, "repository": repository, "images": told})
    return 0
