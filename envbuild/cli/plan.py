"""``envbuild plan``: show which images must be made again, why, and how several machines divide the work."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild import codec
from envbuild.cli import cache, options, wording
from envbuild.cli.session import Session
from envbuild.errors import InvalidInputError, UsageError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.plan import Item, Plan, Shard
    from envbuild.pipeline.revision_inputs import ChangedInput

_SHARD = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")
_SHOWN = 3  # largest number of changed files that are shown for a reason
_NAMES = 12  # largest number of names that are shown in a sentence


@click.command("plan")
@click.argument("names", metavar="[NAME…]", nargs=-1, shell_complete=options.complete_name)
@click.option(
    "--changed-since", "revision", default="", metavar="REV", help="Compare the inputs with those in this git revision."
)
@click.option(
    "--against",
    "repository",
    default="",
    metavar="HOST/REPOSITORY",
    help="Compare the inputs with those of the images in this repository.",
)
@click.option(
    "--match", "pattern", default="", metavar="GLOB", help="Only environments whose canonical name matches the pattern."
)
@click.option("--only", type=click.Choice(["cpu", "gpu"]), help="Only images for the CPU, or only images for GPUs.")
@click.option(
    "--shard",
    default="",
    metavar="K/N",
    help="Divide the work into N parts, and show only part K. The parts are the same on every machine.",
)
@click.option(
    "--shards", "count", type=click.IntRange(1, 9999), metavar="N", help="Divide the work into N parts, and show all parts."
)
@click.option(
    "--disk",
    default="",
    metavar="SIZE",
    help="Divide the work so that each part needs at most this much disk space, if possible, e.g. 14GB.",
)
@click.option(
    "--times",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help=(
        "A stored answer of `envbuild make --all --json` (default: images/times.json). The work is divided by "
        "the times and image sizes in this file. For images that the file lacks, they are estimated from the "
        "sizes of the packages."
    ),
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "names", "matrix", "markdown"]),
    default="text",
    show_default=True,
    help=(
        "The form of the output. text: a table. names: one name per line. matrix: one line of JSON for the "
        "job matrix of a CI system. markdown: for a job summary."
    ),
)
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    names: tuple[str, ...],
    *,
    revision: str,
    repository: str,
    pattern: str,
    only: str | None,
    shard: str,
    count: int | None,
    disk: str,
    times: Path | None,
    form: str,
) -> int:
    """Show which images must be made again, and which of their inputs changed. The command makes no image.

    Without NAME, all environments that have a folder in images/environments/ are compared. An image must be made again if one
    of its inputs changed: its lock, its rendering, the smoke test, the adapters of its recipes, or the programs that are built
    into it. With --against, an image whose publication is not complete must be published again.
    """
    from envbuild.pipeline import plan as planning
    from envbuild.pipeline.batch_selection import Selection, select

    if bool(revision) == bool(repository):
        raise UsageError(
            "Use either --changed-since or --against.",
            hint="For example, --changed-since HEAD~1 compares with the last commit.",
        )
    number, parts = _parts(shard, count)
    if names and pattern:
        raise UsageError(
            "NAME and --match cannot be combined.",
            hint="Name environments or use --match. Without both, all environments are compared.",
        )
    division = planning.Division(
        count=parts, room=cache.parse_size(disk) if disk else None, **_measured(times or _committed(session))
    )
    tools = session.tools()
    jobs = select(tools, Selection(texts=names, every=not names, pattern=pattern), options.chosen({}))
    made = (
        planning.since(tools, jobs, revision, division, only or "")
        if revision
        else planning.against(tools, jobs, repository, division, only or "")
    )
    shown = [part for part in made.shards if number in (0, part.number)]
    session.document(_document(made, shown, revision, repository, parts))
    if not session.json:
        _print(session, form, made, shown, revision or repository)
    for note in made.notes:
        session.err(f"note: {note}")
    return 0


def _print(session: Session, form: str, made: Plan, shown: Sequence[Shard], compared: str) -> None:
    items = sorted((item for part in shown for item in part.items), key=lambda item: item.name)
    if form == "names":
        session.raw("".join(f"{item.request}\n" for item in items))
    elif form == "matrix":
        session.raw(json.dumps(_matrix(shown, len(made.shards)), separators=(",", ":")) + "\n")
    elif form == "markdown":
        session.raw(_markdown(made, items, compared))
    else:
        _show(session, made, shown, items, compared)


def _parts(shard: str, count: int | None) -> tuple[int, int]:
    """Return the number of the part to show (0 means all parts) and the total number of parts."""
    if not shard:
        return 0, count or 1
    found = _SHARD.fullmatch(shard)
    if found is None or int(found[1]) > int(found[2]) or count is not None:
        raise UsageError(
            "--shard and --shards cannot be combined." if count is not None else f"{shard!r} is not a part of the work.",
            hint="For example: --shard 2/8, the second of eight parts.",
        )
    return int(found[1]), int(found[2])


def _committed(session: Session) -> Path | None:
    """Return the checkout's file with measured times and sizes; None if the checkout has no such file."""
    path = session.workspace.images / "times.json"
    return path if path.is_file() else None


