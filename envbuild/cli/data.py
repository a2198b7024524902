"""``envbuild data list|fetch``: list or download the public data sets that the smoke test can train on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted


@click.group("data")
@options.common
def command() -> None:
    """The data sets are MNIST and CIFAR-10. `envbuild smoke NAME --data FOLDER` trains on them; without --data, the smoke
    test trains on generated images."""


@command.command("list")
@click.option(
    "--in",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the data sets (default: a folder in envbuild's cache folder).",
)
@options.common
@click.pass_obj
def list_command(session: Session, folder: Path | None) -> int:
    """List the data sets, their sizes, and which of them are complete on this machine."""
    from envbuild import datasets

    folder = folder or session.workspace.data
    rows: list[dict[str, Any]] = []
    for dataset in datasets.load(os.environ.get(datasets.TABLE_VARIABLE, "")).values():
        whole = all(datasets.is_whole(dataset.file(name), folder / name) for name in dataset.wanted)
        rows.append(
            {
                "name": dataset.name,
                "title": dataset.title,
                "about": dataset.about,
                "bytes": dataset.size,
                "files": list(dataset.wanted),
                "mirrors": list(dataset.mirrors),
                "here": str(folder) if whole else None,
            }
        )
    session.document({"schema": 1, "datasets": rows})
    lines = [[row["name"], wording.size(row["bytes"]), row["here"] or "not here", row["about"]] for row in rows]
    session.out(wording.columns([["NAME", "TO FETCH", "WHERE", "WHAT IT IS"], *lines]))
    return 0


@command.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="mnist|cifar10…")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the data sets (default: a folder in envbuild's cache folder).",
)
@options.common
@click.pass_obj
def fetch(session: Session, names: tuple[str, ...], folder: Path | None) -> int:
    """Download data sets and check every file by its checksum. If no mirror can be reached, the exit code is 11.

    Existing intact files are not downloaded again, and an interrupted download is continued.
    """
    from envbuild import datasets
    from envbuild.index.client import Index

    table = datasets.load(os.environ.get(datasets.TABLE_VARIABLE, ""))
    chosen = [datasets.choose(table, name) for name in names]
    folder = (folder or session.workspace.data).absolute()
    with display(session) as shown:
        index = Index()
        paths = {dataset.name: datasets.fetch(dataset, folder, index, shown.news) for dataset in chosen}
    session.document(
        {
            "schema": 1,
            "folder": str(folder),
            "files": {name: [str(path) for path in each] for name, each in paths.items()},
        }
    )
    for dataset in chosen:
        session.out(f"{dataset.title}: {counted(len(paths[dataset.name]), 'file')} in {folder}, equal to the published files")
    session.out(f"To train on them, run: envbuild smoke NAME --data {folder}")
    return 0
