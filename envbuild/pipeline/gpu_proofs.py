"""Prefers environments whose smoke test passed on the kind of GPU that the user has. Any machine may have run the test.

This module reads the smoke reports that ``evidence --from`` stored. The resolver does not know these reports. This module
asks the resolver a second time, with a request that only the proved environment satisfies. So this module need not repeat the
resolver's rules, and a proof never overrides a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envbuild.errors import EnvbuildError
from envbuild.matrix.gpu_names import find_board
from envbuild.matrix.types import Matrix
from envbuild.model.environment import Environment
from envbuild.model.resolution import Reason, Resolution
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.gathered_reports import AcceptedReport, held
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools
from envbuild.resolve.request.gpus import find_gpu
from envbuild.resolve.request.model import GpuWanted

Resolve = Callable[[Sequence[str], Constraints], Resolution]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Verdicts:
    """The newest verdicts about the GPUs of a request. ``is_complete`` is true if each of these GPUs has a verdict."""

    newest: tuple[AcceptedReport, ...]
    is_complete: bool

    @property
    def is_pass(self) -> bool:
        """Whether a smoke test passed on each GPU of the request."""
        return self.is_complete and all(each.status == "pass" for each in self.newest)


def prefer(tools: Tools, texts: Sequence[str], constraints: Constraints, usual: Resolution, resolve: Resolve) -> Resolution:
    """Return an environment that satisfies the request and was proved on the GPUs of ``constraints``.

    ``usual`` is the answer without proofs. Only environments with the same framework releases as ``usual`` are considered. So a
    proof can decide about CUDA, Python and the operating system, but never about the version of a framework. ``resolve``
    is a function that resolves a request without proofs.

    If ``usual`` itself is proved, the result is ``usual``, with the proof among the reasons. If no suitable environment is
    proved, the result is ``usual``. The warnings then name a failed smoke test of ``usual``, if there was one.
    """
    gpus = wanted(tools.matrix, constraints.gpu)
    if not gpus or usual.environment.cuda is None:
        return usual
    own = _verdicts(tools, usual.environment.name, gpus)
    if own.is_pass:
        return usual._replace(reasons=(*usual.reasons, *map(_reason, own.newest)))
    proved = [(name, _verdicts(tools, name, gpus)) for name in tools.workspace.gathered_names()]
    passed = [(name, told) for name, told in proved if told.is_pass and name != usual.environment.name]
    for name, told in sorted(passed, key=lambda each: max(report.date for report in each[1].newest), reverse=True):
        found = _narrowed(tools, texts, constraints, name, usual, resolve)
        if found is not None:
            remark = f"; without this proof, envbuild would choose {usual.environment.name}"
            reasons = [each._replace(because=each.because + remark) for each in map(_reason, told.newest)]
            own_reasons = [_as_proved(each, constraints) for each in found.reasons]
            return found._replace(request=usual.request, reasons=(*own_reasons, *reasons))
    failed = tuple(
        f"The smoke test of {usual.environment.name} failed on {_machine(each)}. Signed with the key {each.signer[:12]}."
        for each in own.newest
        if each.status == "fail"
    )
    return usual._replace(warnings=(*usual.warnings, *failed))


def is_about(matrix: Matrix, report: AcceptedReport, gpu: GpuWanted) -> bool:
    """Whether the test of the report used this kind of GPU: the same board or, if ``gpu`` names no board, the same capability.

    A report from a machine with several kinds of GPUs proves nothing. The test uses GPUs of only one kind, and the report does
    not say which kind that was.
    """
    if len({board_name(matrix, name) for name in report.gpus}) > 1:
        return False
    if gpu.board is None:
        return gpu.capability in report.capabilities
    return gpu.board.name in [board_name(matrix, name) for name in report.gpus]


def board_name(matrix: Matrix, name: str) -> str:
    """Return the name that the matrix has for a GPU; ``name`` itself if the matrix does not know the GPU."""
    try:
        return find_board(matrix, name).name
    except EnvbuildError:
        return name


def wanted(matrix: Matrix, text: str | None) -> tuple[GpuWanted, ...]:
    """Return the GPUs that ``text`` names. ``text`` is the value of ``--gpu``, which is a comma-separated list of names."""
    return tuple(find_gpu(matrix, each)[0] for each in text.split(",")) if text else ()


def _verdicts(tools: Tools, name: str, gpus: Sequence[GpuWanted]) -> _Verdicts:
    """Return the newest verdict about each GPU. If verdicts of the same day differ, the failure counts."""
    reports = [each for each in held(tools, name) if each.kind == "smoke-gpu" and each.status in ("pass", "fail")]
    found = []
    for gpu in gpus:
        told = [each for each in reports if is_about(tools.matrix, each, gpu)]
        if told:
            found.append(max(told, key=lambda each: (each.date, each.status == "fail")))
    return _Verdicts(newest=tuple(dict.fromkeys(found)), is_complete=len(found) == len(gpus))


def _narrowed(  # noqa: PLR0917 - the answer depends on all these arguments
    tools: Tools, texts: Sequence[str], constraints: Constraints, name: str, usual: Resolution, resolve: Resolve
) -> Resolution | None:
    """Resolve the request with the CUDA, Python and operating system of the proved environment ``name``.

    Return None if the resolver refuses this request, or answers with another environment. Also return None if ``name`` has no
    lock, or has other framework releases than ``usual``.
    """
    locked = read_locked(tools, name)
    if locked is None or _releases(locked.lock.environment) != _releases(usual.environment):
        return None
    proved = locked.lock.environment
    pythons = {plan.python.version for plan in proved.plans()}
    narrower = constraints._replace(
        python=constraints.python or (pythons.pop() if len(pythons) == 1 else None),
        system=constraints.system or proved.system.name,
    )
    try:
        found = resolve([*texts, f"cuda=={proved.cuda}"], narrower)
    except EnvbuildError:
        return None
    return found if found.environment.name == name else None


def _as_proved(reason: Reason, asked: Constraints) -> Reason:
    """The reason for a Python or a system that the user did not request: it is that of the proved environment. The resolver,
    which got it as a request, says that it was requested."""
    part = reason.choice.partition(" ")[0]
    was_asked = {"python": asked.python, "os": asked.system}
    return reason._replace(because="the proved image has it") if part in was_asked and not was_asked[part] else reason


def _releases(environment: Environment) -> set[tuple[str, str]]:
    return {(each.name, each.version) for each in environment.frameworks}


def _reason(report: AcceptedReport) -> Reason:
    because = f"its smoke test passed on {_machine(report)}; signed with the key {report.signer[:12]}"
    return Reason(f"proof on {', '.join(report.gpus)}", because, f"{report.repository}@{report.digest}")


def _machine(report: AcceptedReport) -> str:
    driver = f" with driver {report.driver}" if report.driver else ""
    return f"{', '.join(report.gpus)}{driver} on {report.date or 'an unknown day'}"
