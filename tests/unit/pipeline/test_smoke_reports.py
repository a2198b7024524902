"""Which smoke reports count: their verdict follows from their checks, and a report that says pass is about a whole test."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.pipeline import smoke_reports, stored_locks
from envbuild.pipeline.smoke_reports import contradiction, untested

LOCKS = Path(__file__).parents[3] / "images/environments"
DATA = Path(__file__).parents[1] / "data"
OPENCV = LOCKS / "opencv-5.0.0.93-cpu-py311-debian12/lock.json"
SEVERAL = LOCKS / "jax-0.4.28+tf-2.16.2-cuda12.3-py311-debian12/lock.json"
CUPY = LOCKS / "cupy-14.2.0-cuda13.0-py313-debian13/lock.json"
STATUSES = ("pass", "warn", "skip", "inconclusive", "fail")
Change = Callable[[dict[str, Any]], object]


def report(which: str = "pass") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / f"report-{which}.json").read_text())
    return content


def without(name: str, n: int | None = None) -> Change:
    """Remove a check."""
    return lambda told: told.update(checks=[each for each in told["checks"] if (each["id"], each["n"]) != (name, n)])


def becomes(name: str, n: int | None, status: str) -> Change:
    """Change the status of a check."""
    return lambda told: [each.update(status=status) for each in told["checks"] if (each["id"], each["n"]) == (name, n)]


def of_gpu(devices: list[Any], *changes: Change) -> Change:
    def change(told: dict[str, Any]) -> None:
        told.update(mode={**told["mode"], "device": "cuda"}, devices=devices)
        for each in changes:
            each(told)

    return change


@pytest.mark.parametrize("which", ["pass", "fail", "no-gpu", "allow-cpu", "schemes"])
def test_the_verdict_of_a_real_report_follows_from_its_checks(which: str) -> None:
    assert contradiction(report(which)) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda told: told.update(checks=told["checks"][:3]), "lacks the check RUN for one device"),
        (without("RUN", 1), "lacks the check RUN for one device"),
        (without("ENV"), "it lacks the check ENV"),
        (lambda told: told.update(runs=[]), "nothing was timed"),
        (lambda told: told.update(training=[], runs=[]), "nothing was trained"),
        (lambda told: told["mode"].update(device=None), "it used no device"),
        (without("ORACLE", 2), "lacks the check ORACLE for 2 devices"),
        (becomes("ORACLE", 2, "skip"), "training on 2 devices was not compared with the reference network"),
        (without("REPLICA", 2), "lacks the check REPLICA for 2 devices"),
        (without("LOSS", 1), "lacks the check LOSS for one device"),
        (lambda told: told.update(framework=None), "it does not name the framework"),
        (of_gpu([]), "it lists no GPU"),
        (of_gpu([{}], without("DEVICE", 2)), "it does not show that 2 devices computed"),
        (becomes("ACC", 2, "fail"), "it says pass, but its checks say fail"),
        (becomes("ENV", None, "inconclusive"), "it says pass, but its checks say inconclusive"),
        (lambda told: [each.update(status="skip") for each in told["checks"]], "it says pass, but its checks say inconclusive"),
        (lambda told: told.update(status="fail"), "it says fail, but its checks say pass"),
        (lambda told: told.update(status="inconclusive"), "it says inconclusive, but its checks say pass"),
        (lambda told: told.update(checks=[]), "it says pass, but its checks say inconclusive"),
    ],
)
def test_a_report_that_says_pass_is_about_a_whole_test(change: Change, why: str) -> None:
    told = report()
    change(told)
    assert why in contradiction(told)


@pytest.mark.parametrize(
    ("change", "is_whole"),
    [
        (becomes("ORACLE", 2, "warn"), True),  # with a reduced precision that is allowed
        (lambda told: told.update(status="fail", exit_code=5) or becomes("ENV", None, "warn")(told), True),  # with --strict
        (of_gpu([{"name": "x"}]), True),
        (lambda told: told.update(checks=worked(), runs=[], training=[]), True),  # a framework that trains nothing
        (lambda told: told.update(checks=worked("fail"), runs=[], training=[]), False),
        (lambda told: told.update(checks=worked()[:-1], runs=[], training=[]), False),
    ],
)
def test_what_a_whole_test_may_be(change: Change, is_whole: bool) -> None:
    told = report()
    change(told)
    assert (contradiction(told) == "") is is_whole


def worked(status: str = "pass") -> list[dict[str, Any]]:
    found = [("IMPORT", "pass"), ("RUN", "pass"), ("ORACLE", "skip"), ("WORK", status)]
    of_machine = [{"id": name, "n": None, "status": "pass"} for name in ("DEVICES", "ENV")]
    return [*of_machine, *({"id": name, "n": 1, "status": each} for name, each in found)]


def of_parts(*parts: tuple[str, Any]) -> dict[str, Any]:
    told = [{"framework": f"f{n}", "status": status, "report": each} for n, (status, each) in enumerate(parts)]
    checks = [{"id": "PART", "n": None, "status": "skip" if status == "not-applicable" else status} for status, _ in parts]
    return {"status": "pass", "exit_code": 0, "checks": checks, "parts": told}


def test_each_framework_of_an_image_was_tested() -> None:
    assert contradiction(of_parts(("pass", report()), ("not-applicable", None))) == ""
    short = report()
    short["runs"] = []
    for parts, why in (
        ([("pass", report()), ("pass", None)], "f1: it has no report"),
        ([("pass", report()), ("pass", short)], "f1: nothing was timed"),
        ([("not-applicable", None)], "its checks say inconclusive"),
    ):
        assert why in contradiction(of_parts(*parts))
    assert "f0: its verdict is fail" in untested(of_parts(("fail", report())))


def test_the_frameworks_have_the_versions_of_the_lock() -> None:
    real_lock = stored_locks.read_lock(OPENCV)
    locked = real_lock.environment.frameworks[0]
    told = report()
    for version, agrees in (("9.9", False), (locked.version, True), (f"{locked.version}+cpu", True), ("unknown", False)):
        told["framework"]["version"] = version
        assert (contradiction(told, real_lock) == "") is agrees
    parts = of_parts(("pass", told))
    assert "it is about f0, which the lock does not have" in contradiction(parts, real_lock)
    parts["parts"][0]["framework"] = locked.name
    assert f"it is about {locked.name} unknown, but the lock has {locked.version}" in contradiction(parts, real_lock)


def test_a_pass_is_about_every_framework_of_the_image() -> None:
    """A report of one framework has no parts, so it could be taken for a report of the whole image."""
    locked = stored_locks.read_lock(SEVERAL)
    names = [each.name for each in locked.environment.frameworks]
    tested = report()
    tested["mode"]["gpu_image"] = True
    tested["framework"]["version"] = locked.environment.frameworks[0].version
    assert f"it says nothing about {names[0]}, and the image has 2 frameworks" in contradiction(tested, locked)
    parts = of_parts(("pass", tested), ("not-applicable", None))
    for part, name in zip(parts["parts"], names, strict=True):
        part["framework"] = name
    assert contradiction(parts, locked) == ""
    del parts["parts"][1], parts["checks"][1]
    assert f"it says nothing about {names[1]}" in contradiction(parts, locked)


@pytest.mark.parametrize(
    "statuses", [*itertools.combinations(("pass", "warn", "skip", "inconclusive", "fail"), 2), ("pass",), ()]
)
@pytest.mark.parametrize("strict", [False, True])
def test_the_verdict_of_the_smoke_test_is_never_a_contradiction(statuses: tuple[str, ...], strict: bool) -> None:
    from envbuild.smoke import verdict

    told = report("fail")
    told["checks"] = [{"id": f"C{n}", "n": None, "status": status, "message": ""} for n, status in enumerate(statuses)]
    verdict.conclude(told, {"strict": strict}, 1.0)
    assert "but its checks say" not in contradiction(told)


@pytest.mark.parametrize(
    ("lock", "mode", "why"),
    [
        (OPENCV, {"device": "cuda", "gpu_image": False}, "a build of opencv with CUDA, but the lock has one for CPUs"),
        (OPENCV, {"device": "cuda", "gpu_image": True}, "a build of opencv with CUDA, but the lock has one for CPUs"),
        (OPENCV, {"device": "cpu", "gpu_image": True}, "a build of opencv with CUDA, but the lock has one for CPUs"),
        (CUPY, {"device": "cpu", "gpu_image": False}, "a build of cupy without CUDA, but the lock has one for CUDA 13.0"),
    ],
)
def test_gpus_count_only_in_an_environment_for_gpus(lock: Path, mode: dict[str, Any], why: str) -> None:
    told, locked = report(), stored_locks.read_lock(lock)
    told["framework"]["version"] = locked.environment.frameworks[0].version
    told["mode"].update(mode)
    told["devices"] = [{"name": "NVIDIA H200"}]
    assert why in contradiction(told, locked)
    told["mode"].update(gpu_image=locked.environment.cuda is not None, device="cpu")
    assert contradiction(told, locked) == ""


def test_a_report_of_several_frameworks_used_gpus_if_one_of_them_did() -> None:
    told = of_parts(("pass", report()))
    told["mode"] = {"device": "cuda"}
    assert "no framework was tested on a GPU" in contradiction(told)


@pytest.mark.parametrize("date", ["2999-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "٢٠٢٦-01-01T00:00:00Z"])
def test_a_date_that_is_not_possible_is_refused(date: str) -> None:
    assert smoke_reports.date_problem({"started_utc": date})
    assert not smoke_reports.date_problem(copy.deepcopy(report()))


def test_the_check_that_a_pass_did_not_pass_is_named() -> None:
    told = report()
    assert smoke_reports.failed_pass(told) == ""
    becomes("ACC", 2, "fail")(told)
    assert smoke_reports.failed_pass(told) == "it says pass, but its check ACC says fail"
    for damaged in ({}, {"status": "pass", "checks": 1}, {"status": "pass", "checks": [1]}):
        assert smoke_reports.failed_pass(damaged) == ""
