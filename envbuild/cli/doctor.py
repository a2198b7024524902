"""``envbuild doctor``: what this machine has and lacks."""

from __future__ import annotations

import click

from envbuild.cli import options
from envbuild.cli.session import Session

_MARKS = {"ok": "ok", "info": "-", "warn": "WARN", "missing": "MISSING"}


@click.command("doctor")
@options.common
@click.pass_obj
def command(session: Session) -> int:
    """Check this machine: engine, BuildKit, driver, GPUs, toolkit, disk, shared memory. Say how to fix each problem.

    If there are GPUs, it also shows which are equal and which environments of the matrix run on them. It uses no network. If
    something is missing that building needs, the exit code is 6 and `ok` in the JSON document is false; planning, locking and
    rendering still work.
    """
    from envbuild import codec, matrix
    from envbuild.engine import choice
    from envbuild.errors import EngineError
    from envbuild.host import doctor, fits, nvidia

    found = doctor.doctor(session.workspace, choice.describe)
    if gpus := nvidia.gpus():
        found += fits.fits(matrix.load(session.workspace), nvidia.driver(), gpus)
    lacking = [each for each in found if each.status == "missing"]
    session.document({"schema": 1, "ok": not lacking, "findings": codec.encode(found)})
    width = max(len(each.title) for each in found)
    for each in found:
        session.out(f"{_MARKS.get(each.status, each.status):<8} {each.title.ljust(width)}  {each.message}")
        if each.hint:
            session.out(f"{'':<8} {'':<{width}}  → {each.hint}")
    session.out("")
    names = ", ".join(each.title for each in lacking)
    session.out(f"Missing for building: {names}." if lacking else "Everything that building needs is here.")
    return EngineError.exit_code if lacking else 0
