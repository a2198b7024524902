"""``envbuild launch NAME --hosts a:4,b:4 --via mpirun``: run the smoke test on several machines with their own launcher."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from envbuild import errors
from envbuild.cli import options
from envbuild.cli.session import Session, describe

if TYPE_CHECKING:
    from envbuild.host.doctor import HostFinding
    from envbuild.launch.settings import BatchSettings
    from envbuild.pipeline.launching import Launch
    from envbuild.pipeline.tools import Tools

# Environment variables that name a program to use in place of ssh. The second variable is also read by mpirun itself.
_REMOTE_SHELLS = ("ENVBUILD_RSH", "OMPI_MCA_plm_rsh_agent")
_MARKS = {"ok": "ok", "warn": "WARN", "missing": "MISSING"}
_EXITS = {"pass": 0, "inconclusive": errors.SmokeInconclusiveError.exit_code}


@click.command("launch")
@options.naming()
@click.argument("arguments", nargs=-1)
@click.option(
    "--hosts",
    "text",
    metavar="a:4,b:4",
    required=True,
    help="The hosts, each with its number of devices. 2x4 means any two hosts with four devices each.",
)
@click.option("--via", metavar="LAUNCHER", required=True, help="The launcher: mpirun, torchrun, slurm, kubernetes.")
@click.option(
    "--kind",
    default="",
    metavar="KIND",
    help="The way in which the launcher starts the image. Each launcher has its own kinds and its own default.",
)
@click.option(
    "--run/--print",
    "run",
    default=False,
    help="With --run: start the test now. With --print (the default): only print the commands.",
)
@click.option(
    "--preflight",
    is_flag=True,
    help="Start no test. Only check what each host lacks, or whether the batch system would accept the job.",
)
@click.option("--skip-preflight", "skip", is_flag=True, help="With --run: do not check the hosts first.")
@click.option("--image", default="", metavar="REFERENCE", help="The name of the image on the hosts.")
@click.option(
    "--registry",
    default="",
    metavar="HOST/REPOSITORY",
    help=(
        "The repository of a registry from which the hosts pull the image. The image is the one that was made from the inputs "
        "of this checkout, as for `pull`; without a lock, its tag is the canonical name of NAME."
    ),
)
@click.option(
    "--has",
    "vouched",
    multiple=True,
    metavar="PROGRAM",
    help=("Assume that the image contains this program, such as mpirun, although its lock does not show it. May be repeated."),
)
@click.option("--cpu", is_flag=True, help="Test on CPUs: request no GPUs, even if the image is made for GPUs.")
@click.option(
    "--interface", default="", metavar="IF", help="The network interface through which the hosts exchange data, such as eth0."
)
@click.option("--rdma", is_flag=True, help="Allow the processes to use InfiniBand or RoCE adapters.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set this variable in every process; may be repeated."
)
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    default=29617,
    show_default=True,
    help="The TCP port at which the other ranks reach rank 0.",
)
@click.option(
    "--report", default="", metavar="FOLDER", help="The absolute path of the folder for the report, on the host of rank 0."
)
@click.option("--partition", default="", metavar="NAME", help="Slurm: the partition to run in.")
@click.option("--account", default="", metavar="NAME", help="Slurm: the account to charge.")
@click.option(
    "--time", "--time-limit", "time", default="", metavar="2h", help="How long the whole job may take, such as 2h or 02:00:00."
)
@click.option("--cpus", "--cpus-per-task", "cpus", type=click.IntRange(1, 4096), metavar="N", help="CPU cores for each device.")
@click.option(
    "--memory",
    "--mem",
    "memory",
    default="",
    metavar="64G",
    help="Memory of each host (default with Slurm: all of its memory).",
)
@click.option(
    "--exclusive/--shared",
    "exclusive",
    default=True,
    help=("Slurm: use hosts that run no other job (--exclusive, the default), or share hosts with other jobs (--shared)."),
)
@click.option("--sbatch", multiple=True, metavar="OPTION", help="Slurm: pass this further option to sbatch; may be repeated.")
@click.option("--namespace", default="", metavar="NAME", help="Kubernetes: the namespace of the job.")
@click.option(
    "--pull-secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Kubernetes: the Secret with the credentials for pulling the image.",
)
@click.option(
    "--toleration",
    "taints",
    multiple=True,
    metavar="KEY[=VALUE][:EFFECT]",
    help="Kubernetes: also allow nodes with this taint.",
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, arguments: tuple[str, ...], **values: Any) -> int:
    """Print the commands that run the smoke test of NAME on several machines. With --run, run them.

    Options after -- are passed to the smoke test, for example `-- --counts 1,8`. Every host must have the image. With --run,
    the exit codes are those of `envbuild smoke`. If the launcher uses ssh, --run first checks the hosts as --preflight does.
    If a host lacks something, the exit code is 6.
    """
    from envbuild.launch import rendering
    from envbuild.launch.hosts import read_hosts
    from envbuild.pipeline import launching, preflight, resolving

    names = ("driver", "gpu", "python", "python_from", "system", "base")
    hosts = read_hosts(values["text"])
    tools = session.tools([name])
    environment = resolving.resolve_buildable(tools, [name], options.chosen({key: values[key] for key in names})).environment
    order = rendering.LaunchOrder(
        name=environment.name,
        image=_image(tools, environment.name, values),
        hosts=hosts,
        gpus=environment.cuda is not None and not values["cpu"],
        port=values["port"],
        rdma=values["rdma"],
        interface=values["interface"],
        report=_folder(values["report"]),
        variables=tuple(_pair(text) for text in values["variables"]),
        arguments=_arguments(arguments, cpu=values["cpu"] and environment.cuda is not None),
        settings=_settings(values),
        user=(environment.custom.user if environment.custom else "") or rendering.USER,
    )
    told = bool(values["image"] or values["registry"])
    kind, has = values["kind"], values["vouched"]
    plan = launching.launch_text(tools, values["via"], kind, order, environment, shared=told, vouched=has)
    document = {
        "schema": 1,
        "name": environment.name,
        "image": order.image,
        "launcher": plan.launcher.name,
        "kind": plan.kind.name,
        "hosts": [{"name": host.name, "devices": host.slots} for host in hosts],
        "run": list(plan.argv),
        "text": plan.text,
    }
    if values["run"]:
        launching.require_launcher(plan)
    if values["preflight"] or (values["run"] and preflight.can_look(plan) and not values["skip"]):
        code = _preflight(session, tools, plan, document, alone=values["preflight"])
        if code or values["preflight"]:
            session.document(document)
            return code
    return _run(session, plan, document) if values["run"] else _print(session, plan, document)


def _preflight(session: Session, tools: Tools, plan: Launch, document: dict[str, Any], *, alone: bool) -> int:
    """Check the hosts, print the findings and return the exit code. ``alone`` means that no launch follows the check."""
    from envbuild import codec
    from envbuild.pipeline import preflight

    remote_shell = next(filter(None, map(os.environ.get, _REMOTE_SHELLS)), preflight.SSH)
    reports = preflight.look(tools, plan, remote_shell) if preflight.can_look(plan) else []
    rehearsed = preflight.rehearse(plan) if alone else None
    for each in reports:
        session.err(f"{each.host.name}: {'ready' if each.is_ready else 'not ready'}")
        for finding in each.findings:
            if alone or finding.status != "ok":
                _say(session, finding)
    if rehearsed is not None:
        _say(session, rehearsed)
    document["preflight"] = {
        "hosts": [
            {"name": each.host.name, "ready": each.is_ready, "findings": codec.encode(each.findings)} for each in reports
        ],
        "rehearsal": codec.encode(rehearsed) if rehearsed is not None else None,
    }
    lacking = [each.host.name for each in reports if not each.is_ready]
    if not lacking and (rehearsed is None or rehearsed.status == "ok"):
        return 0
    error = errors.EngineError(
        f"{', '.join(lacking) or plan.launcher.name} cannot run this launch yet.",
        code="hosts-not-ready",
        hint="Fix the problems above and repeat the command" + ("." if alone else ", or skip the check with --skip-preflight."),
    )
    document["error"] = error.to_json()
    session.failure(describe(error, session.options))
    return error.exit_code


def _say(session: Session, finding: HostFinding) -> None:
    session.err(f"  {_MARKS.get(finding.status, finding.status):<8} {finding.title}: {finding.message}")
    if finding.hint:
        session.err(f"  {'':<8} → {finding.hint}")


def _print(session: Session, plan: Launch, document: dict[str, Any]) -> int:
    session.document(document)
    session.out(plan.text.rstrip("\n"), is_for_here=False)
    command = plan.kind.by_hand
    way = f"Save it as {command.rpartition(' ')[2]} and run `{command}`" if command else f"Pass it to `{' '.join(plan.argv)}`"
    session.err(f"{way}, or repeat this command with --run.")
    return 0


def _run(session: Session, plan: Launch, document: dict[str, Any]) -> int:
    from envbuild.pipeline import launching
    from envbuild.report import view

    content = launching.run_launch(plan, session.out)
    document["report"] = content
    if content is None:
        session.document(document)
        return 0
    verdict = view.verdict_of(content)
    sentence, hint = view.summary(content)
    code = _EXITS.get(verdict, errors.SmokeFailedError.exit_code)
    if code:
        kind = errors.SmokeInconclusiveError if verdict == "inconclusive" else errors.SmokeFailedError
        document["error"] = kind(sentence, hint=hint).to_json()
    session.document({**document, "status": verdict})
    session.out(sentence)
    return code


def _image(tools: Tools, name: str, values: dict[str, Any]) -> str:
    from envbuild.pipeline import launching

    if values["image"] and values["registry"]:
        raise errors.UsageError("--image and --registry cannot be combined: both name the image.", hint="Use one of them.")
    if values["image"]:
        return str(values["image"])
    return launching.image_of(tools, name, must_exist=values["run"], registry=values["registry"])


def _settings(values: dict[str, Any]) -> BatchSettings:
    from envbuild.launch import settings

    return settings.BatchSettings(
        partition=settings.read_word("partition", values["partition"]),
        account=settings.read_word("account", values["account"]),
        time_s=settings.read_time(values["time"]),
        cpus=values["cpus"] or 0,
        memory_mib=settings.read_memory(values["memory"]),
        shared=not values["exclusive"],
        sbatch=tuple(map(settings.read_sbatch, values["sbatch"])),
        namespace=settings.read_label("namespace", values["namespace"]),
        pull_secrets=tuple(settings.read_label("pull-secret", text) for text in values["secrets"]),
        tolerations=tuple(map(settings.read_toleration, values["taints"])),
    )


def _folder(text: str) -> str:
    if text and not text.startswith("/"):
        raise errors.UsageError(
            f"--report: {text} is not a full path.",
            hint="The hosts do not share your working folder, so write a path that starts with /.",
        )
    return text.rstrip("/") or text


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise errors.UsageError(f"--env must be NAME=VALUE, not {text!r}.", hint="For example: --env NCCL_IB_HCA=mlx5")
    return name, value


def _arguments(given: tuple[str, ...], *, cpu: bool) -> tuple[str, ...]:
    """Return the arguments of the guest. With ``cpu``, the smoke test of a GPU image may run on CPUs.

    Without ``cpu``, the smoke test of a GPU image on hosts without GPUs is inconclusive.
    """
    return (*(("--allow-cpu", "--expect", "cpu") if cpu else ()), *given)
