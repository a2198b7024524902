"""Decides whether a smoke report counts: as a proof of this machine, and as a statement that others are asked to believe."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from envbuild.attest import signing

if TYPE_CHECKING:
    from envbuild.model.lock import Lock

FINISHED = ("pass", "fail", "inconclusive")
# Every test has the first checks, and every launch of a test that trains has the second ones, whatever the framework:
# docs/reference/checks.md. Some are skipped where they do not apply, such as REPLICA on one device.
_OF_EACH_TEST = ("DEVICES", "ENV")
_OF_EACH_LAUNCH = ("IMPORT", "RUN", "COLL", "ORACLE", "REPLICA", "LOSS", "ACC")
_WITHOUT_TRAINING = {("IMPORT", "pass"), ("RUN", "pass"), ("WORK", "pass"), ("ORACLE", "skip")}
_EXIT_OF_WARNINGS = 5  # of the guest, with --strict: docs/explanation/training.md, "Verdicts"
_CLOCK_AHEAD = datetime.timedelta(days=1)  # a clock with local time in place of UTC is up to 14 hours ahead


def contradiction(report: Mapping[str, Any], lock: Lock | None = None) -> str:
    """Return why the verdict of a complete smoke report does not follow from the rest of the report; empty if it follows.

    A report that says pass must be about a whole test (:func:`untested`). With ``lock``, the tested frameworks must have the
    versions of the lock, and GPUs count only if the lock has CUDA for them.
    """
    status, own = str(report["status"]), _verdict(report)
    if status != own:
        return f"it says {status}, but its checks say {own}"
    if status == "pass" and (lacks := untested(report)):
        return f"it says pass, but {lacks}"
    return _other_subject(report, lock) if lock is not None else ""


def untested(report: Mapping[str, Any]) -> str:
    """Return what a complete smoke report that says pass lacks for a whole test; empty if it lacks nothing.

    In a whole test, a framework that trains was compared with the reference network, learned, and was timed, on each number of
    devices. A framework that trains nothing solved its tasks. In an image of several frameworks, each framework with a test
    was tested.
    """
    parts = report.get("parts")
    if not parts:
        return _untested_framework(report)
    tested = [part for part in parts if part["status"] != "not-applicable"]
    for part in tested:
        lacks = _untested_framework(part["report"]) if isinstance(part["report"], dict) else "it has no report"
        if lacks or part["status"] != "pass":
            return f"{part['framework']}: {lacks or 'its verdict is ' + part['status']}"
    if signing.device(report) == "cuda" and not any(signing.device(part["report"]) == "cuda" for part in tested):
        return "no framework was tested on a GPU"
    return "" if tested else "no framework was tested"


def failed_pass(report: Mapping[str, Any]) -> str:
    """If a report says pass although one of its checks did not pass, return which check; otherwise an empty text.

    The report may be incomplete. The schema of reports refuses such a report, too, but without the name of the check.
    """
    checks = report.get("checks")
    for check in checks if report.get("status") == "pass" and isinstance(checks, list) else ():
        if isinstance(check, dict) and check.get("status") in ("fail", "inconclusive"):
            return f"it says pass, but its check {check.get('id')} says {check['status']}"
    return ""


def date_problem(report: Mapping[str, Any]) -> str:
    """Return the reason why the date of a complete smoke report is not accepted; empty if the date is accepted.

    Among reports about one GPU, the newest counts. A report with a date in the future would therefore count more than tests
    that are made later.
    """
    told = str(report["started_utc"])
    try:
        if not told.isascii():  # the schema also accepts non-ASCII digits, which sort after 0-9
            raise ValueError(told)
        started = datetime.datetime.strptime(told, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        return f"{told!r} is not a date"
    now = datetime.datetime.now(datetime.UTC)
    return f"{told} is in the future; it is now {now:%Y-%m-%dT%H:%M:%SZ}" if started > now + _CLOCK_AHEAD else ""


def _verdict(report: Mapping[str, Any]) -> str:
    """Return the verdict that follows from the checks. The smoke test has the same rule: ``envbuild/smoke/verdict.py``."""
    found = {str(check["status"]) for check in report["checks"]}
    if "fail" in found or ("warn" in found and report["exit_code"] == _EXIT_OF_WARNINGS):
        return "fail"
    return "pass" if "pass" in found and "inconclusive" not in found else "inconclusive"


def _untested_framework(report: Mapping[str, Any]) -> str:
    checks = report.get("checks") or ()
    everywhere = {(str(check["id"]), str(check["status"])) for check in checks}
    device = signing.device(report)
    if device is None:
        return "it used no device"
    if device == "cuda" and not report.get("devices"):
        return "it lists no GPU"
    if not report.get("framework"):
        return "it does not name the framework"
    if lacking := [name for name in _OF_EACH_TEST if name not in {name for name, _ in everywhere}]:
        return f"it lacks the check {lacking[0]}"
    if everywhere >= _WITHOUT_TRAINING:
        return ""
    return _untrained(report, uses_gpu=device == "cuda")


def _untrained(report: Mapping[str, Any], *, uses_gpu: bool) -> str:
    timed, trained = ({int(each["n"]) for each in report.get(key) or ()} for key in ("runs", "training"))
    if not timed or not trained:
        return f"nothing was {'timed' if trained else 'trained'}"
    checks = report.get("checks") or ()
    of_launch = {(int(check["n"]), str(check["id"]), str(check["status"])) for check in checks if check["n"] is not None}
    for n in sorted(timed | trained):
        known = {(name, status) for launch, name, status in of_launch if launch == n}
        if lacking := [name for name in _OF_EACH_LAUNCH if name not in {name for name, _ in known}]:
            return f"it lacks the check {lacking[0]} for {_devices(n)}"
        if not {("ORACLE", "pass"), ("ORACLE", "warn")} & known:
            return f"the training on {_devices(n)} was not compared with the reference network"
        if uses_gpu and ("DEVICE", "pass") not in known:
            return f"it does not show that {_devices(n)} computed"
    return ""


def _devices(n: int) -> str:
    return "one device" if n == 1 else f"{n} devices"


def _other_subject(report: Mapping[str, Any], lock: Lock) -> str:
    """Return which tested framework is not the one in the lock, or which framework of the lock a pass says nothing about."""
    environment = lock.environment
    locked = {each.name: each for each in environment.frameworks}
    told = {str(part["framework"]) for part in report.get("parts") or ()}
    if len(locked) > 1 and report["status"] == "pass" and (left_out := [name for name in locked if name not in told]):
        return f"it says nothing about {left_out[0]}, and the image has {len(locked)} frameworks"
    for name, tested in _tested(report, next(iter(locked), "")):
        if name not in locked:
            return f"it is about {name}, which the lock does not have"
        cuda, mode = environment.cuda_of(locked[name]), tested.get("mode") or {}
        if mode.get("gpu_image", cuda is not None) != (cuda is not None) or (cuda is None and mode.get("device") == "cuda"):
            return f"it is about a build of {name} {'without' if cuda else 'with'} CUDA, but the lock has one " + (
                f"for CUDA {cuda}" if cuda else "for CPUs"
            )
        framework = tested.get("framework")
        if isinstance(framework, Mapping) and _release(str(framework["version"])) != _release(locked[name].version):
            return f"it is about {name} {framework['version']}, but the lock has {locked[name].version}"
    return ""


def _tested(report: Mapping[str, Any], only: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the report of each tested framework. The only framework of a lock has the name ``only``, because its
    adapter may give it another name."""
    parts = report.get("parts")
    if not parts:
        yield only, report
    for part in parts or ():
        if isinstance(part["report"], dict):
            yield str(part["framework"]), part["report"]


def _release(version: str) -> tuple[Any, ...]:
    """The version without the suffixes that packages add: 2.13.0+cpu, 1.5.1.post0."""
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return (version,)
    return (parsed.epoch, parsed.release, parsed.pre)
