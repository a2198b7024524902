"""Checks hosts before a launch: through ssh, or by a batch system that checks the job without starting it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from envbuild.errors import ConflictError, EnvbuildError, TimedOutError, UnknownNameError, UsageError
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.host.doctor import HostFinding
    from envbuild.launch.hosts import Host
    from envbuild.launch.preflight import HostReport, Looked
    from envbuild.pipeline.launching import Launch

_TIMEOUT_S = 120
_AT_ONCE = 16
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"
_HERE = "localhost"


def can_look(plan: Launch) -> bool:
    """Whether each host of this launch can be checked from here."""
    return plan.kind.named


def look(tools: Tools, plan: Launch, remote_shell: str = SSH) -> list[HostReport]:
    """Check each host through ``remote_shell``. A host that cannot be reached gets a report that says so."""
    from envbuild import files
    from envbuild.launch import preflight

    script = files.read_text(tools.workspace.launchers / preflight.SCRIPT)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        looked = list(pool.map(lambda host: _look(plan, host, script, remote_shell), plan.order.hosts))
    known: dict[tuple[str, str], Sequence[str]] = {}

    def fits(driver: str, gpu: str) -> Sequence[str]:
        if (driver, gpu) not in known:
            known[driver, gpu] = _objections(tools, plan.order.name, driver, gpu)
        return known[driver, gpu]

    return preflight.judge(plan.order, looked, fits)


def rehearse(plan: Launch) -> HostFinding | None:
    """Let the batch system check the job without starting it. Return None if the batch system has no such check."""
    from envbuild import procs
    from envbuild.host.doctor import HostFinding

    argv = plan.kind.rehearse
    if not argv:
        return None
    if procs.find(argv[0]) is None:
        raise UsageError(
            f"This machine does not have {argv[0]}, which is needed to check a job of {plan.launcher.name}.",
            code="missing-program",
            hint="Repeat the command on the machine on which you submit jobs.",
        )
    title = f"{plan.launcher.name} ({shlex.join(argv)})"
    result = procs.run(argv, input_text=plan.text, timeout_s=_TIMEOUT_S)
    said = " ".join(line.strip() for line in result.output.splitlines() if line.strip())[:600]
    if result.code == 0:
        return HostFinding(id="rehearsal", status="ok", title=title, message=said or "would be accepted")
    hint = "Correct what the message names: the partition, the account, the number of hosts, their devices, cores or memory."
    return HostFinding(id="rehearsal", status="missing", title=title, message=said or f"status {result.code}", hint=hint)


def _look(plan: Launch, host: Host, script: str, remote_shell: str) -> Looked:
    from envbuild import procs
    from envbuild.launch import preflight

    words = ["sh", "-s", "--", *preflight.questions(plan.kind, plan.order, host)]
    argv = words if host.name == _HERE else [*shlex.split(remote_shell), host.name, shlex.join(words)]
    start = time.time()
    try:
        result = procs.run(argv, input_text=script, timeout_s=_TIMEOUT_S, split=True)
    except TimedOutError:
        return preflight.Looked(host=host, lines=(), failure=f"no answer within {_TIMEOUT_S} s")
    except UsageError as error:
        return preflight.Looked(host=host, lines=(), failure=error.message)
    lines = tuple(result.output.splitlines())
    said = (result.errors.strip().splitlines() or [""])[-1]
    failure = "" if result.code == 0 else said or f"{argv[0]} ended with exit code {result.code}"
    return preflight.Looked(host=host, lines=lines, failure=failure, at=(start + time.time()) / 2)


def _objections(tools: Tools, name: str, driver: str, gpu: str) -> Sequence[str]:
    """Return why, according to the matrix, the environment cannot run on a host with this driver and GPU."""
    from envbuild.pipeline.constraints import Constraints
    from envbuild.pipeline.resolving import resolve_request

    if tools.user_recipe is not None:
        return ()  # a recipe's name is no request; the smoke test checks the driver and the GPU later
    try:
        resolve_request(tools, [name], Constraints(driver=driver, gpu=gpu))
    except ConflictError as error:
        return [conflict.reason for conflict in error.conflicts] or [error.message]
    except UnknownNameError:
        return ()  # the matrix does not know this GPU, which may work
    except EnvbuildError as error:
        return [error.message]
    return ()
