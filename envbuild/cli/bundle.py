"""``envbuild bundle NAME…``: write all files that builds need into one folder, for machines without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.bundling import BundlePlan


@click.command("bundle")
@options.naming("names", several=True, metavar="NAME…")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    required=True,
    metavar="FOLDER",
    help="The folder to write to. If it already contains a bundle, files are added to it.",
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], output: Path, **constraints: str | None) -> int:
    """Write all files that a build of each NAME needs into one folder.

    The folder gets the Python packages, Debian packages, base, tools and other files that the lock pins, the lock itself, and
    the files of your own environment. The hash of each file is checked. After an interruption, the next run continues.
    `envbuild make --offline FOLDER NAME` builds from the folder on a machine without a network.
    """
    from envbuild import codec
    from envbuild.pipeline import bundling, resolving

    with display(session) as shown:

        def tell(plan: BundlePlan) -> None:
            unknown = f", and {counted(plan.unknown, 'file')} of unknown size" if plan.unknown else ""
            shown.line(
                f"{counted(plan.files, 'file')} to add ({plan.size / 1000000000.0:.2f} GB{unknown}), {plan.held} already in "
                f"the bundle; {plan.free / 1000000000.0:.1f} GB free"
            )

        first = session.tools(on_progress=shown.news)
        tools = [first.at([name]) for name in names]
        chosen = [
            resolving.resolve_buildable(each, [name], options.chosen(constraints)).environment.name
            for each, name in zip(tools, names, strict=True)
        ]
        made = bundling.bundle(tools, chosen, output, tell)
    for note in made.notes:
        session.err(f"note: {note}")
    size = sum(file.size for file in made.manifest.files)
    session.out(f"{output}: {counted(len(made.manifest.files), 'file')}, {size / 1e9:.2f} GB")
    for environment in made.manifest.environments:
        session.out(f"  {environment.name}")
    session.out("On the other machine, run: envbuild make --offline FOLDER NAME", is_for_here=False)
    session.document(
        {
            "schema": 1,
            "folder": str(output),
            "environments": [environment.name for environment in made.manifest.environments],
            "files": len(made.manifest.files),
            "size": size,
            "added": codec.encode(made.plan),
            "notes": list(made.notes),
        }
    )
    return 0
