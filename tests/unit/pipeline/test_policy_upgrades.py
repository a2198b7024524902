"""The sentences with which a policy's findings name their remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from envbuild.cli import check
from envbuild.pipeline import policy_upgrades
from envbuild.policy.model import Judgement, Policy, PolicyFinding


def test_a_missing_proof_is_fixed_by_a_command_and_the_sentence_has_one_verb() -> None:
    tools: Any = SimpleNamespace(cli_name=lambda name: name)
    locked: Any = SimpleNamespace(lock=SimpleNamespace(environment=SimpleNamespace(name="widget-1")))
    finding = PolicyFinding(rule="evidence", subject="linked", message="there is no valid proof linked", at="p.yaml:2")
    judged = Judgement(name="widget-1", findings=(finding,), excused=(), unchecked=(), warnings=())
    told = policy_upgrades.with_upgrades(tools, cast(Policy, None), locked, judged, today="2026-11-26")
    assert told.findings[0].upgrade == "`envbuild evidence widget-1 --prove --kinds linked`, on a suitable machine"
    assert "    fixed by `envbuild evidence widget-1 --prove --kinds linked`, on a suitable machine" in check.judgement_lines(
        told
    )
