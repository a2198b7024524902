"""``envbuild run NAME [COMMAND…]``: run a command in the image of an environment, which is pulled or built if needed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from envbuild.cli import given_options, image_source, make, options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.plan import Buildable
    from envbuild.pipeline.running import RunOptions, Start
    from envbuild.pipeline.tools import Tools
    from envbuild.run_commands.model import Port

_PORT = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")
_USER = re.compile(r"auto|image|[0-9]+:[0-9]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=.*)?", re.DOTALL)
_GPU = r"(?:[0-9]+|(?:GPU|MIG)-[A-Za-z0-9-]+)"  # an index or a UUID, as `nvidia-smi -L` shows them
GPUS = re.compile(f"auto|all|none|{_GPU}(?:,{_GPU})*")
_MOUNT = re.compile(r"[^:]+:/[^:]*(:ro|:rw)?")


@click.command("run", context_settings={"allow_interspersed_args": False})
@options.naming()
@click.argument("words", metavar="[COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@image_source.image_source
@click.option(
    "--with",
    "program",
    type=click.Choice(["docker", "podman", "apptainer"]),
    default="docker",
    show_default=True,
    help="The program that starts the container.",
)
@click.option(
    "--gpus",
    default="auto",
    metavar="all|0,1|none",
    show_default=True,
    help=("The GPUs of the container. auto means all GPUs if the image is made for GPUs and the machine has GPUs, else none."),
)
@click.option(
    "--cdi",
    is_flag=True,
    help=(
        "With Docker: pass the GPUs by their names in the Container Device Interface (CDI). With Podman, "
        "envbuild always does so."
    ),
)
@options.shm_size
@click.option(
    "--user",
    default="auto",
    metavar="UID:GID",
    show_default=True,
    help=(
        "The user who runs the command. auto: you, or the owner of the mounted folder if you are root. image: "
        "the user that the image sets."
    ),
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    metavar="FOLDER",
    help="Mount this folder at /workspace instead of the current folder.",
)
@click.option("--no-mount", is_flag=True, help="Mount no folder at /workspace.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="FROM:TO[:ro]",
    help="Also mount the folder FROM of this machine at TO in the container; may be repeated.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help=("Set an environment variable. Without VALUE, the variable has the same value as on this machine. May be repeated."),
)
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="[LOCAL:]PORT",
    help=(
        "Make port PORT of the container available at 127.0.0.1, on the port LOCAL (default: the same number). May be repeated."
    ),
)
@click.option("--dry-run", is_flag=True, help="Print the commands that `run` would run, and run none of them.")
@options.builder
@options.engine
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    name: str,
    words: tuple[str, ...],
    *,
    dry_run: bool,
    builder: Builder,
    start_engine: bool,
    **values: Any,
) -> int:
    """Run COMMAND in the image of NAME. If this machine has the image, that image is used; else the one in the registry, if a
    registry is named and has it; else the image is built.

    The current folder is mounted at /workspace. Files that COMMAND writes there belong to your user. Signals are passed to
    COMMAND, and its exit code is the exit code of `run`. Without COMMAND, a shell starts. Options come before NAME.
    """
    from envbuild.pipeline import resolving, running

    _forget_options_of_the_command(session, click.get_current_context())
    constraints = {key: values.pop(key) for key in ("driver", "gpu", "python", "python_from", "system", "base")}
    wanted = _options(_command(words), **values)
    if session.json and not dry_run:
        raise UsageError(
            "--json needs --dry-run: without it, standard output belongs to COMMAND.",
            hint="Add --dry-run to get the commands as JSON, or leave --json out. If it is an option of COMMAND, write it "
            "after COMMAND.",
        )
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, start_engine=start_engine and not dry_run)
        environment = resolving.resolve_buildable(tools, [name], options.chosen(constraints)).environment
        each = running.candidate(tools, name, environment)
        if dry_run:
            found = running.planned(tools, each, wanted)
        else:
            found = running.obtain(tools, each, wanted, lambda: make.make_image(tools, name, constraints, builder, shown.line))
        ready = running.start(tools, each, wanted, found)
        if not dry_run:
            running.run_steps(tools, each, ready.found, shown.line)
    for note in ready.notes:
        session.err(f"note: {note}")
    if dry_run:
        return _print(session, tools, each, ready)
    from envbuild import procs

    return procs.become(ready.argv, env=ready.variables)


def _forget_options_of_the_command(session: Session, context: click.Context) -> None:
    """Reset ``--json`` and ``-v`` in the session if only COMMAND has them.

    :mod:`envbuild.cli.frame` looks for these options in all words of the command line. The words of COMMAND are not for
    envbuild.
    """
    given = {
        name
        for each in (context, context.parent)
        for name in ("json", "verbose")
        if each is not None and each.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    session.json = session.json and "json" in given
    session.verbose = session.verbose if "verbose" in given else 0


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of COMMAND. Raises :class:`UsageError` if an option follows NAME directly."""
    if words[:1] == ("--",):
        return words[1:]
    if words and words[0].startswith("-"):
        raise UsageError(
            f"{words[0]} comes after NAME, where the command begins.",
            hint="Write options before NAME. If the name of the command begins with a dash, write `--` before it.",
        )
    return words


