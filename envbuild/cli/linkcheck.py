"""``envbuild linkcheck NAME…``: check whether the shared libraries of an image fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, image_check, options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session, describe
from envbuild.errors import UsageError, VerifyError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.link_check_sources import Image
    from envbuild.pipeline.tools import Tools

_LAYOUT = "oci:"
_WAYS = {"native": "native", "ptx": "only PTX", "partly": "only a part", "nothing": "nothing", "unknown": "not known"}


@click.command("linkcheck")
@click.option(
    "--image",
    "foreign",
    metavar="IMAGE",
    help="Check this image instead of the image of NAME: an image in the engine, or oci:FOLDER[:NAME].",
)
@batch.options
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], foreign: str | None, **constraints: Any) -> int:
    """Check that every program and library in the image of NAME finds the shared libraries and symbols that it needs.

    For every ELF file in the image, the command looks up libraries and symbols as the dynamic loader would do it. If a library
    or a symbol is missing, the exit code is 8. Each gap is listed with its cause and with the package that fills it. No
    program of the image is started. `make` runs this check, too.
    """
    if foreign is not None:
        return _foreign(session, names, foreign, constraints)
    if not names and not any(constraints.get(each) for each in ("every", "pattern", "revision")):
        raise UsageError("envbuild linkcheck needs NAME, or --image IMAGE.", code="missing-argument")
    several = batch.asked(names, constraints)
    if several is not None:
        return batch.run(session, several, constraints)
    from envbuild.pipeline import link_check

    check = partial(link_check.link_image, replay=False, driver=constraints["driver"] or "", may_have_gaps=True)
    name, image, linked = image_check.run(session, names[0], constraints, check)
    return _conclude(session, name, image, linked.report, f"the image of {name}")


def _foreign(session: Session, names: tuple[str, ...], reference: str, values: Mapping[str, Any]) -> int:
    from envbuild import codec
    from envbuild.pipeline import link_check

    if names:
        raise UsageError("--image and NAME cannot be combined.", hint="Give one of them.")
    for option in (each for each in click.get_current_context().command.params if values.get(each.name or "")):
        if option.name != "driver":
            raise UsageError(
                f"--image and {option.opts[0]} cannot be combined: it is about environments, not about an image.",
                hint="Leave one of them out. --driver can be given with --image.",
            )
    with display(session) as shown:
        tools = session.tools([], on_progress=shown.news)
        driver = link_check.named_driver(tools, values["driver"] or "")
        report = codec.encode(link_check.check(tools, _source(tools, reference), driver=driver))
    return _conclude(session, reference, reference, report, reference)


def _source(tools: Tools, reference: str) -> Image:
    from pathlib import Path

    from envbuild.pipeline import link_check_sources

    if not reference.startswith(_LAYOUT):
        return link_check_sources.of_engine(tools, reference)
    folder, _, name = reference.removeprefix(_LAYOUT).partition(":")
    return link_check_sources.of_layout(Path(folder), name)


def _conclude(session: Session, name: str, image: str, report: Mapping[str, Any], subject: str) -> int:
    """Print the whole report, then its gaps as an error. Return the exit code. ``subject`` names the image in the error."""
    from envbuild.pipeline import link_check

    document = {"schema": 1, "name": name, "image": image, "report": report}
    try:
        link_check.raise_for(report, subject)
    except VerifyError as error:
        session.document({**document, "error": error.to_json()})
        counts = f"{counted(report['objects'], 'object')}, {report['libraries']} of them loaded by programs or by imports"
        session.out(f"{name}: {counts}")
        _print_report(session, report)
        session.failure(describe(error, session.options))
        return error.exit_code
    session.document(document)
    session.out(f"{name}: {report['objects']} objects find all libraries and symbols that they need")
    _print_report(session, report)
    return 0


def _print_report(session: Session, report: Mapping[str, Any]) -> None:
    """Print everything in the report except the gaps."""
    for each in report["duplicates"]:
        first, *others = each["copies"]
        session.out(f"  note: {each['library']}: {first['path']} is used (loaded by {counted(first['users'], 'object')}), not:")
        for other in others:
            session.out(f"        {other['path']} ({other['users']})")
        if each["newer"]:
            session.out(f"        It is older than {each['newer']}: it lacks {', '.join(each['lacks'])}")
    for each in report["excused"]:
        session.out(f"  note: {each['object']} lacks {each['needs']}: {each['excuse']}")
    for each in report["facts"]["driver"]:
        if each["linked"] or each["opened"]:
            session.out(f"  {each['library']}: {_driver(each)}")
    for line in _hardware(report["facts"]):
        session.out(f"  {line}")
    for text in report["notes"]:
        session.out(f"  note: {text}")


def _hardware(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the driver that the image needs, the GPUs for which it has code, and the compilers in the image."""
    lowest = facts["lowest_driver"]
    if lowest["driver"]:
        matrix = f"; the matrix has {lowest['matrix']} for this environment" if lowest["matrix"] else ""
        yield f"lowest driver for the libraries of CUDA {', '.join(lowest['cuda'])}: {lowest['driver']}{matrix}"
    without = []
    for each in facts["gpus"]:
        if not (each["native"] or each["ptx"] or each["partly"]):
            without.append(each["capability"])
            continue
        ways = {way: [name for name, found in each["libraries"].items() if found == way] for way in _WAYS}
        yield f"GPU {each['capability']}: " + "; ".join(f"{_WAYS[way]}: {', '.join(ways[way])}" for way in ways if ways[way])
    if without:
        yield f"no object has code for GPU {', '.join(without)}"
    for each in facts["compilers"]:
        reach = f"compiles for GPUs up to {each['highest']}" if each["highest"] else "does not say for which GPUs it compiles"
        yield f"{each['compiler']} {reach} ({each['object']})"


def _driver(needs: Mapping[str, Any]) -> str:
    """Describe which symbols of one library of the driver the image needs."""
    parts = []
    if needs["linked"]:
        found = f"; all known ones exist in driver {needs['driver']}" if needs["driver"] else ""
        newer = f", and {needs['lacks']} lacks {', '.join(needs['newest'])}" if needs["lacks"] else ""
        unknown = f"; not found in any driver: {', '.join(needs['unknown'])}" if needs["unknown"] else ""
        objects, symbols = counted(len(needs["linked"]), "object"), counted(needs["symbols"], "symbol")
        parts.append(f"linked with {objects} ({symbols}{found}{newer}{unknown})")
    if needs["opened"]:
        parts.append(f"its name is in {counted(len(needs['opened']), 'object')}, which may open it")
    return "; ".join(parts)
