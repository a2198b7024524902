"""Decides whether a smoke report counts: as a proof of this machine, and as a statement that others are asked to believe."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from envbuild.attest import signing

if TYPE_CHECKING:
    from envbuild.model.lock import Lock

FINISHED = ("pass", "fail", "inconclusive")
# Every launch of a test that trains has these checks, whatever the framework: docs/reference/checks.md. Some are skipped where
# they do not apply, such as REPLICA on one device.
_OF_EACH_LAUNCH = ("IMPORT", "RUN", "COLL", "ORACLE", "REPLICA", "LOSS", "ACC")
_WITHOUT_TRAINING = {("IMPORT", "pass"), ("RUN", "pass"), ("WORK", "pass"), ("ORACLE", "skip")}
_EXIT_OF_WARNINGS = 5  # of the guest, with --strict: docs/explanation/training.md, "Verdicts"
_CLOCK_AHEAD = datetime.timedelta(days=1)  # a clock with local time in place of UTC is up to 14 hours ahead


def contradiction(report: Mapping[str, Any], lock: Lock | None = None) -> str:
    """Return why the verdict of a complete smoke report does not follow from the rest of the report; empty if it follows.

    A report that says pass must be about a whole test (:func:`untested`). With ``lock``, the tested frameworks must have the
    versions of the lock.
    """
    status, own = str(report["status"]), _verdict(report)
    if status != own:
        return f"it says {status}, but its checks say {own}"
    if status == "pass" and (lacks := untested(report)):
        return f"it says pass, but {lacks}"
    return _other_version(report, lock) if lock is not None else ""


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
    return "" if tested else "no framework was tested"


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
    """The verdict that follows from the checks. Part of the guest has the same rule: ``envbuild/smoke/verdict.py``."""
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
    if everywhere >= _WITHOUT_TRAINING:
        return ""
    timed, trained = ({int(each["n"]) for each in report.get(key) or ()} for key in ("runs", "training"))
    if not timed or not trained:
        return f"nothing was {'timed' if trained else 'trained'}"
    of_launch = {(int(check["n"]), str(check["id"]), str(check["status"])) for check in checks if check["n"] is not None}
    for n in sorted(timed | trained):
        known = {(name, status) for launch, name, status in of_launch if launch == n}
        if lacking := [name for name in _OF_EACH_LAUNCH if name not in {name for name, _ in known}]:
            return f"it lacks the check {lacking[0]} for {_devices(n)}"
        if not {("ORACLE", "pass"), ("ORACLE", "warn")} & known:
            return f"the training on {_devices(n)} was not compared with the reference network"
        if device == "cuda" and ("DEVICE", "pass") not in known:
            return f"it does not show that {_devices(n)} computed"
    return ""


def _devices(n: int) -> str:
    return "one device" if n == 1 else f"{n} devices"


def _other_version(report: Mapping[str, Any], lock: Lock) -> str:
    locked = {each.name: each.version for each in lock.environment.frameworks}
    for name, told in _tested_versions(report, next(iter(locked), "")):
        if name not in locked:
            return f"it is about {name}, which the lock does not have"
        if _release(told) != _release(locked[name]):
            return f"it is about {name} {told}, but the lock has {locked[name]}"
    return ""


def _tested_versions(report: Mapping[str, Any], only: str) -> Iterator[tuple[str, str]]:
    """Yield the name and version of each tested framework. The only framework of a lock has the name ``only``, because its
    adapter may give it another name."""
    parts = report.get("parts")
    for name, each in [(part["framework"], part["report"]) for part in parts] if parts else [(only, report)]:
        framework = (each or {}).get("framework")
        if isinstance(framework, Mapping):
            yield str(name), str(framework["version"])


def _release(version: str) -> tuple[Any, ...]:
    """The version without the suffixes that packages add: 2.13.0+cpu, 1.5.1.post0."""
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return (version,)
    return (parsed.epoch, parsed.release, parsed.pre)
