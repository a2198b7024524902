"""Decides whether the second of two reports is worse than the first.

`envbuild-smoke diff` has the same rule (envbuild/smoke/judging/baseline.py), so both give the same result. The rule is repeated
here because the guest cannot be imported. Reports may be damaged: values that cannot be read are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envbuild.report.values import mapping, mappings, number, percent, text
from envbuild.report.view import verdict_of

Standing = Literal["not worse", "open", "worse"]

TOLERANCE = 0.1
ACCURACY_DROP = 0.02
# Checks of whether the framework works correctly; the other checks are about the machine.
CORRECTNESS = frozenset(
    (
        "IMPORT",
        "RUN",
        "VERSION",
        "BUILD",
        "DEVICE",
        "COLL",
        "ORACLE",
        "BUCKETS",
        "REPLICA",
        "EXCHANGE",
        "LOSS",
        "ACC",
        "SAVE",
        "WORK",
        "SYNC",
    )
)
_RUN_KEY = ("workload", "net", "scaling", "precision", "sync", "batch_per_device", "n")
_ORDER: tuple[Standing, ...] = ("not worse", "open", "worse")

Figure = tuple[float | None, float | None, float | None]  # a median, and the lower and upper end of its interval


@dataclass(frozen=True)
class Regression:
    """The result. ``reasons`` is empty if ``standing`` is "not worse"."""

    standing: Standing
    reasons: tuple[str, ...]


def find_regression(a: Mapping[str, Any], b: Mapping[str, Any]) -> Regression:
    """Say whether report B is worse than report A. If the reports are about several frameworks, return the worst result."""
    found = [_of_status(b)]
    pairs, missing = _pairs(a, b)
    if missing or not pairs:
        words = f"B has no report of {', '.join(missing)}" if missing else "A and B have no framework in common"
        found.append(Regression("open", (words,)))
    for title, old, new in pairs:
        one = _of_pair(old, new)
        found.append(Regression(one.standing, tuple(f"{title}: {reason}" if title else reason for reason in one.reasons)))
    worst = max((each.standing for each in found), key=_ORDER.index)
    reasons = tuple(reason for each in found if each.standing == worst for reason in each.reasons)
    return Regression(worst, () if worst == "not worse" else reasons)


def word(old: Figure, new: Figure) -> str:
    """Compare two figures; a higher figure is better."""
    (before, low, high), (after, least, most) = old, new
    if before is None or low is None or high is None or after is None or least is None or most is None or not before:
        return "not judged, because there is no confidence interval"
    if low <= most and least <= high:
        return "within the noise"
    if abs(after / before - 1) <= TOLERANCE:
        return f"within {100 * TOLERANCE:.0f} %"
    return "better" if after > before else "worse"


def _of_status(b: Mapping[str, Any]) -> Regression:
    status = verdict_of(b)
    if status == "pass":
        return Regression("not worse", ())
    standing: Standing = "open" if status == "inconclusive" else "worse"
    return Regression(standing, (f"B is {status}: {text(b.get('reason')) or 'the report gives no reason'}",))


def _pairs(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> tuple[list[tuple[str, Mapping[str, Any], Mapping[str, Any]]], list[str]]:
    """The frameworks in both reports, and the frameworks that only A has. A report without parts counts as one framework."""
    before, after = _parts(a), _parts(b)
    if not before and not after:
        return [("", a, b)], []
    both = [(name, before[name], after[name]) for name in sorted(before.keys() & after.keys())]
    return both, sorted(before.keys() - after.keys())


def _parts(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {
        text(part.get("framework")): part["report"] for part in mappings(report.get("parts")) if mapping(part.get("report"))
    }


def _of_pair(a: Mapping[str, Any], b: Mapping[str, Any]) -> Regression:
    lost = [*_lost_checks(a, b), *_lost_accuracy(a, b)]
    before, after = _devices(a), _devices(b)
    alike = bool(before) and before == after
    figures, unmatched = _figures(a, b)
    on_cpu = mapping(b.get("mode")).get("device") == "cpu"
    slower = [words for words, said in figures if said == "worse"] if alike and not on_cpu else []
    if lost or slower:
        return Regression("worse", (*lost, *slower))
    if (unmatched or not alike) and not (alike and figures):
        return Regression("open", ("no speeds can be compared: devices, workloads or options differ",))
    return Regression("not worse", ())


def _devices(report: Mapping[str, Any]) -> str:
    """Describe the devices on which the speeds were measured; '' if the report names no device."""
    kind = text(mapping(report.get("mode")).get("device"))
    if kind == "cpu":
        host = mapping(report.get("host"))
        return f"{text(host.get('cpu_model'))}, {text(host.get('cores_usable'))} cores"
    return ", ".join(sorted({text(each.get("name")) for each in mappings(report.get("devices"))})) if kind else ""


def _key(run: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple({"mean": "gradients"}.get(text(run.get(part)), text(run.get(part))) for part in _RUN_KEY)


def _figures(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs (description, result), one for each figure that both reports have. Also return whether one report has a run
    that the other lacks."""
    before, after = ({_key(run): run for run in mappings(report.get("runs"))} for report in (a, b))
    out = []
    for key in [key for key in after if key in before]:
        for name, read in (("images/s", _throughput), ("speedup", _speedup)):
            old, new = read(before[key]), read(after[key])
            if old[0] is not None and new[0] is not None:
                out.append((f"{name} with {key[-1]} devices ({key[0]} {key[1]}) is lower", word(old, new)))
    return out, before.keys() != after.keys()


def _throughput(run: Mapping[str, Any]) -> Figure:
    mode = "dp" if (number(run.get("n")) or 0) > 1 else "solo"
    interval = mapping(mapping(run.get("images_per_s_interval")).get(mode))
    return number(mapping(run.get("images_per_s")).get(mode)), number(interval.get("lo")), number(interval.get("hi"))


def _speedup(run: Mapping[str, Any]) -> Figure:
    gain = mapping(run.get("speedup"))
    return number(gain.get("median")), number(gain.get("lo")), number(gain.get("hi"))


def _lost_checks(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[str]:
    before, after = _by_check(a), _by_check(b)
    for key in sorted((key for key in before if key in after), key=str):
        was, now = text(before[key].get("status")), text(after[key].get("status"))
        if was == "pass" and now not in ("pass", "skip") and key[0] in CORRECTNESS:
            yield f"{key[0]} is {now}, was pass: {text(after[key].get('message'))}"


def _by_check(report: Mapping[str, Any]) -> dict[tuple[str, str, str, str], Mapping[str, Any]]:
    """Return the first check for each key. A key consists of the check's id, number of workers, workload and scheme."""
    out: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    for check in mappings(report.get("checks")):
        scheme = text(mapping(check.get("detail")).get("sync"))
        out.setdefault((text(check.get("id")), text(check.get("n")), text(check.get("workload")), scheme), check)
    return out


def _lost_accuracy(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[str]:
    before, after = _accuracies(a), _accuracies(b)
    for key, accuracy in sorted(after.items()):
        if key in before and accuracy < before[key] - ACCURACY_DROP:
            yield f"accuracy with {key[0]} devices is {percent(accuracy)}, was {percent(before[key])}"


def _accuracies(report: Mapping[str, Any]) -> dict[tuple[str, ...], float]:
    return {
        tuple(text(entry.get(part)) for part in ("n", "workload", "net", "epochs", "images")): accuracy
        for entry in mappings(report.get("training"))
        if (accuracy := number(entry.get("accuracy"))) is not None
    }
