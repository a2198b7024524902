"""Prefers environments that somebody proved on the user's GPU.

The evidence is what ``evidence --from`` stored. The resolver does not know this evidence: it is asked a second time, with the
request narrowed to the proved environment. So its rules are not repeated here, and a proof never overrides a rule.
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
    """The newest verdict about each GPU of a request. ``newest`` is empty if no report is about any of these GPUs."""

    newest: tuple[AcceptedReport, ...]
    is_complete: bool

    @property
    def is_pass(self) -> bool:
        """Whether a smoke test passed on each GPU of the request."""
        return self.is_complete and all(each.status == "pass" for each in self.newest)


def prefer(tools: Tools, texts: Sequence[str], constraints: Constraints, usual: Resolution, resolve: Resolve) -> Resolution:
    """Return the environment that was proved on the GPUs of ``constraints``, if it satisfies the request.

    Only environments with the releases of ``usual`` are preferred: a proof decides about CUDA, Python and the operating system,
    never about the version of a framework. ``resolve`` answers a request by the matrix. If nothing better is proved, the
    answer is ``usual``, with its own proof as a reason or its failure as a warning.
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
            remark = f"; without this proof: {usual.environment.name}"
            reasons = [each._replace(because=each.because + remark) for each in map(_reason, told.newest)]
            return found._replace(request=usual.request, reasons=(*found.reasons, *reasons))
    failed = tuple(
        f"The smoke test of {usual.environment.name} failed on {_machine(each)}. Signed with the key {each.signer[:12]}."
        for each in own.newest
        if each.status == "fail"
    )
    return usual._replace(warnings=(*usual.warnings, *failed))


def is_about(matrix: Matrix, report: AcceptedReport, gpu: GpuWanted) -> bool:
    """Whether the report's test used this GPU: the same board, or, if no board was named, the same compute capability.

    On a machine with different GPUs, the test uses only equal ones, but the report does not say which. It proves nothing then.
    """
    if len({board_name(matrix, name) for name in report.gpus}) > 1:
        return False
    if gpu.board is None:
        return gpu.capability in report.capabilities
    return gpu.board.name in [board_name(matrix, name) for name in report.gpus]


def board_name(matrix: Matrix, name: str) -> str:
    """The matrix's name for a GPU; ``name`` itself if the matrix does not know it."""
    try:
        return find_board(matrix, name).name
    except EnvbuildError:
        return name


def wanted(matrix: Matrix, text: str | None) -> tuple[GpuWanted, ...]:
    """The GPUs that ``--gpu`` names."""
    return tuple(find_gpu(matrix, each)[0] for each in text.split(",")) if text else ()


def _verdicts(tools: Tools, name: str, gpus: Sequence[GpuWanted]) -> _Verdicts:
    """The newest verdict about each GPU. Among verdicts of the same day, a failure counts."""
    reports = [each for each in held(tools, name) if each.kind == "smoke-gpu" and each.status in ("pass", "fail")]
    found = []
    for gpu in gpus:
        told = [each for each in reports if is_about(tools.matrix, each, gpu)]
        if told:
            found.append(max(told, key=lambda each: (each.date, each.status == "fail")))
    return _Verdicts(newest=tuple(dict.fromkeys(found)), is_complete=len(found) == len(gpus))


def _narrowed(  # noqa: PLR0917 - the request, the proved environment, and the two answers
    tools: Tools, texts: Sequence[str], constraints: Constraints, name: str, usual: Resolution, resolve: Resolve
) -> Resolution | None:
    """The answer to the request if it is narrowed to the environment ``name``; None if this is not an answer to it."""
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


def _releases(environment: Environment) -> set[tuple[str, str]]:
    return {(each.name, each.version) for each in environment.frameworks}


def _reason(report: AcceptedReport) -> Reason:
    because = f"its smoke test passed on {_machine(report)}; signed with the key {report.signer[:12]}"
    return Reason(f"proof on {', '.join(report.gpus)}", because, f"{report.repository}@{report.digest}")


def _machine(report: AcceptedReport) -> str:
    driver = f" with driver {report.driver}" if report.driver else ""
    return f"{', '.join(report.gpus)}{driver} on {report.date or 'an unknown day'}"
