"""Classes for the contents of a report that are shown. None stands for a value that is absent or not a finite number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "fail", "inconclusive", "error"]
PartStatus = Literal["pass", "fail", "inconclusive", "error", "not-applicable"]
CheckStatus = Literal["pass", "warn", "fail", "inconclusive", "skip", "info", "error"]

# The statuses of checks, in the order in which a person should read the checks.
CHECK_STATUSES: tuple[CheckStatus, ...] = ("error", "fail", "inconclusive", "warn", "pass", "info", "skip")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check. ``workers`` is None if the check is not about a number of workers."""

    id: str
    title: str
    workers: int | None
    status: CheckStatus
    value: str
    limit: str
    message: str
    next_step: str
    detail: tuple[tuple[str, str], ...]
    workload: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The results of one number of workers. ``solo_per_s`` is the speed of one worker in the same rounds, in images per second.

    ``low`` and ``high`` are the ends of the interval of the speedup at the confidence ``level`` (0.965 is 96.5 %). ``slowest``
    and ``fastest`` are the ends of the interval of ``images_per_s``. ``split`` has pairs (part of a step, milliseconds).
    ``plain_per_s`` is the speed in images per second without the memory allocator settings of the smoke test.
    """

    workers: int
    images_per_s: float | None
    solo_per_s: float | None
    speedup: float | None
    low: float | None
    high: float | None
    level: float | None
    efficiency: float | None
    ceiling: float | None
    communication: float | None
    accuracy: float | None
    seconds: float | None
    judged: bool
    why_not_judged: str
    verdict: str
    state: CheckStatus
    slowest: float | None = None
    fastest: float | None = None
    split: tuple[tuple[str, float], ...] = ()
    plain_per_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One round of a speed measurement: the images per second of one worker alone and of ``workers`` workers together."""

    workers: int
    index: int
    solo: float | None
    together: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Rows that may be compared with each other.

    Their runs have the same workload, network, kind of scaling, precision and exchange.
    """

    title: str
    rows: tuple[Row, ...]
    rounds: tuple[Round, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One training, with its accuracy. ``losses`` are pairs (step, loss)."""

    workers: int
    accuracy: float | None
    seconds: float | None
    steps: int | None
    losses: tuple[tuple[float, float], ...]
    workload: str = ""
    net: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One collective operation with one message size: its time in microseconds, and its algorithm bandwidth and bus bandwidth
    in GB/s (1e9 bytes per second)."""

    op: str
    type: str
    workers: int | None
    hosts: int
    bytes: float | None
    time_us: float | None
    algorithm: float | None
    bus: float | None
    nominal: float | None
    wrong: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """The results of one scheme other than averaging gradients. ``change`` is the difference in accuracy, in percentage
    points, from averaging gradients in the same run."""

    sync: str
    workload: str
    workers: int | None
    speedup: str
    accuracy: float | None
    change: float | None
    distance: float | None
    staleness: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """How the GPUs are connected, in the words of ``nvidia-smi topo -m``. ``link`` is the slowest link, with its rate."""

    gpus: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    link: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PartReport:
    """The report about one of several frameworks. ``title`` names the framework and its prefix; ``view`` is its own report, if
    there is one."""

    title: str
    status: PartStatus
    reason: str
    view: View | None


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Everything that the formats show about one report. ``facts`` are blocks of pairs (label, value); each block has a
    title."""

    name: str
    verdict: Verdict
    headline: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    on_cpu: bool
    gpu_image_on_cpu: bool
    started: str
    duration_s: float | None
    groups: tuple[Group, ...]
    trainings: tuple[Training, ...]
    checks: tuple[Check, ...]
    collectives: tuple[Collective, ...]
    schemes: tuple[Scheme, ...]
    topology: Topology | None
    facts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    logs: tuple[tuple[str, str], ...]
    parts: tuple[PartReport, ...]
