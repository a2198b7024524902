"""Render the script or manifest for a launcher. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.errors import UsageError
from envbuild.jinja_settings import SHELL_COMMENTS, jinja_environment
from envbuild.launch.hosts import Host
from envbuild.launch.image_names import enroot_image
from envbuild.launch.launchers import Kind, Launcher
from envbuild.launch.settings import BatchSettings

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
USER = "envbuild"  # the default user of images
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOrder:
    """What to run, and where.

    ``name`` is the environment's name; ``gpus`` says whether its image can use GPUs. ``variables`` are set in every process;
    ``arguments`` are passed to the smoke test unchanged. ``interface`` is a network interface, and ``report`` is the folder for
    the report; both may be empty. ``user`` is the name of the image's user.
    """

    name: str
    image: str
    hosts: tuple[Host, ...]
    gpus: bool
    port: int
    rdma: bool = False
    interface: str = ""
    report: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    settings: BatchSettings = field(default_factory=BatchSettings)
    user: str = USER


def render(launcher: Launcher, kind: Kind, order: LaunchOrder, templates: Mapping[str, str]) -> str:
    """Return the script or manifest. Raises :class:`UsageError` if this launcher cannot run ``order``."""
    _check(launcher, kind, order)
    made = jinja_environment(templates, autoescape=False, **SHELL_COMMENTS)  # each filter quotes its value
    made.filters.update(sh=shlex.quote, json=json.dumps, words=shlex.join, enroot=enroot_image, clock=_clock)
    slots = [host.slots for host in order.hosts]
    return made.get_template(kind.template).render(
        order=order,
        settings=order.settings,
        hosts=order.hosts,
        master=order.hosts[0].name,
        total=sum(slots),
        slots=slots[0],
        variables=_variables(order),
        guest=("envbuild-smoke", "run", *(("--interface", order.interface) if order.interface else ()), *order.arguments),
        job="envbuild-smoke",
    )


def _clock(seconds: int) -> str:
    """Format a time limit for Slurm, such as ``26:00:05``."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _variables(order: LaunchOrder) -> dict[str, str]:
    """Return the variables for every process: the user's variables, and the variables that other options need.

    If both set a variable, the user's value is used.
    """
    found = dict(order.variables)
    if order.interface:
        found.setdefault("NCCL_SOCKET_IFNAME", order.interface)
        found.setdefault("GLOO_SOCKET_IFNAME", order.interface)
    if order.rdma:
        found.setdefault("NCCL_IB_DISABLE", "0")
    return found


def _check(launcher: Launcher, kind: Kind, order: LaunchOrder) -> None:
    where = f"{launcher.name} ({kind.name})"
    if kind.named and not all(host.name for host in order.hosts):
        raise UsageError(f"{where} needs the names of the hosts.", code="hosts-unnamed", hint="For example a:4,b:4.")
    if kind.equal and len({host.slots for host in order.hosts}) > 1:
        raise UsageError(
            f"{where} needs the same number of devices on every host.",
            code="hosts-unequal",
            hint="Request the smallest of these numbers on every host.",
        )
    if order.report and not kind.report:
        raise UsageError(
            f"{where} cannot write the report into a folder.",
            code="no-report-folder",
            hint="Leave --report out, and read the log.",
        )
    unused = [name for name in order.settings.given() if name not in kind.options]
    if unused:
        takes = ", ".join(f"--{name}" for name in kind.options)
        raise UsageError(
            f"{where} does not use --{', --'.join(unused)}.",
            code="option-unused",
            hint=f"Use only {takes}." if takes else "Leave it out: this launcher has no such options.",
        )
    texts = [order.image, order.interface, order.report, *order.arguments, *(value for _, value in order.variables)]
    if any(_CONTROL.search(text) for text in texts):
        raise UsageError("An argument contains a control character, which a launcher cannot pass on.", hint="Remove it.")
    for name, _ in order.variables:
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env: {name!r} is not the name of a variable.", hint="Write NAME=VALUE.")
