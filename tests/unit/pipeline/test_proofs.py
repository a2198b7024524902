"""Proofs are kept in the cache folder, become stale when their inputs change, and are recorded only on demand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import verify_locks

from envbuild import codec
from envbuild.build import BaseRecord, BuildRecord
from envbuild.errors import BuildError, EnvbuildError, InvalidInputError, Problem, UnknownNameError, UsageError
from envbuild.host import nvidia
from envbuild.lock import lock_file
from envbuild.model.lock import Missing
from envbuild.pipeline import committed, evidence, evidence_upkeep, listing, missing_proofs, proofs
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.recipes import Recipe
from envbuild.workspace import Workspace

NAME = verify_locks.lock().environment.name
WRITTEN = {"Dockerfile": "FROM x\n", "requirements.txt": "a==1\n"}


class Engine:
    """An engine that has a name and holds every image."""

    class info:
        name = "Docker 1 (toy)"


@pytest.fixture
def world(tmp_path: Path) -> Tools:
    """A checkout with one environment, locked and rendered."""
    images = tmp_path / "root/images"
    guest = tmp_path / "guest"
    guest.mkdir(parents=True)
    (guest / "run.py").write_text("print(1)\n")

    class Here(Workspace):
        guest = property(lambda _: tmp_path / "guest")  # type: ignore[assignment]

    tools = Tools(Here(root=tmp_path / "root", output=images, home=tmp_path / "home"))
    lock_file.write(tools.workspace.written_lock(NAME), verify_locks.lock())
    for name, text in WRITTEN.items():
        (images / "environments" / NAME / name).write_text(text)
    known: dict[str, Recipe] = {}
    tools.__dict__.update(recipes=known, engine=Engine())
    return tools


def built(tools: Tools) -> BuildRecord:
    subject = proofs.subject_of(tools, NAME)
    base = BaseRecord(reference="x", image="x", how="pull", digest="", notes=())
    return BuildRecord(
        name=NAME, lock=subject.lock, inputs="", image="sha256:1", tags=("t",), base=base, engine="e", built_at="", seconds=0,
        steps=0, cached=0, size=0, kept=False, rendering=subject.rendering, guest=subject.guest,
    )  # fmt: skip


def prove_everything(tools: Tools) -> BuildRecord:
    lock = verify_locks.lock()
    digest = lock_file.digest(lock)
    for kind in ("locked", "downloaded"):
        proofs.prove_lock(tools, NAME, digest, kind)
    proofs.prove_rendering(tools, lock, digest, WRITTEN)
    record = built(tools)
    for kind in ("built", "verified", "smoke-cpu"):
        proofs.prove_image(tools, record, record.image, kind)
    return record


EVERYTHING = ("locked", "downloaded", "rendered", "built", "verified", "smoke-cpu")


def test_the_list_for_scripts_says_what_holds_of_each(world):
    prove_everything(world)
    rows, warnings = [{"name": NAME}, {"name": "another-1"}, {"name": ""}], []
    assert [row["evidence"] for row in listing.with_evidence(world, rows, warnings)] == [list(EVERYTHING), [], []]
    (world.workspace.guest / "run.py").write_text("print(2)\n")
    assert listing.with_evidence(world, rows, warnings)[0]["evidence"] == list(EVERYTHING)
    assert not warnings
    world.workspace.written_lock(NAME).write_text("{")
    assert listing.with_evidence(world, rows, warnings)[0]["evidence"] == []
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{NAME}: ")


def test_what_is_proved_changes_nothing_in_the_checkout(world):
    before = sorted(world.workspace.root.rglob("*"))
    prove_everything(world)
    assert sorted(world.workspace.root.rglob("*")) == before
    assert proofs.held_kinds(world, NAME) == EVERYTHING
    (proof,) = [each for each in proofs.held(world, NAME).proofs if each.kind == "smoke-cpu"]
    assert proof.engine == "Docker 1 (toy)"
    assert len({proof.lock, proof.rendering, proof.guest}) == 3


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda images, _: (images / "Dockerfile").write_text("FROM y\n"), ("locked", "downloaded")),
        (lambda images, _: (images / "requirements-more.txt").write_text("b==1\n"), ("locked", "downloaded")),
        (lambda images, _: (images / "requirements.txt").rename(images / "other.txt"), ("locked", "downloaded")),
        (lambda images, _: (images / "lock.json").unlink(), ()),
    ],
)
def test_a_change_makes_stale_what_rests_on_it_and_prune_removes_that(world, change, left):
    prove_everything(world)
    evidence_upkeep.record_evidence(world, [NAME])
    assert evidence_upkeep.survey_evidence(world, NAME).stale == ()
    assert committed.check_evidence(world) == []
    change(world.workspace.environment(NAME), world.workspace.guest)
    row = evidence_upkeep.survey_evidence(world, NAME)
    assert row.kinds == left == proofs.held_kinds(world, NAME)
    assert {each.proof.kind for each in row.stale if each.place == "repository"} == set(EVERYTHING) - set(left)
    assert len(committed.check_evidence(world)) == 1
    assert len(evidence_upkeep.prune_evidence(world, [NAME])) == 2
    assert evidence_upkeep.survey_evidence(world, NAME).stale == ()
    assert committed.check_evidence(world) == []
    assert evidence_upkeep.prune_evidence(world, [NAME]) == []
    assert world.workspace.committed_evidence(NAME).exists() == bool(left)


def test_a_changed_smoke_test_leaves_the_proofs_of_the_earlier_one(world):
    prove_everything(world)
    evidence_upkeep.record_evidence(world, [NAME])
    assert evidence_upkeep.survey_evidence(world, NAME).earlier == ()
    (world.workspace.guest / "run.py").write_text("print(2)\n")
    row = evidence_upkeep.survey_evidence(world, NAME)
    assert (row.kinds, row.stale, row.earlier) == (EVERYTHING, (), ("smoke-cpu",))
    assert proofs.held_kinds(world, NAME) == EVERYTHING
    assert proofs.renewed_kinds(world, NAME) == EVERYTHING[:-1]
    assert committed.check_evidence(world) == [] == evidence_upkeep.prune_evidence(world, [NAME])
    proofs.prove_image(world, built(world), "sha256:1", "smoke-cpu")
    assert evidence_upkeep.survey_evidence(world, NAME).earlier == ()
    evidence_upkeep.record_evidence(world, [NAME])
    (path, _) = proofs.files_of(world, NAME)
    assert [each.kind for each in evidence.read(path, NAME).proofs] == list(EVERYTHING)
    assert proofs.renewed_kinds(world, NAME) == EVERYTHING


def test_recipes_are_read_only_where_a_proof_rests_on_the_guest(world):
    proofs.prove_image(world, built(world), "sha256:1", "verified")
    del world.__dict__["recipes"]
    assert proofs.held_kinds(world, NAME) == ("verified",)
    assert "recipes" not in world.__dict__
    world.__dict__["recipes"] = {}
    proofs.prove_image(world, built(world), "sha256:1", "smoke-cpu")
    assert proofs.held_kinds(world, NAME) == ("verified", "smoke-cpu")
    (world.workspace.guest / "run.py").write_text("print(2)\n")
    assert proofs.renewed_kinds(world, NAME) == ("verified",)


def test_a_changed_lock_leaves_nothing(world):
    prove_everything(world)
    lock = verify_locks.lock()
    gap = Missing(what="a thing", why="a reason")
    lock_file.write(world.workspace.written_lock(NAME), replace(lock, missing=(*lock.missing, gap)))
    assert proofs.held_kinds(world, NAME) == ()


def test_an_image_made_before_a_change_proves_nothing_of_what_is_there_now(world):
    record = built(world)
    said = []
    world.on_progress = said.append
    (world.workspace.guest / "run.py").write_text("print(2)\n")
    proofs.prove_image(world, record, record.image, "smoke-cpu")
    assert proofs.held_kinds(world, NAME) == ()
    assert "changed after the image was built" in said[0].message
    proofs.prove_image(world, record, record.image, "built")  # `built` does not depend on the guest
    proofs.prove_image(world, record, "sha256:another", "verified")
    proofs.prove_image(world, None, record.image, "verified")
    assert proofs.held_kinds(world, NAME) == ("built",)


def test_what_fails_here_counts_no_longer_and_is_recorded_as_such(world):
    prove_everything(world)
    evidence_upkeep.record_evidence(world, [NAME])
    committed = world.workspace.committed_evidence(NAME)
    before = committed.read_text()
    proofs.contradict(world, NAME, "smoke-cpu")
    assert committed.read_text() == before
    assert proofs.held_kinds(world, NAME) == EVERYTHING[:-1]
    assert evidence_upkeep.survey_evidence(world, NAME).contradicted == ("smoke-cpu",)
    assert evidence_upkeep.record_evidence(world, [NAME]) == [committed]
    kinds = [proof["kind"] for proof in json.loads(committed.read_text())["proofs"]]
    assert kinds == list(EVERYTHING[:-1])
    assert "contradicted" not in json.loads(committed.read_text())


def test_recording_twice_changes_nothing(world):
    prove_everything(world)
    assert evidence_upkeep.survey_evidence(world, NAME).unrecorded == proofs.held(world, NAME).proofs
    assert evidence_upkeep.record_evidence(world, [NAME]) == [world.workspace.committed_evidence(NAME)]
    assert evidence_upkeep.survey_evidence(world, NAME).unrecorded == ()
    world.workspace.evidence_file(NAME).unlink()
    prove_everything(world)
    assert evidence_upkeep.record_evidence(world, [NAME]) == []


def test_a_read_only_checkout_is_not_called_an_installed_package(world, tmp_path):
    world.workspace = replace(world.workspace, output=tmp_path / "elsewhere")
    with pytest.raises(UsageError) as caught:
        evidence_upkeep.record_evidence(world, [NAME])
    assert caught.value.code == "not-writable"
    assert caught.value.message.startswith(f"You may not write to {world.workspace.images}")


def test_an_installed_package_has_nowhere_to_record(world, tmp_path):
    world.workspace = replace(world.workspace, root=tmp_path / "_data", output=tmp_path / "elsewhere")
    with pytest.raises(UsageError) as caught:
        evidence_upkeep.record_evidence(world, [NAME])
    assert caught.value.code == "not-a-checkout"


def test_names_are_all_or_those_that_match(world):
    orphan = world.workspace.committed_evidence("gone-1.0")
    evidence.write(orphan, evidence.with_proof(evidence.read(orphan, "gone-1.0"), PROOF))
    assert evidence_upkeep.evidence_names(world, (), Constraints()) == sorted([NAME, "gone-1.0"])
    assert evidence_upkeep.evidence_names(world, (), Constraints(), pattern="gone*") == ["gone-1.0"]
    with pytest.raises(UnknownNameError):
        evidence_upkeep.evidence_names(world, (), Constraints(), pattern="none*")
    row = evidence_upkeep.survey_evidence(world, "gone-1.0")
    assert (row.orphan, row.kinds, len(row.stale)) == (True, (), 1)
    assert evidence_upkeep.prune_evidence(world, ["gone-1.0"]) == [orphan]
    assert not orphan.exists()


PROOF = evidence.proof("locked", evidence.Subject(lock="a" * 64, rendering="", guest=""), date="2026-01-01", engine="")


def test_a_file_that_is_no_evidence_is_told(world):
    path = world.workspace.committed_evidence(NAME)
    path.parent.mkdir()
    path.write_text(json.dumps({**codec.encode(evidence.read(path.with_name("none"), NAME)), "more": 1}))
    with pytest.raises(InvalidInputError):
        evidence_upkeep.survey_evidence(world, NAME)


@pytest.fixture
def stage(world, monkeypatch):
    """Replace the stages; ``stage`` sets their answers."""
    lock = verify_locks.lock()
    locked = Locked(lock=lock, digest=lock_file.digest(lock), path=world.workspace.lock_file(NAME), kept=True)
    monkeypatch.setattr(missing_proofs.locking, "require_lock", lambda *_: locked)
    monkeypatch.setattr(missing_proofs.rendering, "render_text", lambda *_: dict(WRITTEN))
    answers: dict[str, EnvbuildError] = {}

    def build(*_, **__):
        if "built" in answers:
            raise answers["built"]
        record = built(world)
        proofs.prove_image(world, record, record.image, "built")
        return record, None

    monkeypatch.setattr(missing_proofs.building, "build_environment", build)
    monkeypatch.setattr(
        missing_proofs.image_checks, "verify_image", lambda t, *_, **__: proofs.prove_image(t, built(t), "sha256:1", "verified")
    )

    def smoke(tools, *_, **__):
        proofs.prove_image(tools, built(tools), "sha256:1", "smoke-cpu")
        return missing_proofs.Smoked(
            status="pass", exit_code=0, sentence="Passed.", hint="", report={}, paths={}, replayed=False
        )

    monkeypatch.setattr(missing_proofs.image_checks, "smoke_image", smoke)
    monkeypatch.setattr(Engine, "image", lambda *_: True, raising=False)
    monkeypatch.setattr(Engine, "remove_unused", lambda *_: True, raising=False)
    return answers


def again(tools: Tools, *kinds: evidence.Kind) -> missing_proofs.Attempt:
    from envbuild.smoketest import SmokeOptions

    told: list[missing_proofs.Attempt] = []
    (attempt,) = missing_proofs.prove_again(tools, [NAME], kinds, smoke=SmokeOptions(), keep_images=False, on_done=told.append)
    assert told == [attempt]
    return attempt


def test_what_is_lacking_is_proved_and_no_more(world, stage):
    assert again(world, "rendered").held == ("rendered",)
    assert again(world, "built").held == ("rendered", "built")
    stage["built"] = InvalidInputError("must not be asked")
    assert again(world, "rendered", "built").state == "proved"


@pytest.mark.parametrize(
    ("kind", "uses_gpu", "has_gpu", "told"),
    [
        ("smoke-gpu", False, True, ["smoke-gpu does not apply"]),
        ("smoke-gpu", False, False, ["smoke-gpu does not apply"]),
        ("smoke-gpu", True, False, ["this machine has no GPU"]),
        ("smoke-gpu", True, True, []),
        ("smoke-cpu", True, True, ["runs on the GPUs"]),
        ("smoke-cpu", True, False, []),
        ("smoke-cpu", False, True, []),
        ("built", False, False, []),
    ],
)
def test_a_kind_that_is_not_tried_is_told(world, monkeypatch, kind, uses_gpu, has_gpu, told):
    environment = SimpleNamespace(cuda="12.1" if uses_gpu else None)
    locked = SimpleNamespace(lock=SimpleNamespace(environment=environment))
    monkeypatch.setattr(missing_proofs.stored_locks, "read_locked", lambda *_: locked)
    monkeypatch.setattr(missing_proofs.proofs, "held_kinds", lambda *_: ())
    monkeypatch.setattr(nvidia, "gpus", lambda: ["GPU"] if has_gpu else [])
    found = missing_proofs.explain_skipped(world, NAME, [kind])
    assert [part in sentence for part, sentence in zip(told, found, strict=True)] == [True] * len(told)


def test_what_this_machine_cannot_do_is_no_failure(world, stage):
    stage["built"] = BuildError("out of reach", code="base-unreachable")
    attempt = again(world, "rendered", "built", "verified")
    assert (attempt.state, attempt.lacking, attempt.exit_code) == ("impossible", ("built", "verified"), 0)
    stage["built"] = BuildError("a step failed")
    attempt = again(world, "built")
    assert (attempt.state, attempt.exit_code, attempt.why) == ("failed", 7, "a step failed")


def test_a_failure_names_the_first_of_its_problems(world, stage):
    problems = [Problem(where="framework", line=0, message="cannot be started"), Problem(where="x", line=0, message="missing")]
    stage["built"] = BuildError("The image does not match its lock.", problems=problems)
    assert again(world, "built").why == "The image does not match its lock. framework: cannot be started (1 more)"


def test_a_rendering_that_is_not_the_locks_is_not_proved(world, stage, monkeypatch):
    assert stage == {}
    monkeypatch.setattr(missing_proofs.rendering, "render_text", lambda *_: {"Dockerfile": "FROM z\n"})
    attempt = again(world, "rendered")
    assert (attempt.state, attempt.exit_code) == ("failed", 5)
    assert proofs.held_kinds(world, NAME) == ()


def test_an_inconclusive_smoke_test_proves_nothing(world, stage, monkeypatch):
    assert stage == {}
    smoked = missing_proofs.Smoked(
        status="inconclusive", exit_code=10, sentence="No GPU.", hint="", report={}, paths={}, replayed=False
    )
    monkeypatch.setattr(missing_proofs.image_checks, "smoke_image", lambda *_, **__: smoked)
    attempt = again(world, "smoke-cpu")
    assert (attempt.state, attempt.lacking, attempt.why) == ("impossible", ("smoke-cpu",), "No GPU.")
    monkeypatch.setattr(
        missing_proofs.image_checks, "smoke_image", lambda *_, **__: replace(smoked, status="error", exit_code=9)
    )
    assert again(world, "smoke-cpu").exit_code == 9


def test_an_image_with_missing_libraries_is_a_failure_with_a_reason(world, stage, monkeypatch):
    assert stage == {}
    monkeypatch.setattr(missing_proofs.link_check, "link_and_warn", lambda *_: None)
    attempt = again(world, "built", "verified", "linked")
    assert (attempt.state, attempt.lacking, attempt.exit_code) == ("failed", ("linked",), 8)
    assert "libraries" in attempt.why


def test_the_same_build_on_another_system_is_named_if_only_that_was_trained(world, monkeypatch):
    """Names that only begin alike, such as 1.1 and 1.10, or other frameworks beside, are other builds."""
    held = {
        "tf-2.1.1-cuda11.2-py38-ubuntu20.04": ("rendered",),
        "tf-2.1.1-cuda11.2-py39-debian11": ("built", "smoke-cpu"),
        "tf-2.1.1-cuda11.2-py39-debian12": ("built",),
        "tf-2.1.1-cuda11.20-py39-debian11": ("smoke-cpu",),
        "tf-2.1.1-cpu-py39-debian11": ("smoke-cpu",),
        "tf-2.1.1+pytorch-2-cuda11.2-py39-debian11": ("smoke-gpu",),
    }
    for name in held:
        path = world.workspace.committed_evidence(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(proofs, "held_kinds", lambda _tools, name: held.get(name, ()))
    proved = {"tf-2.1.1-cuda11.2-py39-debian11": ("built", "smoke-cpu")}
    for name in ("tf-2.1.1-cuda11.2-py38-ubuntu20.04", "tf-2.1.1-cuda11.2-py310-debian13"):
        assert proofs.proved_instead(world, name) == proved
    assert proofs.proved_instead(world, "tf-2.1.1-cuda11.2-py39-debian11") == {}, "it is proved itself"
