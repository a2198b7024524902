"""`envbuild report A B` and `envbuild-smoke diff A B` give the same answer. A failed B is never called fine."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from report_files import NAMES, load

from envbuild.cli import frame
from envbuild.report import comparison, regression
from envbuild.smoke.judging import baseline

EXIT_OF_GUEST = {0: "not worse", 1: "worse", 3: "open"}
STATUSES = ("pass", "pass", "fail", "inconclusive", "error", "skip", "warn")


def _make_faster(content: dict[str, Any], dice: random.Random) -> None:
    for run in content["runs"][:1]:
        factor, spread = dice.choice([0.3, 0.85, 0.95, 1.0, 1.2, 3.0]), dice.choice([0.0, 0.02, 0.3])
        for mode, rate in [pair for pair in run["images_per_s"].items() if pair[1] is not None]:
            run["images_per_s"][mode] = rate * factor
            interval = {"lo": rate * factor * (1 - spread), "hi": rate * factor * (1 + spread)}
            run.setdefault("images_per_s_interval", {})[mode] = interval
        if run["speedup"]:
            run["speedup"] |= {key: run["speedup"][key] * factor for key in ("median", "lo", "hi")}


def _move(content: dict[str, Any], dice: random.Random) -> None:
    content["mode"] = {**(content["mode"] or {}), "device": dice.choice(["cuda", "cpu", None])}
    content["devices"] = [{"name": dice.choice(["A", "B"])}]
    content["host"] = {**content["host"], "cores_usable": dice.choice([2, 64])}


def _judge(content: dict[str, Any], dice: random.Random) -> None:
    for check in dice.sample(content["checks"], min(len(content["checks"]), 2)):
        check["status"] = dice.choice(STATUSES)


def _teach(content: dict[str, Any], dice: random.Random) -> None:
    for entry in content["training"][:1]:
        entry["accuracy"] += dice.choice([-0.5, -0.03, -0.01, 0.01])


def _conclude(content: dict[str, Any], dice: random.Random) -> None:
    content["status"] = dice.choice(["pass", "fail", "inconclusive", "error", "nonsense"])


def _leave_out(content: dict[str, Any], dice: random.Random) -> None:
    content[dice.choice(["runs", "checks", "training"])].clear()


# Random changes that make two reports differ.
CHANGES = (_make_faster, _make_faster, _move, _judge, _judge, _teach, _conclude, _leave_out)


def _any_report(dice: random.Random) -> dict[str, Any]:
    content = copy.deepcopy(load(dice.choice([*NAMES, "pass", "pass"])))
    if dice.random() < 0.7:
        content["status"] = "pass"
    if dice.random() < 0.5:
        content["mode"] = {**(content["mode"] or {}), "device": "cuda"}
        content["devices"] = [{"name": "A"}]
    return content


def _changed(content: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    other = copy.deepcopy(content)
    for _ in range(dice.choice([0, 1, 1, 2, 4])):
        dice.choice(CHANGES)(other, dice)
    return other


def _pair(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    dice = random.Random(seed)
    a = _any_report(dice)
    b = _changed(a, dice) if dice.random() < 0.9 else _any_report(dice)
    if dice.random() < 0.2:  # several frameworks, possibly other ones in B

        def several(names: list[str], *contents: dict[str, Any]) -> dict[str, Any]:
            parts = [{"framework": n, "status": c["status"], "report": c} for n, c in zip(names, contents, strict=False)]
            parts += [{"framework": "caffe", "status": "not-applicable", "report": None}]
            return {**load("pass"), "status": contents[0]["status"], "parts": parts}

        a = several(["tensorflow", "pytorch"], a, load("pass"))
        b = several(dice.choice([["tensorflow", "pytorch"], ["tensorflow"], ["mxnet"]]), b, load("pass"))
    return a, b


def test_host_and_guest_agree_on_a_thousand_pairs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1000):
        a, b = _pair(seed)
        standing = regression.find_regression(a, b).standing
        assert standing == EXIT_OF_GUEST[baseline.exit_code(a, b)], f"pair {seed}"
        seen[standing] += 1
    assert min(seen[word] for word in EXIT_OF_GUEST.values()) >= 50, seen  # each answer occurred often enough


@pytest.mark.parametrize(
    ("change", "exit_code", "words"),
    [
        ({}, 0, "B is not worse"),
        ({"status": "fail", "exit_code": 1, "reason": "weights are wrong"}, 9, "B is fail: weights are wrong"),
        ({"status": "error", "exit_code": 1, "reason": "interrupted"}, 9, "B is error: interrupted"),
        ({"status": "inconclusive", "exit_code": 3, "reason": "no GPU"}, 10, "B is inconclusive: no GPU"),
    ],
)
def test_the_verb_exits_with_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], exit_code: int, words: str
) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(load("pass")))
    second.write_text(json.dumps(load("pass") | change))
    root = ("--root", str(Path(__file__).parents[3]))
    assert frame.run(["report", str(first), str(second), *root]) == exit_code
    assert words in capsys.readouterr().out
    assert frame.run(["report", str(second), *root]) == 0  # showing a failed report is no failure


def test_damaged_reports_are_compared_as_well() -> None:
    broken: list[dict[str, Any]] = [
        {},
        {"status": 7, "runs": [None, {"n": "x", "images_per_s": 3}], "checks": [{"id": None}], "training": [{"accuracy": "?"}]},
        {"parts": [{"framework": None, "report": []}, 5], "devices": "none", "mode": [], "host": None},
    ]
    for a in [*broken, load("pass")]:
        for b in [*broken, load("pass")]:
            assert regression.find_regression(a, b).standing in ("worse", "open", "not worse")
            assert "verdict: " in comparison.compare(a, b)
