"""``envbuild catalogue -o FOLDER``: write a static site about all environments of the checkout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey

_NOT_OF_AN_ADDRESS = re.compile(r"[\x00-\x20\x7f\"'<>\\^`{|}]")


@click.command("catalogue")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    required=True,
    metavar="FOLDER",
    help="The folder to write. An earlier catalogue in this folder is replaced completely.",
)
@click.option("--title", default="Deep-learning environments", show_default=True, help="The title of the site.")
@click.option(
    "--url",
    default="",
    metavar="ADDRESS",
    help="The address at which the site will be published. The feed needs it for absolute links.",
)
@click.option(
    "--database",
    "databases",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A local OSV database of known vulnerabilities, as for `envbuild audit`; may be repeated. Without one, the pages "
    "say that vulnerabilities were not checked.",
)
@click.option(
    "--registry",
    default="",
    metavar="HOST/REPOSITORY",
    help="Show the digests and layer sizes of the images in this repository.",
)
@click.option(
    "--key",
    "key_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=(
        "With --registry: check the signatures of the images with this public key, and show the smoke reports "
        "that are signed with it. May be repeated. Without --key, the signers of the policy are trusted; if there "
        "are none, no signature is checked."
    ),
)
@click.option(
    "--since",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=(
        "The catalogue.json of an earlier catalogue. The pages and the feed then list the changes since that catalogue. "
        "Without it, --registry lists the changes since the last release in the registry."
    ),
)
@click.option(
    "--this-machine",
    "with_machine",
    is_flag=True,
    help=(
        "Also show the proofs and measured speeds of this machine. Without this option, the site shows only "
        "the committed proofs."
    ),
)
@options.common
@click.pass_obj
def command(  # noqa: PLR0917 - click passes each option as an argument
    session: Session,
    /,
    output: Path,
    title: str,
    url: str,
    databases: tuple[Path, ...],
    registry: str,
    key_files: tuple[Path, ...],
    since: Path | None,
    with_machine: bool,
) -> int:
    """Write a static site about all environments of the checkout into FOLDER.

    The site has a search, a page for each environment, and a page that answers "which image runs on my machine?". It works
    from a web server or as local files, and loads nothing from other sites. The same checkout and options give the same bytes.
    FOLDER is created or replaced only when the whole site is written. A folder that contains other files is refused.
    """
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import cataloguing, site_folder

    require_web_address(url)
    if registry:
        registry_client.parse(registry)  # check the name before reading all environments, which takes long
    trusted = _trusted(key_files, registry)
    site_folder.require_replaceable(output)
    with display(session) as shown:
        tools = session.tools(on_progress=shown.news)
        sources = cataloguing.Sources(
            title=title,
            url=url,
            databases=databases,
            registry=registry,
            trusted=trusted,
            since=since,
            with_machine=with_machine,
        )
        gathered = cataloguing.gather(tools, sources)
        written = site_folder.write(output, cataloguing.files_of(gathered, sources))
    found = gathered.catalogue
    session.out(
        f"{output / 'index.html'}: {counted(len(found.entries), 'environment')}, {counted(len(found.rows), 'name')}, "
        f"{counted(written, 'file')}"
    )
    session.document(
        {
            "schema": 1,
            "folder": str(output),
            "environments": len(found.entries),
            "names": len(found.rows),
            "files": written,
            "updated": found.updated,
        }
    )
    return 0


def require_web_address(url: str) -> None:
    """Raise :class:`UsageError` if ``url`` is given and is not the address of a web site, because pages and feed link to it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port or the IPv6 address is invalid
        good = False
    if url and (not good or _NOT_OF_AN_ADDRESS.search(url)):
        raise UsageError(
            f"--url must be the address of a web site, not {url!r}.", hint="For example: --url https://lab.example.org/images"
        )


def _trusted(key_files: Sequence[Path], registry: str) -> tuple[PublicKey, ...]:
    """Read the public keys. Raises :class:`UsageError` if keys were given without a registry."""
    if not key_files:
        return ()
    if not registry:
        raise UsageError(
            "--key needs --registry.",
            hint="For example: envbuild catalogue -o site --registry HOST/REPOSITORY --key cosign.pub",
        )
    from envbuild.attest import keys

    return tuple(keys.public_key(path) for path in key_files)
