"""``envbuild engine up|down|status``: start, stop or show the private container engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import EngineError

if TYPE_CHECKING:
    from envbuild.engine.private_engine import Status


@click.group("engine")
@options.common
def command() -> None:
    """The private container engine is a Docker daemon that envbuild starts itself on a machine without an engine."""


@command.command("up")
@options.common
@click.pass_obj
def up(session: Session) -> int:
    """Start the private engine. This needs root. If the engine is already running, nothing happens."""
    from envbuild.engine import private_engine

    with display(session) as shown:
        now = private_engine.up(session.workspace, shown.news)
    session.document({"schema": 1, "private": _document(now)})
    session.out(f"the private engine runs at unix://{now.socket}; for docker, run: export DOCKER_HOST=unix://{now.socket}")
    return 0


@command.command("down")
@click.option("--purge", is_flag=True, help="Also remove the images and the build cache of the private engine.")
@options.common
@click.pass_obj
def down(session: Session, purge: bool) -> int:
    """Stop the private engine, and remove its processes, mounts and network. Images are kept, unless --purge is given."""
    from envbuild.engine import private_engine

    with display(session) as shown:
        now = private_engine.down(session.workspace, purge=purge, on_progress=shown.news)
    session.document({"schema": 1, "private": _document(now)})
    session.out("the private engine is stopped" + (" and its images are removed" if purge else ""))
    return 0


@command.command("status")
@options.common
@click.pass_obj
def status(session: Session) -> int:
    """Show which engine envbuild would use, and the state of the private engine. If no engine answers, the exit code is 6."""
    from envbuild import codec
    from envbuild.engine import choice, private_engine

    private = private_engine.status(session.workspace)
    try:
        info = choice.describe(session.workspace)
    except EngineError as error:
        session.out(_private(private))
        error.details = (*error.details, _private(private)) if session.json else error.details
        raise
    session.document({"schema": 1, "used": codec.encode(info), "private": _document(private)})
    rows = [
        ["used", f"{info.product} {info.version} at {info.endpoint} ({info.origin})"],
        ["builder", "none" if info.builder == "classic" else f"{info.builder} {info.builder_version}".rstrip()],
        [
            "disk",
            f"{wording.size(info.free_bytes)} free at {info.data_root}" if info.free_bytes is not None else info.data_root,
        ],
        ["machine", f"{info.cpus} CPUs, {wording.size(info.memory_bytes)}, {info.operating_system}"],
    ]
    if info.product == "Podman":
        rows.append(
            ["podman", "runs, verifies and smoke-tests images, but cannot build them, because its service has no BuildKit"]
        )
    session.out(wording.columns(rows))
    session.out(_private(private))
    return 0


def _private(now: Status) -> str:
    if now.running:
        return (
            f"private  running at unix://{now.socket} (pid {now.pid}); for docker, run: export DOCKER_HOST=unix://{now.socket}"
        )
    return "private  not running" + (f"; its images are in {now.data_root}" if now.data_exists else "")


def _document(now: Status) -> dict[str, Any]:
    from envbuild import codec

    document: dict[str, Any] = codec.encode(now)
    return document
