"""What the pipeline keeps on disk: evidence, stored answers, renderings."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError
from envbuild.pipeline import evidence, rendering, stored
from envbuild.pipeline.portfolio import listed
from envbuild.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "root/images").mkdir(parents=True)
    return Workspace(root=tmp_path / "root", output=tmp_path / "out", home=tmp_path / "home")


def proof(kind: evidence.Kind, lock: str = "a" * 64, date: str = "2026-01-02") -> evidence.Proof:
    return evidence.Proof(kind=kind, date=date, engine="", lock=lock)


def test_evidence_is_a_set_in_the_order_it_is_earned(workspace):
    assert evidence.record(workspace, "x", proof("built"))
    assert evidence.record(workspace, "x", proof("locked"))
    assert not evidence.record(workspace, "x", proof("locked", date="2027-01-01"))
    found = evidence.read(workspace, "x")
    assert [each.kind for each in found] == ["locked", "built"]
    assert found[0].date == "2026-01-02"


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        ({"mode": {"device": "cuda", "gpu_image": True}}, "smoke-gpu"),
        ({"mode": {"device": "cpu", "gpu_image": True}}, "smoke-cpu"),
        ({"mode": {"device": None}}, "smoke-cpu"),
        ({}, "smoke-cpu"),
    ],
)
def test_a_smoke_report_is_evidence_of_gpus_only_where_they_were_used(report, kind):
    assert evidence.kind_of_smoke(report) == kind


def test_each_engine_proves_for_itself(workspace):
    first = dataclasses.replace(proof("built"), engine="one")
    assert evidence.record(workspace, "x", first)
    assert not evidence.record(workspace, "x", dataclasses.replace(first, date="2027-01-01"))
    assert evidence.record(workspace, "x", dataclasses.replace(first, engine="another"))
    assert [each.engine for each in evidence.read(workspace, "x")] == ["another", "one"]
    assert evidence.kinds(evidence.read(workspace, "x"), first.lock) == ("built",)


def test_evidence_of_another_lock_proves_nothing_and_is_dropped(workspace):
    evidence.record(workspace, "x", proof("built"))
    assert evidence.kinds(evidence.read(workspace, "x"), "b" * 64) == ()
    evidence.record(workspace, "x", proof("locked", lock="b" * 64))
    assert [(each.kind, each.lock[0]) for each in evidence.read(workspace, "x")] == [("locked", "b")]


def test_evidence_is_withdrawn_when_contradicted(workspace):
    evidence.record(workspace, "x", proof("smoke-cpu"))
    evidence.withdraw(workspace, "x", "smoke-cpu")
    assert evidence.read(workspace, "x") == ()


def test_evidence_that_came_with_the_package_is_read_and_ours_goes_elsewhere(workspace):
    shipped = workspace.images / "evidence/x.json"
    shipped.parent.mkdir(parents=True)
    shipped.write_text(json.dumps({"schema": 1, "name": "x", "proofs": [vars_of(proof("locked"))]}))
    evidence.record(workspace, "x", proof("built"))
    assert [each.kind for each in evidence.read(workspace, "x")] == ["locked", "built"]
    assert len(json.loads(shipped.read_text())["proofs"]) == 1


def vars_of(one: evidence.Proof) -> dict[str, str]:
    return {name: getattr(one, name) for name in ("kind", "date", "engine", "lock")}


def test_broken_evidence_is_one_error_with_its_place(workspace):
    path = workspace.evidence_file("x")
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1,\n oops')
    with pytest.raises(InvalidInputError) as caught:
        evidence.read(workspace, "x")
    assert caught.value.problems[0].line == 2


def test_a_stored_answer_is_replayed_for_the_same_key_only(workspace):
    stored.keep(workspace, "x", "smoke", {"image": "1"}, {"status": "pass"})
    assert stored.recall(workspace, "x", "smoke", {"image": "1"}) == {"status": "pass"}
    assert stored.recall(workspace, "x", "smoke", {"image": "2"}) is None
    assert stored.recall(workspace, "x", "verify", {"image": "1"}) is None
    assert stored.last(workspace, "x", "smoke") == {"status": "pass"}
    stored.forget(workspace, "x", "smoke")
    assert stored.recall(workspace, "x", "smoke", {"image": "1"}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": {"image": "1"}}', '{"key": {"image": "1"}, "result": 3}'])
def test_a_damaged_stored_answer_is_none(workspace, text):
    stored.keep(workspace, "x", "smoke", {"image": "1"}, {"status": "pass"})
    (workspace.home / "stages/x/smoke.json").write_text(text)
    assert stored.recall(workspace, "x", "smoke", {"image": "1"}) is None
    assert stored.last(workspace, "x", "smoke") is None


TEXT = {"Dockerfile": "FROM x\n", "requirements.txt": "a==1\n"}


def test_a_rendering_is_written_once(tmp_path):
    assert rendering.write(tmp_path, TEXT)
    assert not rendering.write(tmp_path, TEXT)
    assert (tmp_path / "Dockerfile").read_text() == "FROM x\n"


def test_differences_are_missing_differs_and_orphan(tmp_path):
    rendering.write(tmp_path, TEXT)
    (tmp_path / rendering.LOCK).write_text("{}")
    assert rendering.differences(tmp_path, TEXT) == []
    (tmp_path / "Dockerfile").unlink()
    (tmp_path / "requirements.txt").write_text("a==1\r\n")
    (tmp_path / ".Dockerfile.tmp").write_text("half")
    found = {(each.kind, each.path.name) for each in rendering.differences(tmp_path, TEXT)}
    assert found == {("missing", "Dockerfile"), ("differs", "requirements.txt"), ("orphan", ".Dockerfile.tmp")}


def test_writing_repairs_every_difference_and_leaves_the_lock(tmp_path):
    (tmp_path / rendering.LOCK).write_text("{}")
    (tmp_path / "Dockerfile").write_text("other")
    (tmp_path / "requirements-old.txt").write_text("old")
    assert rendering.write(tmp_path, TEXT)
    assert rendering.differences(tmp_path, TEXT) == []
    assert (tmp_path / rendering.LOCK).read_text() == "{}"


def test_the_list_of_environments_is_strictly_read_and_need_not_be_there(workspace):
    assert listed(workspace) == {}
    path = workspace.images / "environments.yaml"
    path.write_text('schema: 1\nenvironments:\n  # a group\n  b-1.0: "why"\n  a-2.0: "because"\n')
    assert list(listed(workspace).items()) == [("b-1.0", "why"), ("a-2.0", "because")]
    path.write_text('schema: 1\nenvironments:\n  b-1.0: "why"\n  b-1.0: "again"\n  "b >= 1": "no"\nmore: 1\n')
    with pytest.raises(InvalidInputError) as caught:
        listed(workspace)
    assert len(caught.value.problems) == 3