def _measured(path: Path | None) -> dict[str, Any]:
    """Read from ``path`` the seconds that each environment took in an earlier run, and the sizes of the images in bytes.

    Environments that were not made in that run have no time.
    """
    if path is None:
        return {"seconds": {}}
    try:
        told = codec.loads(path.read_bytes())["environments"]
        seconds = {
            str(each["name"]): float(each["seconds"])
            for each in told
            if each["state"] in ("done", "inconclusive") and each["seconds"] > 0
        }
        sizes = {str(each["name"]): int(each["size"]) for each in told if each.get("size", 0) > 0}
        return {"seconds": seconds, "sizes": sizes}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInputError(
            f"{path} does not contain the times that environments took.",
            code="no-times",
            hint="`envbuild make --all --json > FILE` writes such a file.",
        ) from error


def _matrix(shown: Sequence[Shard], count: int) -> dict[str, Any]:
    """Return the job matrix of a CI system: one job for each part that has work, with the values that the job needs."""
    return {
        "include": [
            {
                "shard": f"{part.number}/{count}",
                "names": " ".join(item.request for item in part.items),
                "minutes": round(part.seconds / 60) + 1,
                "gigabytes": round(part.disk.total / 1e9, 1),
            }
            for part in shown
            if part.items
        ]
    }


def _document(made: Plan, shown: Sequence[Shard], revision: str, repository: str, parts: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "compared_with": {"revision": revision} if revision else {"repository": repository},
        "shards": parts,
        "parts": [
            {
                "shard": part.number,
                "seconds": round(part.seconds, 1),
                "disk": part.disk.to_json(),
                "environments": [_item(item) for item in part.items],
                "layers": [{"key": each.key, "wheel": each.wheel, "bytes": each.size} for each in part.layers],
            }
            for part in shown
        ],
        "unchanged": list(made.unchanged),
        "skipped": [{"name": each.name, "code": each.code, "message": each.message} for each in made.skipped],
        "removed": list(made.removed),
        "notes": list(made.notes),
    }


def _item(item: Item) -> dict[str, Any]:
    return {
        "name": item.name,
        "request": item.request,
        "tag": item.tag,
        "lock": item.lock,
        "inputs": item.inputs,
        "gpu": item.gpu,
        "reasons": [
            {"input": reason.input, "files": list(reason.files), "lacks": list(reason.lacks)} for reason in item.reasons
        ],
        "seconds": round(item.seconds, 1),
        "measured": item.is_measured,
        "disk": item.disk.to_json(),
    }


def _show(session: Session, made: Plan, shown: Sequence[Shard], items: Sequence[Item], compared: str) -> None:
    several = len(shown) > 1
    rows = [
        [f"{item.shard}/{len(made.shards)}"] * several + [item.name, "; ".join(map(_reason, item.reasons))] for item in items
    ]
    if rows:
        session.out(wording.columns(rows) + "\n")
    for part in shown if several else ():
        session.out(f"part {part.number}/{len(made.shards)}: {_needs([part])}")
    session.out(_sentence(made, items, compared) + (f": {_needs(shown)}" if items else ""))
    if made.skipped:
        session.out(f"{len(made.skipped)} cannot be built: {_listed([each.name for each in made.skipped])}")
    if made.removed:
        session.out(f"removed: {_listed(made.removed)}")


def _sentence(made: Plan, items: Sequence[Item], compared: str) -> str:
    of = len(made.items) + len(made.unchanged)
    return f"{len(items)} of {counted(of, 'image')} must be made again, compared with {compared}"


def _needs(shown: Sequence[Shard]) -> str:
    seconds = sum(part.seconds for part in shown)
    downloads = sum(part.disk.downloads for part in shown)
    disk = sum(part.disk.total for part in shown)
    return f"about {wording.seconds(seconds)}, {wording.size(downloads)} to download, {wording.size(disk)} of disk space"


def _reason(reason: ChangedInput) -> str:
    if reason.input == "new":
        return "new"
    if reason.lacks:
        return f"{reason.input}: lacks {', '.join(reason.lacks)}"
    more = len(reason.files) - _SHOWN
    shown = ", ".join(reason.files[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{reason.input}: {shown}" if shown else reason.input


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _markdown(made: Plan, items: Sequence[Item], compared: str) -> str:
    lines = [f"### {_sentence(made, items, compared)}", ""]
    if items:
        lines += ["| image | part | why | time | disk |", "|---|---|---|---|---|"]
        lines += [
            f"| `{item.name}` | {item.shard}/{len(made.shards)} | {'; '.join(map(_reason, item.reasons))} "
            f"| {wording.seconds(item.seconds)} | {wording.size(item.disk.total)} |"
            for item in items
        ]
    if made.skipped:
        lines += ["", f"{len(made.skipped)} cannot be built: {_listed([each.name for each in made.skipped])}"]
    return "\n".join(lines) + "\n"
