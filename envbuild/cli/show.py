"""``envbuild show NAME``: show one environment and its state on this machine."""

from __future__ import annotations

from typing import Any

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session

_SHOWN = 5


@click.command("show")
@options.naming()
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, **constraints: str | None) -> int:
    """Show the version of each part of NAME and why it was chosen. Also show which files of NAME exist: lock, rendering,
    image, reports."""
    from envbuild.cli import evidence_from
    from envbuild.pipeline import resolving, status
    from envbuild.resolve.answer_json import answer_json

    tools = session.tools([name])
    resolution = resolving.resolve_request(tools, [name], options.chosen(constraints))
    canonical = resolution.environment.name
    answer = answer_json(resolution, ()) | evidence_from.proofs_of(tools, canonical)
    standing = status.standing(tools, canonical)
    elsewhere = evidence_from.known(tools, canonical)
    session.document({**answer, **standing, **evidence_from.document(elsewhere)})
    session.out(wording.environment(answer))
    session.out("")
    rows = [*_rows(standing), *evidence_from.rows(tools, elsewhere, constraints.get("gpu"))]
    session.out(wording.columns(rows, indent="  "))
    wording.warnings(session, resolution.warnings)
    return 0


def _rows(standing: dict[str, Any]) -> list[list[str]]:
    lock = standing["lock"]
    rows = [["lock", lock["state"], lock["path"] or ""]]
    rows += [["", "not pinned", f"{each['what']}: {each['why']}"] for each in lock["missing"]]
    for each in lock["unproved"]:
        rows += [["", f"not {each['kind']}", line] for line in [*_unchecked(each["files"]), *filter(None, [each.get("why")])]]
    rows.append(["rendering", standing["rendering"]["state"], standing["rendering"]["path"] or ""])
    image = standing["image"]
    rows.append(["image", "built" if image else "none", ", ".join(image["tags"]) if image else ""])
    rows += [[f"report ({kind})", "", path] for kind, path in standing["reports"].items()]
    return rows


def _unchecked(files: list[dict[str, str]]) -> list[str]:
    """List only the first unchecked files, as an unreachable host can leave hundreds unchecked. The evidence lists all of
    them."""
    places = (f"{each['file']} from {each['host']}" if each["host"] else each["file"] for each in files)
    lines = [f"{place}: {each['why']}" for place, each in zip(places, files, strict=True)]
    return lines[:_SHOWN] + ([f"{len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])
