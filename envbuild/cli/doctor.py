"""``envbuild doctor``: report the engine, GPUs and programs that this machine has or lacks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.bundle_contents import Lack

_MARKS = {"ok": "ok", "info": "-", "warn": "WARN", "missing": "MISSING"}


@click.command("doctor")
@click.option(
    "--offline",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Check the bundle in this folder, instead of this machine.",
)
@options.common
@click.pass_obj
def command(session: Session, /, offline: Path | None) -> int:
    """Check the engine, BuildKit, driver, GPUs, container toolkit, disk and shared memory of this machine. Show how to fix
    each problem.

    If there are GPUs, the command also shows which of them are equal, and which environments of the matrix run on them. It
    uses no network. If a requirement of builds is missing, the exit code is 6, and `ok` in the JSON document is false.
    Planning, locking and rendering still work then.

    With --offline, the command reads every file of a bundle, and shows which environments can be built from it on this
    machine. If one cannot be built, the exit code is 5. If a base in the bundle is damaged, mmdebstrap can make it again from
    the Debian packages; this is no error.
    """
    return _machine(session) if offline is None else _bundle(session, offline)


def _machine(session: Session) -> int:
    from envbuild import codec
    from envbuild.engine import choice
    from envbuild.errors import EngineError
    from envbuild.host import doctor, gpu_sets, nvidia

    found = doctor.doctor(session.workspace, choice.describe)
    if gpus := nvidia.gpus():
        found += gpu_sets.judge_sets(session.tools().matrix, nvidia.driver(), gpus)
    lacking = [each for each in found if each.status == "missing"]
    session.document({"schema": 1, "ok": not lacking, "findings": codec.encode(found)})
    width = max(len(each.title) for each in found)
    for each in found:
        session.out(f"{_MARKS.get(each.status, each.status):<8} {each.title.ljust(width)}  {each.message}")
        if each.hint:
            session.out(f"{'':<8} {'':<{width}}  → {each.hint}")
    session.out("")
    names = ", ".join(each.title for each in lacking)
    session.out(
        f"Building needs these, which are missing: {names}." if lacking else "This machine has everything that building needs."
    )
    return EngineError.exit_code if lacking else 0


def _bundle(session: Session, folder: Path) -> int:
    from envbuild import network
    from envbuild.errors import InvalidInputError
    from envbuild.model.progress import Progress
    from envbuild.pipeline import bundle_contents
    from envbuild.pipeline.bundle_folder import BundleFolder

    done = 0
    bundle = BundleFolder(folder)
    with display(session) as shown, network.forbidden():

        def tell(count: int) -> None:
            nonlocal done
            done += count
            shown.news(Progress(stage="bundle", message="reading files", done=done, unit="bytes"))

        manifest, found = bundle_contents.check(session.workspace, bundle, tell)
    ok = bool(found) and all(each.ok for each in found)
    unneeded = len({*bundle.names()} - {file.sha256 for file in manifest.files})
    session.document(
        {
            "schema": 1,
            "ok": ok,
            "folder": str(folder),
            "made_by": manifest.made_by,
            "environments": [
                {
                    "name": each.name,
                    "ok": each.ok,
                    "files": each.files,
                    "size": each.size,
                    "lacks": _lacks(each.lacks),
                    "unused_lacks": _lacks(each.unused_lacks),
                    "error": each.error,
                }
                for each in found
            ],
            "unneeded": unneeded,
        }
    )
    rights = "" if os.geteuid() == 0 else " (without root, mmdebstrap needs user namespaces)"
    for each in found:
        session.out(f"{'ok' if each.ok else 'BROKEN':<8} {each.name}  {counted(each.files, 'file')}, {each.size / 1e9:.2f} GB")
        for why in (*([each.error] if each.error else []), *each.lacks):
            session.out(f"{'':<8} {why}")
        for lack in each.unused_lacks:
            session.out(
                f"{'':<8} {lack}; builds on this machine make the base with mmdebstrap, from the bundle's Debian "
                f"packages{rights}"
            )
        if any(lack.kind == "base" for lack in each.lacks):
            session.out(f"{'':<8} → Install mmdebstrap. Builds then make the base from the bundle's Debian packages.")
    if unneeded:
        session.out(f"-        {unneeded} files in {folder / 'files'} are used by no environment of the bundle")
    broken = [each.name for each in found if not each.ok]
    session.out("")
    if broken:
        session.out(f"These environments cannot be built from this bundle: {', '.join(broken)}.")
    else:
        session.out("All environments of this bundle can be built." if found else "This bundle has no environment.")
    return 0 if ok else InvalidInputError.exit_code


def _lacks(found: Iterable[Lack]) -> list[dict[str, str]]:
    return [{"name": lack.name, "sha256": lack.sha256, "fault": lack.fault} for lack in found]
