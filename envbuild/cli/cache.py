"""``envbuild cache list|prune|verify``: list, remove or check the layers of composed images in the cache folder."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError, VerifyError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.compose.store import LayerStore
    from envbuild.compose.upkeep import CachedLayer

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


@click.group("cache")
@options.common
def command() -> None:
    """The folder `layers` of the cache folder keeps the layers of composed images. These commands change no other part of
    the cache folder."""


@command.command("list")
@options.common
@click.pass_obj
def list_command(session: Session) -> int:
    """List the layers with their sizes and their contents. The layer that was used last is first."""
    from envbuild.compose import upkeep

    store = _store(session)
    held = upkeep.held(store)
    total = sum(each.size for each in held)
    session.document({"schema": 1, "folder": str(store.folder), "bytes": total, "layers": [_row(each) for each in held]})
    rows = [[each.digest[:12], wording.size(each.size), _day(each.used), ", ".join(each.about) or "-"] for each in held]
    if rows:
        session.out(wording.columns([["LAYER", "SIZE", "USED", "MADE FROM"], *rows]))
    session.out(f"{counted(len(held), 'layer')}, {wording.size(total)} in total, in {store.folder}")
    return 0


@command.command("prune")
@click.option(
    "--keep",
    required=True,
    metavar="SIZE",
    help="The largest size of all layers together, e.g. 50GB. With 0, all layers are removed.",
)
@options.common
@click.pass_obj
def prune(session: Session, keep: str) -> int:
    """Remove layers until all layers together have at most the size --keep. Layers that were not used for the longest time
    are removed first.

    While another command uses layers, the command fails with exit code 7 (`busy`). A removed layer is made again when an image
    needs it.
    """
    from envbuild.compose import upkeep

    store = _store(session)
    done = upkeep.prune(store, parse_size(keep))
    removed = [_row(each) for each in done.removed]
    session.document({"schema": 1, "folder": str(store.folder), "removed": removed, "freed": done.freed, "kept": done.kept})
    session.out(f"{counted(len(removed), 'layer')} removed, {wording.size(done.freed)} freed, {wording.size(done.kept)} kept")
    return 0


@command.command("verify")
@options.common
@click.pass_obj
def verify(session: Session) -> int:
    """Read every layer, compare it with its digests, and remove damaged layers. If a layer was damaged, the exit code is 8."""
    from envbuild.compose import upkeep

    store = _store(session)
    with display(session) as shown:
        done = upkeep.verify(store, shown.news)
    session.document({"schema": 1, "folder": str(store.folder), **asdict(done)})
    for digest in done.damaged:
        session.out(f"damaged and removed: {digest}")
    if not done.damaged and done.entries:
        session.out(f"{len(done.entries)} damaged entries of the index removed")
    session.out(f"{counted(done.layers, 'layer')} read, {wording.size(done.bytes)}, {len(done.damaged)} damaged")
    return VerifyError.exit_code if done.damaged or done.entries else 0


def parse_size(text: str) -> int:
    """Return the bytes of ``50GB``, ``1.5 TB``, ``800MiB`` or a plain number. Raises :class:`UsageError` for other texts."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{text!r} is not a size.", hint="For example: 50GB, 800MB, 20GiB or 0.")
    number, unit, binary = found.groups()
    power = "kmgt".index(unit.lower()) + 1 if unit else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def _store(session: Session) -> LayerStore:
    from envbuild.compose.store import LayerStore

    return LayerStore(session.workspace.layers, session.err)


def _row(held: CachedLayer) -> dict[str, Any]:
    return {**asdict(held), "used": datetime.fromtimestamp(held.used, UTC).isoformat(timespec="seconds")}


def _day(used: float) -> str:
    return datetime.fromtimestamp(used, UTC).date().isoformat()
