"""Options that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from envbuild.cli.session import Session
from envbuild.errors import UsageError
from envbuild.run_commands.model import SHM_SIZE

if TYPE_CHECKING:
    from envbuild.pipeline.constraints import Constraints
    from envbuild.smoketest import SmokeOptions

F = TypeVar("F", bound=Callable[..., Any])

SUPPLIES = ("distribution", "uv", "conda", "base")
PASSWORD = "COSIGN_PASSWORD"  # noqa: S105 - the name of cosign's variable
REGISTRY, KEY = "ENVBUILD_REGISTRY", "ENVBUILD_KEY"
PROGRESS = ("auto", "plain", "rich", "json", "none")


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a common option in the session. If the option is absent after the verb, its value from before the verb stays."""
    session = ctx.ensure_object(Session)
    if param.name is None or value in (None, False, 0):
        return
    setattr(session, param.name, value)


def _add_overlays(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:  # noqa: ARG001 - click's
    """Collect the overlays that were given before and after the verb."""
    ctx.ensure_object(Session).overlays.extend(value)


def common(function: F) -> F:
    """Add the options that every verb has: ``--json -v -q --progress --policy --matrix --root``. Their values are stored in the
    session, and are never passed to the function of the verb."""
    for option in (
        click.option(
            "--root",
            metavar="FOLDER",
            help="The folder that contains matrix.yaml and images/, instead of the one that envbuild finds itself.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
        click.option(
            "--matrix",
            "overlays",
            multiple=True,
            metavar="FILE",
            help="A file with your own rows, which are added to the matrix or replace rows of the same name. May be "
            "repeated. Or set ENVBUILD_MATRIX.",
            callback=_add_overlays,
            expose_value=False,
        ),
        click.option(
            "--policy",
            metavar="FILE",
            help="The policy file of your site, which says what the site allows and requires. Or set ENVBUILD_POLICY.",
            callback=_note,
            expose_value=False,
        ),
        click.option(
            "--progress",
            type=click.Choice(PROGRESS),
            help="How to show progress. auto: rich on a terminal, else plain. rich: lines that are updated in place. "
            "plain: lines that stay. json: one JSON object per line. none: no progress.",
            callback=_note,
            expose_value=False,
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            help="Show only results and errors.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="Also show the output of builds, and the traceback if envbuild itself fails.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
        click.option(
            "--json",
            is_flag=True,
            help="Print the result as one JSON document on standard output.",
            callback=_note,
            expose_value=False,
            is_eager=True,
        ),
    ):
        function = option(function)
    return function


def constraints(function: F) -> F:
    """Add ``--driver --gpu --python --python-from --os --base``, which constrain the environment in addition to the request."""
    for option in (
        click.option(
            "--base",
            metavar="PROVIDER|IMAGE",
            help="Use this base image, or a base from this provider (tag, apt, wheels, conda, debian, distribution).",
        ),
        click.option("--os", "system", metavar="NAME", help="Use this operating system, e.g. debian12."),
        click.option(
            "--python-from",
            type=click.Choice(SUPPLIES),
            help="Take Python from here: packages of the system (distribution), uv, conda, or your own base image (base).",
        ),
        click.option("--python", metavar="VERSION", help="Use this Python, e.g. 3.11."),
        click.option(
            "--gpu", metavar="NAME|sm_XX", help="The GPU on which the environment must run, e.g. 'GTX 1080 Ti' or sm_61."
        ),
        click.option(
            "--driver", metavar="VERSION", help="The NVIDIA driver with which the environment must run, e.g. 384.130."
        ),
    ):
        function = option(function)
    return function


def chosen(values: Mapping[str, str | None]) -> Constraints:
    """Return the verb's constraint options in the form that the pipeline takes."""
    from envbuild.pipeline.constraints import Constraints

    return Constraints(**values)


def builder(function: F) -> F:
    """Add ``--builder``, which says how the image is made."""
    return click.option(
        "--builder",
        type=click.Choice(["auto", "docker", "compose"]),
        default="auto",
        show_default=True,
        help="How the image is made. docker: the engine builds the Dockerfile. compose: envbuild itself makes "
        "layers from the locked wheels. auto: the faster of both on this engine, if the image can be composed.",
    )(function)


def compression(function: F) -> F:
    """Add ``--compression``, the compression of an image's layers."""
    return click.option(
        "--compression",
        type=click.Choice(["gzip", "zstd", "none"]),
        help="Compress the layers in this way. Without it, each layer keeps its compression; layers of composed "
        "images have gzip.",
    )(function)


def signing(function: F) -> F:
    """Add ``--key``, the file of the private key that signs."""
    return click.option(
        "--key",
        "key_file",
        required=True,
        type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
        metavar="FILE",
        help=f"The private key for signing, such as cosign.key. Set {PASSWORD} to the password of the key.",
    )(function)


def destination(function: F) -> F:
    """Add ``--to``, the repository to which images are pushed."""
    text = "The repository of a registry to which the images are pushed."
    return click.option("--to", "repository", required=True, metavar="HOST/REPOSITORY", help=text)(function)


def shm_size(function: F) -> F:
    """Add ``--shm-size``. Its value must have the form that Docker, Podman and Compose accept."""

    def checked(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001 - click's
        if not re.fullmatch("[0-9]+[bkmgBKMG]?", value):
            raise UsageError(f"--shm-size must be a size such as 8g or 512m, not {value!r}.", hint="For example: 8g or 512m.")
        return value

    return click.option(
        "--shm-size",
        default=SHM_SIZE,
        metavar="SIZE",
        show_default=True,
        callback=checked,
        help="The size of /dev/shm in the container.",
    )(function)


def engine(function: F) -> F:
    """Add ``--start-engine``, which starts the private container engine if no engine answers."""
    return click.option(
        "--start-engine", is_flag=True, help="If no container engine answers, start a private one (`envbuild engine up`)."
    )(function)


def offline(function: F) -> F:
    """Add ``--offline``, which forbids the network for the whole run."""

    def forbid(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's
        if value is not None:
            from envbuild import network

            ctx.with_resource(network.forbidden())
        return value

    return click.option(
        "--offline",
        type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
        metavar="FOLDER",
        callback=forbid,
        help="Take all files from the bundle in this folder, which `envbuild bundle` wrote, and use no network.",
    )(function)


def alias(request: str, constraints: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the request as a further tag of the image. Return no tag if the request is a path or not valid as a tag. Also
    return no tag if there are ``constraints``, because the tag would not name them."""
    from envbuild.custom.paths import path_in

    if path_in([request]):
        return ()
    plain = request.replace("+", "_").lower()
    sayable = plain[:1].isalnum() and all(c.isalnum() or c in "._-" for c in plain) and len(plain) <= 128
    return (plain,) if sayable and not any(constraints.values()) else ()


def aliases(requests: Iterable[str], constraints: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the tags of :func:`alias` for all requests that mean the same environment."""
    return tuple(dict.fromkeys(tag for request in requests for tag in alias(request, constraints)))


def judging(function: F) -> F:
    """Add the options of the smoke test that ``smoke`` and ``make`` share."""
    for option in (
        click.option("--strict", is_flag=True, help="Treat warnings of the smoke test as failures."),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=1),
            metavar="SECONDS",
            help="Stop the smoke test after this many seconds.",
        ),
        click.option(
            "--data",
            type=click.Path(exists=True, file_okay=False, resolve_path=True),
            help="Train on the MNIST or CIFAR-10 files in this folder, not on generated images. `envbuild data fetch` "
            "downloads the files.",
        ),
        click.option(
            "--net",
            default="",
            metavar="NAME",
            help="The network to train: lenet for the workload mnist; resnet20 or vgg19_bn for cifar.",
        ),
        click.option(
            "--workload",
            default="",
            metavar="mnist,cifar",
            help="The workloads to train (default: mnist on the CPU; mnist and cifar on GPUs).",
        ),
        click.option(
            "--min-speedup",
            default="",
            metavar="N:X,…",
            help="Fail if the speedup of N devices is below X, e.g. 2:1.2.",
        ),
        click.option(
            "--devices",
            "gpus",
            default="",
            metavar="0,1",
            help="The GPUs to use, by index or UUID (default: the largest group of GPUs with the same model and memory size).",
        ),
        click.option(
            "--counts",
            default="auto",
            metavar="1,N,…",
            show_default=True,
            help="The numbers of devices to test in one run. auto means 1 and 2 on the CPU; on GPUs, the powers of two "
            "and the number of all GPUs.",
        ),
        click.option("--expect-gpus", type=click.IntRange(min=1), metavar="N", help="Fail if fewer than N GPUs can be used."),
        click.option(
            "--expect",
            type=click.Choice(["cpu", "gpu"]),
            default=None,
            help="The kind of device on which the test must run. With cpu, a GPU image may pass on the CPU.",
        ),
        click.option(
            "--allow-cpu", is_flag=True, help="If there is no GPU, run a GPU image on the CPU, and say so in the report."
        ),
    ):
        function = option(function)
    return function


def measuring(function: F) -> F:
    """Add the options of ``smoke`` for measuring and comparing speed."""
    for option in (
        click.option(
            "--tolerance",
            type=click.FloatRange(min=0, max=1, max_open=True),
            metavar="SHARE",
            help="Fail if the speed is lower than in the baseline by more than this share, e.g. 0.1 for 10 %. Without "
            "this option, a loss of more than 10 % is only a warning.",
        ),
        click.option(
            "--baseline",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="An earlier JSON report of the smoke test. The new speeds are compared with its speeds.",
        ),
        click.option(
            "--min-efficiency",
            default="",
            metavar="N:X,…",
            help="Fail if the speedup of N devices, divided by N, is below X, e.g. 2:0.8.",
        ),
        click.option(
            "--sync",
            default="",
            metavar="SCHEME,…",
            help="Also train with these schemes, and compare each with averaging gradients. parameters:K averages the "
            "parameters every K steps. async:S updates a parameter server, with a lead of at most S steps.",
        ),
        click.option(
            "--scaling",
            default="",
            metavar="weak,strong",
            help="How the batch depends on the number of devices. weak: the batch per device stays the same. strong: "
            "the total batch stays the same. Default: weak.",
        ),
    ):
        function = option(function)
    return function


def smoke_options(values: Mapping[str, Any]) -> SmokeOptions:
    """Return the options of :func:`judging` for the smoke test. Raises :class:`UsageError` for invalid counts."""
    from envbuild.smoketest import SmokeOptions

    text = str(values["counts"])
    parts = [part.strip() for part in text.split(",")] if text != "auto" else []
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(
            f"--counts must be whole numbers of at least 1, separated by commas, not {text!r}.", hint="For example: 1,2"
        )
    counts = tuple(sorted({int(part) for part in parts}))
    gpus = tuple(part.strip() for part in str(values["gpus"]).split(",") if part.strip())
    return SmokeOptions(
        **{**values, "counts": counts, "gpus": gpus, "expect": values["expect"] or "", "data": values.get("data") or ""}
    )


def split(values: Mapping[str, Any]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Split the options of a verb into (constraints of the request, options of the smoke test)."""
    constraints = {name: values[name] for name in ("driver", "gpu", "python", "python_from", "system", "base")}
    return constraints, {name: value for name, value in values.items() if name not in constraints}


def naming(argument: str = "name", *, several: bool = False, required: bool = True, **more: Any) -> Callable[[F], F]:
    """Add the argument that names one environment, or ``several``. The default is the envbuild.yaml in the working folder."""

    def named(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        chosen = any(ctx.params.get(option) for option in ("every", "pattern", "revision", "rollback", "foreign"))
        if value or chosen or ctx.resilient_parsing:
            return value
        from envbuild.custom.paths import FILE

        if Path(FILE).is_file():
            return (FILE,) if several else FILE
        if required:
            raise click.MissingParameter(ctx=ctx, param=param)
        return value

    nargs = -1 if several else 1
    return click.argument(argument, nargs=nargs, required=False, callback=named, shell_complete=complete_name, **more)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """Return canonical names and stacks that begin with ``incomplete``. After an error, return no names and print nothing."""
    from envbuild.resolve.build_list import list_builds

    try:
        session = ctx.find_object(Session) or Session()
        rows = list_builds(session.tools().matrix)
        known = [*(path.stem for path in sorted(session.workspace.stacks.glob("*.yaml"))), *(row.name for row in rows)]
    except Exception:
        return []
    return [name for name in known if name and name.startswith(incomplete.lower())]