def _options(words: tuple[str, ...], **values: Any) -> RunOptions:
    """Check the options and return them in the pipeline's form. Raises :class:`UsageError` for invalid ones."""
    from envbuild.attest import keys
    from envbuild.pipeline.running import RunOptions

    image_source.require_registry_for_key(values["repository"])
    if values["no_mount"] and values["folder"]:
        raise UsageError("--no-mount and --folder cannot be combined.", hint="Leave one of them out.")
    for option, pattern, texts in (
        ("--user", _USER, [values["user"]]), ("--env", _VARIABLE, values["variables"]), ("--mount", _MOUNT, values["mounts"]),
        ("--gpus", GPUS, [values["gpus"]]),
    ):  # fmt: skip
        if wrong := [text for text in texts if not pattern.fullmatch(text)]:
            raise UsageError(f"{option} cannot be {wrong[0]!r}.", hint="`envbuild run --help` shows the allowed form.")
    if values["program"] == "apptainer":
        _require_apptainer(**values)
    key = values["key_file"]
    return RunOptions(
        command=words,
        program=values["program"],
        repository=values["repository"],
        key=keys.public_key(key) if key else None,
        key_file=key,
        gpus=values["gpus"],
        cdi=values["cdi"],
        user=values["user"],
        folder=None if values["no_mount"] else values["folder"] or Path.cwd(),
        shm_size=values["shm_size"],
        ports=tuple(map(_port, values["ports"])),
        variables=values["variables"],
        mounts=tuple(map(_absolute, values["mounts"])),
        is_interactive=sys.stdin.isatty() and sys.stdout.isatty(),
    )


def _require_apptainer(*, user: str, variables: tuple[str, ...], **_others: Any) -> None:
    """Raise :class:`UsageError` for options that Apptainer does not support."""
    if unused := given_options.among("cdi", "shm_size"):
        raise UsageError(
            f"{' and '.join(unused)} cannot be used with Apptainer.",
            hint="Apptainer shares /dev/shm with this machine, and gives the container its GPUs with --nv. "
            f"Leave {' and '.join(unused)} out.",
        )
    if user not in ("auto", "image"):
        raise UsageError(
            "With Apptainer, every command runs as you, so --user cannot choose another user.", hint="Leave --user out."
        )
    if bare := next((name for name in variables if "=" not in name), ""):
        raise UsageError(
            f"With Apptainer, --env {bare} needs a value.",
            hint=f"Write --env {bare}=VALUE, or set APPTAINERENV_{bare}, which Apptainer passes on as {bare}.",
        )


def _absolute(mount: str) -> str:
    """Return the mount with the absolute path of its folder, because Docker takes a relative path for the name of a volume."""
    source, _, rest = mount.partition(":")
    return f"{Path(source).absolute()}:{rest}"


def _port(text: str) -> Port:
    from envbuild.run_commands.model import Port

    found = _PORT.fullmatch(text)
    host, container = (int(found[1] or found[2]), int(found[2])) if found else (0, 0)
    if not (0 < host < 65536 and 0 < container < 65536):
        raise UsageError(f"{text!r} is not a port.", hint="For example: --port 8888, or --port 9000:8888.")
    return Port(host=host, container=container)


def _print(session: Session, tools: Tools, each: Buildable, ready: Start) -> int:
    found = ready.found
    lines = [shlex.join(step) for step in (*found.steps, ready.argv)]
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in ready.variables.items())
    lines[-1] = variables + lines[-1]
    session.document({
        "schema": 1, "name": each.name, "image": found.reference, "origin": found.origin, "digest": found.digest,
        "built": not found.missing, "steps": [list(step) for step in found.steps], "argv": list(ready.argv),
        "variables": dict(ready.variables), "notes": list(ready.notes),
    })  # fmt: skip
    for line in lines:
        session.out(line)
    if found.missing:
        session.err(
            f"note: This machine does not have the image yet. To make it, run: envbuild make {tools.cli_name(each.name)}"
        )
    return 0
