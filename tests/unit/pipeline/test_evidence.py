"""The files that the pipeline keeps on disk: evidence, stored answers, renderings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from envbuild import codec
from envbuild.errors import InvalidInputError
from envbuild.pipeline import evidence, rendering, stage_cache
from envbuild.pipeline.committed import listed
from envbuild.pipeline.evidence import Evidence, Subject
from envbuild.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "root/images").mkdir(parents=True)
    return Workspace(root=tmp_path / "root", output=tmp_path / "out", home=tmp_path / "home")


NOW = Subject(lock="a" * 64, rendering="b" * 64, guest="c" * 64)
NOTHING = Evidence(schema=1, name="x", proofs=())


def proof(kind: evidence.Kind, date: str = "2026-01-02", engine: str = "", of: Subject = NOW) -> evidence.Proof:
    return evidence.proof(kind, of, date=date, engine=engine)


def with_all(*proofs: evidence.Proof, held: Evidence = NOTHING) -> Evidence:
    for each in proofs:
        held = evidence.with_proof(held, each)
    return held


def test_evidence_is_a_set_in_the_order_it_is_earned():
    held = with_all(proof("built"), proof("locked"), proof("locked", date="2027-01-01"))
    assert [(each.kind, each.date) for each in held.proofs] == [("locked", "2026-01-02"), ("built", "2026-01-02")]


def test_a_proof_names_what_its_kind_rests_on_and_no_more():
    assert (proof("locked").rendering, proof("built").guest) == ("", "")
    assert "rendering" not in codec.encode(proof("downloaded"))
    assert codec.encode(proof("smoke-cpu"))["guest"] == NOW.guest


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("lock", ()),
        ("rendering", ("locked", "downloaded")),
        ("guest", evidence.KINDS),
    ],
)
def test_what_rests_on_a_part_is_stale_as_soon_as_it_changes(part, left):
    held = with_all(*map(proof, evidence.KINDS))
    assert evidence.kinds(evidence.current(held, NOW)) == evidence.KINDS
    changed = NOW._replace(**{part: "d" * 64})
    assert evidence.kinds(evidence.current(held, changed)) == left
    assert {each.kind for each in evidence.current(held, changed).proofs} == set(left)


def test_a_smoke_proof_of_an_earlier_guest_counts_until_there_is_a_newer_one():
    later = NOW._replace(guest="d" * 64)
    on_gpus = dataclasses.replace(proof("smoke-gpu"), gpus=("A100", "A100"))
    earlier = with_all(proof("built"), proof("smoke-cpu"), on_gpus)
    assert evidence.current(earlier, later) == earlier
    assert [evidence.is_earlier(each, later) for each in earlier.proofs] == [False, True, True]
    assert not any(evidence.is_earlier(each, NOW) for each in earlier.proofs)
    both = evidence.current(evidence.joined(earlier, with_all(proof("smoke-cpu", of=later))), later)
    assert [each.guest for each in both.proofs] == ["", later.guest, NOW.guest]


@pytest.mark.parametrize("part", ["lock", "rendering"])
def test_a_smoke_proof_of_another_image_is_not_an_earlier_one(part):
    assert not evidence.is_earlier(proof("smoke-cpu"), NOW._replace(**{part: "d" * 64, "guest": "d" * 64}))
    assert not evidence.is_earlier(dataclasses.replace(proof("smoke-cpu"), guest=""), NOW)


def test_a_failure_of_the_new_guest_refutes_earlier_proofs():
    later = NOW._replace(guest="d" * 64)
    cached = evidence.without(NOTHING, proof("smoke-cpu", of=later))
    assert evidence.kinds(evidence.current(evidence.joined(with_all(proof("smoke-cpu")), cached), later)) == ()


def test_a_proof_that_names_no_rendering_is_stale():
    old = dataclasses.replace(proof("built"), rendering="")
    assert evidence.stale_parts(old, NOW) == ("rendering",)
    assert evidence.kinds(evidence.current(with_all(old), NOW)) == ()


def test_every_kind_rests_on_the_lock():
    assert set(evidence.RESTS_ON) == set(evidence.KINDS)
    assert all("lock" in parts for parts in evidence.RESTS_ON.values())


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


def test_each_engine_proves_for_itself():
    held = with_all(proof("built", engine="one"), proof("built", "2027-01-01", "one"), proof("built", engine="another"))
    assert [(each.engine, each.date[:4]) for each in held.proofs] == [("another", "2026"), ("one", "2026")]
    assert evidence.kinds(evidence.current(held, NOW)) == ("built",)


def test_what_a_run_contradicts_counts_no_longer_until_it_is_proved_again():
    committed = with_all(proof("locked"), proof("smoke-cpu"))
    cached = evidence.without(NOTHING, proof("smoke-cpu"))
    assert evidence.kinds(evidence.current(evidence.joined(committed, cached), NOW)) == ("locked",)
    cached = evidence.with_proof(cached, proof("smoke-cpu", "2027-01-01"))
    assert cached.contradicted == ()
    joined = evidence.joined(committed, cached)
    assert [(each.kind, each.date[:4]) for each in joined.proofs] == [("locked", "2026"), ("smoke-cpu", "2026")]


def test_what_could_not_be_proved_is_told_until_it_is():
    unproved = evidence.Unproved(kind="downloaded", date="2026-01-02", lock=NOW.lock, files=())
    held = evidence.with_unproved(NOTHING, unproved)
    assert evidence.with_unproved(held, dataclasses.replace(unproved, date="2027-01-01")) == held
    assert evidence.joined(held, with_all(proof("downloaded"))).unproved == ()
    assert evidence.with_proof(held, proof("downloaded")).unproved == ()
    assert evidence.current(held, NOW._replace(lock="d" * 64)).unproved == ()


def test_evidence_is_written_when_it_changes_and_gone_when_there_is_none(tmp_path):
    path = tmp_path / "x.json"
    assert evidence.write(path, with_all(proof("locked")))
    assert not evidence.write(path, with_all(proof("locked")))
    assert evidence.read(path, "x") == with_all(proof("locked"))
    assert evidence.write(path, NOTHING)
    assert not path.exists()
    assert not evidence.write(path, NOTHING)
    assert evidence.read(path, "x") == NOTHING


def test_broken_evidence_is_one_error_with_its_place(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"schema": 1,\n oops')
    with pytest.raises(InvalidInputError) as caught:
        evidence.read(path, "x")
    assert caught.value.problems[0].line == 2


def test_evidence_of_another_shape_is_refused_with_its_full_path(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"schema": 1, "name": "x"}')
    with pytest.raises(InvalidInputError) as caught:
        evidence.read(path, "x")
    assert str(path) in caught.value.message
    assert [str(each) for each in caught.value.problems] == [f"{path}.proofs: missing"]


@pytest.mark.parametrize(
    ("changed", "place", "told"),
    [
        ({"schema": 2}, ".schema", "schema must be 1"),
        ({"name": "y"}, ".name", "name must be 'x'"),
        ({"proofs": (proof("locked", date="<b>x"),)}, ".proofs[0].date", "'<b>x' is not a date"),
        ({"proofs": (proof("locked", date="2999-99-99"),)}, ".proofs[0].date", "is not a date"),
        ({"proofs": (proof("locked", date="20261122"),)}, ".proofs[0].date", "is not a date"),
        ({"contradicted": (proof("built", date=""),)}, ".contradicted[0].date", "is not a date"),
    ],
)
def test_evidence_with_impossible_values_is_refused(tmp_path, changed, place, told):
    path = tmp_path / "x.json"
    evidence.write(path, dataclasses.replace(with_all(proof("locked")), **changed))
    with pytest.raises(InvalidInputError) as caught:
        evidence.read(path, "x")
    assert str(path) in caught.value.message
    (problem,) = caught.value.problems
    assert problem.where == f"{path}{place}"
    assert told in problem.message


def test_a_stored_answer_is_replayed_for_the_same_key_only(workspace):
    stage_cache.keep(workspace, "x", "smoke", {"image": "1"}, {"status": "pass"})
    assert stage_cache.recall(workspace, "x", "smoke", {"image": "1"}) == {"status": "pass"}
    assert stage_cache.recall(workspace, "x", "smoke", {"image": "2"}) is None
    assert stage_cache.recall(workspace, "x", "verify", {"image": "1"}) is None
    assert stage_cache.last(workspace, "x", "smoke") == {"status": "pass"}
    stage_cache.forget(workspace, "x", "smoke")
    assert stage_cache.recall(workspace, "x", "smoke", {"image": "1"}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": {"image": "1"}}', '{"key": {"image": "1"}, "result": 3}'])
def test_a_damaged_stored_answer_is_none(workspace, text):
    stage_cache.keep(workspace, "x", "smoke", {"image": "1"}, {"status": "pass"})
    (workspace.home / "stages/x/smoke.json").write_text(text)
    assert stage_cache.recall(workspace, "x", "smoke", {"image": "1"}) is None
    assert stage_cache.last(workspace, "x", "smoke") is None


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


CARDS = [{"uuid": "GPU-1", "name": "A100"}, {"uuid": "GPU-2", "name": "A100"}]
GPU = {"mode": {"device": "cuda"}, "devices": CARDS, "runs": [{"n": 1}, {"n": 2}]}


def test_a_proof_names_each_gpu_that_the_test_used():
    assert evidence.gpus_of(GPU) == ("A100", "A100")
    assert evidence.gpus_of({**GPU, "runs": [{"n": 1}]}) == ("A100",)  # the other GPU of the machine took no part
    assert evidence.gpus_of({**GPU, "runs": []}) == ("A100",)  # nothing was trained
    assert evidence.gpus_of({**GPU, "mode": {"device": "cpu"}}) == ()
    assert evidence.gpus_of({"mode": {"device": "cuda"}, "devices": None}) == ()
    assert evidence.gpus_of({**GPU, "devices": [*CARDS, {"uuid": "GPU-3", "name": "T4"}]}) == ()
    # The parts of a report are tests of the same machine, so a GPU of several parts counts once.
    assert evidence.gpus_of({"mode": {"device": "cuda"}, "parts": [{"report": GPU}, {"report": GPU}]}) == ("A100", "A100")


def test_the_gpus_of_a_proof_are_kept_in_the_file_and_left_out_without_gpus(tmp_path):
    path = tmp_path / "x.json"
    on_gpu = evidence.proof("smoke-gpu", NOW, date="2026-01-02", engine="e", gpus=("A100",))
    evidence.write(path, with_all(on_gpu, proof("smoke-cpu")))
    assert path.read_text().count('"gpus"') == 1
    assert evidence.read(path, "x").proofs == (proof("smoke-cpu"), on_gpu)
    assert len(with_all(on_gpu, dataclasses.replace(on_gpu, gpus=("A100", "A100"))).proofs) == 2


def test_the_reason_of_an_inconclusive_test_is_stored_until_a_proof_replaces_it(tmp_path):
    unproved = evidence.Unproved(kind="smoke-cpu", date="2026-01-02", lock=NOW.lock, files=(), why="It computes only on GPUs.")
    path = tmp_path / "widget.json"
    evidence.write(path, dataclasses.replace(evidence.with_unproved(NOTHING, unproved), name="widget"))
    held = evidence.read(path, "widget")
    assert held.unproved == (unproved,)
    assert evidence.with_proof(held, proof("smoke-cpu")).unproved == ()
    assert evidence.joined(held, dataclasses.replace(NOTHING, name="widget")).unproved == (unproved,)
