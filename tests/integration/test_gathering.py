"""`envbuild evidence NAME --from HOST/REPOSITORY`: which reports of other machines are accepted, and as which evidence."""

from __future__ import annotations

import contextlib
import copy
import datetime
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from program import ROOT
from signing import write_pair
from smoke_documents import smoke_report
from stand_in_registry import Registry, serve
from stood_in_stages import Stages, stand_in

from envbuild import files
from envbuild.attest import keys, signing
from envbuild.attest.signing import Statement
from envbuild.catalogue import model
from envbuild.cli import frame
from envbuild.compose.outputs import referrers
from envbuild.model.environment import Environment
from envbuild.pipeline import catalogue_entries, catalogue_registry, cataloguing, gathering, own_images
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
GPU = {
    "index": 0, "name": "NVIDIA GeForce GTX 1080 Ti", "multiprocessors": 28, "cc": "6.1", "mem_bytes": 1, "peers": [],
    "uuid": "GPU-1", "mem_free_bytes": 1, "util_pct": 0, "power_limit_w": 250, "pcie_gen": 3, "pcie_width": 16,
}  # fmt: skip


def now(*, hours: int) -> str:
    """The time in some hours, as a report states it."""
    return f"{datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


class Place:
    """A registry with the published image, and methods to attach statements to it."""

    def __init__(self, registry: Registry, stages: Stages, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.stages, self.folder = stages, folder
        self.registry, self.to, self._capsys = registry, f"{registry.host}/lab/dl", capsys
        self.ours, self.theirs, self.stranger = (write_pair(folder, name) for name in ("ours", "theirs", "stranger"))
        code, told = self.run("publish", NAME, "--to", self.to, "--key", str(self.ours[0]))
        assert code == 0
        self.digest, self.image = told["published"]["digest"], told["image"]

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = frame.run([*words, "--json"])
        return code, json.loads(self._capsys.readouterr().out)

    def gather(self, *pairs: tuple[Path, Path]) -> list[dict[str, Any]]:
        """The answers about the statements of other signers about smoke tests."""
        words = [word for pair in pairs for word in ("--key", str(pair[1]))]
        code, told = self.run("evidence", NAME, "--from", self.to, *words)
        assert code == 0, told
        (answer,) = told["gathered"]
        assert answer["digest"] == self.digest
        ours = keys.public_key(self.ours[1]).hint  # leave out the statement of `publish`, which contains no real report
        return [each for each in answer["statements"] if each["kind"] == signing.SMOKE and each["signer"] != ours]

    def report(self, **changed: Any) -> dict[str, Any]:
        return smoke_report(NAME, **{"image": {"ref": "x", "id": self.image}, **changed})

    def attach(self, report: Any, pair: tuple[Path, Path], about: str = "", **changed: Any) -> None:
        """Attach a statement without the checks of `attest`."""
        lock = files.sha256_of(ROOT / f"images/environments/{NAME}/lock.json")
        told = {"image": self.image, "lock": lock, "status": "pass", "device": "cpu", "report": report, **changed}
        key = keys.signing_key(pair[0], "")
        content = signing.bundle(Statement(kind=signing.SMOKE, predicate=told), about or self.digest, key)
        self.attach_bytes(content)

    def attach_bytes(self, content: bytes) -> None:
        notes = {signing.ABOUT: signing.SMOKE}
        with referrers.opened(self.to, writes=True) as client:
            image = referrers.image(client, self.digest)
            referrers.attach(client, image, [referrers.Artifact(content=content, kind=signing.BUNDLE, annotations=notes)])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    stages = stand_in(tmp_path, monkeypatch, {NAME: "first"})
    fixed = stages.made(None, [NAME]).record.tags[2].rpartition(":")[2]
    monkeypatch.setattr(own_images.OwnImage, "fixed", property(lambda _self: fixed))
    with serve(Registry(knows_referrers=True)) as registry:
        yield Place(registry, stages, tmp_path, capsys)


@pytest.fixture
def for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the environment were for GPUs."""
    monkeypatch.setattr(Environment, "cuda_of", lambda _self, _framework: "9.0")


@pytest.mark.usefixtures("for_gpus")
def test_a_report_of_a_trusted_machine_is_kept_and_shown(place, tmp_path):
    report = place.report(mode={"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}, devices=[GPU])
    report["host"] |= {"driver": "384.130"}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    assert place.run("attest", NAME, str(path), "--to", place.to, "--key", str(place.theirs[0]))[0] == 0
    (told,) = place.gather(place.ours, place.theirs)
    assert told["verdict"] == "accepted" and told["report"]["gpus"] == [GPU["name"]] and told["report"]["kind"] == "smoke-gpu"
    for words in (["show", NAME], ["resolve", NAME]):
        (known,) = place.run(*words)[1]["elsewhere"]
        assert (known["driver"], known["status"], known["repository"]) == ("384.130", "pass", place.to)
    assert frame.run(["resolve", NAME, "--gpu", "GTX 1080 Ti", "-q"]) == 0
    assert "your GPU" in place._capsys.readouterr().out
    for other in ("sm_86", "GTX 1080"):
        assert frame.run(["resolve", NAME, "--gpu", other, "-q"]) == 0
        shown = place._capsys.readouterr().out
        assert "smoke-gpu" in shown and "your GPU" not in shown
    assert place.run("evidence", NAME)[1]["environments"][0]["kinds"] == place.run("show", NAME)[1]["evidence"]
    assert "smoke-gpu" not in place.run("show", NAME)[1]["evidence"], "what others say is not this machine's evidence"


def test_a_strangers_report_is_not_trusted_and_not_kept(place):
    place.attach(place.report(), place.theirs)
    (told,) = place.gather(place.ours)
    assert (told["verdict"], told["report"]) == ("not trusted", None) and "another key" in told["why"]
    assert "elsewhere" not in place.run("show", NAME)[1]
    assert [each["verdict"] for each in place.gather(place.ours, place.theirs)] == ["accepted"]
    assert len(place.run("show", NAME)[1]["elsewhere"]) == 1
    place.gather(place.ours)
    assert "elsewhere" not in place.run("show", NAME)[1], "whom nobody trusts any more is forgotten"


def test_what_is_not_read_is_counted(place, monkeypatch):
    monkeypatch.setattr(referrers, "MOST", 2)
    code, told = place.run("evidence", NAME, "--from", place.to, "--key", str(place.ours[1]))
    (answer,) = told["gathered"]
    assert code == 0 and (len(answer["statements"]), answer["unread"]) == (2, 4)
    assert frame.run(["evidence", NAME, "--from", place.to, "--key", str(place.ours[1])]) == 0
    assert "or too many: 4." in place._capsys.readouterr().out


def test_what_is_not_signed_or_was_changed_is_not_trusted(place):
    key = keys.signing_key(place.theirs[0], "")
    whole = json.loads(signing.bundle(Statement(kind=signing.SMOKE, predicate={}), place.digest, key))
    unsigned, changed = copy.deepcopy(whole), copy.deepcopy(whole)
    unsigned["dsseEnvelope"]["signatures"] = []
    changed["dsseEnvelope"]["payload"] = whole["dsseEnvelope"]["payload"].replace("e30", "e31")[:-4] + "fX0="
    for each in (unsigned, changed):
        place.attach_bytes(json.dumps(each).encode())
    place.attach_bytes(b"no json")
    _, told = place.run("evidence", NAME, "--from", place.to, "--key", str(place.theirs[1]))
    found = told["gathered"][0]["statements"]
    assert {each["verdict"] for each in found} == {"not trusted"} and all(each["why"] for each in found)
    assert any("not signed" in each["why"] and each["signer"] == "" for each in found)


def test_forged_reports_of_trusted_signers_are_refused_with_the_reason(place):
    whole = place.report()
    other = "sha256:" + "0" * 64
    cases: list[tuple[dict[str, Any], str]] = [
        ({"report": place.report(image={"ref": "x", "id": other})}, "another image"),
        ({"report": whole, "image": other}, "another image"),
        ({"report": whole, "lock": "0" * 64}, "another lock"),
        ({"report": place.report(environment={**whole["environment"], "lock": "0" * 64})}, "another lock"),
        (
            {"report": place.report(environment={**whole["environment"], "name": "other-1.0-cpu"})},
            "about another environment: other-1.0-cpu",
        ),
        ({"report": place.report(status="fail")}, "its report says fail"),
        ({"report": place.report(checks=[])}, "it says pass, but its checks say inconclusive"),
        ({"report": place.report(checks=whole["checks"][:3])}, "it says pass, but it lacks the check RUN for one device"),
        ({"report": {**whole, "status": "fail"}, "status": "fail"}, "it says fail, but its checks say pass"),
        ({"report": place.report(framework={**whole["framework"], "version": "4.1"})}, "4.1, but the lock has 5.0.0.93"),
        ({"report": place.report(mode={**whole["mode"], "device": "cuda"})}, "it lists no GPU"),
        ({"report": place.report(runs="many")}, "not complete"),
        ({"report": None}, "no report"),
        ({"report": whole, "status": "splendid"}, "not a verdict"),
        (
            {"report": place.report(mode={"device": "cpu", "gpu_image": True, "allow_cpu": True, "expect": None})},
            "the lock has one for CPUs",
        ),
        ({"report": whole, "about": other}, "another image"),
    ]
    for changed, _ in cases:
        place.attach(changed.pop("report"), place.theirs, **changed)
    found = place.gather(place.theirs)
    assert {each["verdict"] for each in found} == {"refused"} and len(found) == len(cases)
    for _, why in cases:
        assert any(why in each["why"] for each in found), why
    assert "elsewhere" not in place.run("show", NAME)[1]


@pytest.mark.usefixtures("for_gpus")
def test_a_pass_on_the_cpu_says_nothing_about_a_gpu_image(place):
    place.attach(place.report(mode={"device": "cpu", "gpu_image": True, "allow_cpu": True, "expect": None}), place.theirs)
    (told,) = place.gather(place.theirs)
    assert told["verdict"] == "refused" and "used no GPU" in told["why"]


def test_a_failure_on_another_machine_is_told_until_the_lock_changes(place):
    place.attach(place.report(status="fail"), place.theirs, status="fail")
    assert [each["report"]["status"] for each in place.gather(place.theirs)] == ["fail"]
    assert [each["status"] for each in place.run("show", NAME)[1]["elsewhere"]] == ["fail"]
    kept = next(Path(os.environ["ENVBUILD_HOME"]).rglob("gathered/*.json"))
    kept.write_text(kept.read_text().replace('"lock": "', '"lock": "0'))
    assert "elsewhere" not in place.run("show", NAME)[1]
    kept.write_text("{")
    assert "elsewhere" not in place.run("show", NAME)[1]


def entry_of(place: Place, *pairs: tuple[Path, Path], with_machine: bool = False) -> model.CatalogueEntry:
    """What a catalogue that trusts these keys shows of the image."""
    tools = Tools(place.stages.workspace)
    locked = read_locked(tools, NAME)
    assert locked is not None
    entry = catalogue_entries.entry_of(tools, locked, "", with_machine=with_machine)
    trusted = [keys.public_key(pair[1]) for pair in pairs]
    (found,) = catalogue_registry.published(tools, [entry], place.to, trusted)
    return found


@pytest.mark.usefixtures("for_gpus")
def test_the_catalogue_shows_what_trusted_keys_signed_and_nothing_else(place):
    mode = {"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}
    place.attach(place.report(mode=mode, devices=[GPU]), place.theirs)
    place.attach(place.report(mode=mode, devices=[{**GPU, "name": "Tesla V100-SXM2-16GB", "cc": "7.0"}]), place.stranger)
    place.attach(place.report(), place.theirs, about="sha256:" + "0" * 64)
    unchecked = entry_of(place)
    assert unchecked.published is not None and unchecked.published.signed_by is None and not unchecked.proved_on
    known = entry_of(place, place.ours, place.theirs)
    shown = known.published
    assert shown is not None and shown.digest == place.digest
    ours, theirs = (keys.public_key(pair[1]).hint for pair in (place.ours, place.theirs))
    assert shown.signed_by == (ours,)
    assert {each.kind for each in shown.statements} >= {
        signing.SIGNED,
        signing.SBOM,
        signing.PROVENANCE,
    }
    assert shown.others == 3  # the stranger's, the one about another image, and that of `publish`, which has no real report
    assert known.proved_on == (("GeForce GTX 1080 Ti", "6.1"),)
    assert [(each.signer, each.verdict) for each in known.reports] == [(theirs, "pass")]
    assert [each.where for each in known.proofs if each.kind == "smoke-gpu"] == ["registry"]
    stranger = entry_of(place, place.stranger).published
    assert stranger is not None and stranger.signed_by == ()


def test_a_report_of_this_machine_that_is_also_in_the_registry_is_shown_once(place, tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(place.report(), indent=1))
    monkeypatch.setattr("envbuild.pipeline.status.stored_reports", lambda *_words: {"json": path})
    assert [each.signer for each in entry_of(place, place.theirs, with_machine=True).reports] == [""]
    place.run("attest", NAME, str(path), "--to", place.to, "--key", str(place.theirs[0]))
    (known,) = entry_of(place, place.theirs, with_machine=True).reports
    assert known.signer == keys.public_key(place.theirs[1]).hint
    place.attach(place.report(started_utc=now(hours=-1)), place.theirs)
    assert len(entry_of(place, place.theirs, with_machine=True).reports) == 2


@pytest.mark.usefixtures("for_gpus")
def test_the_catalogue_takes_back_a_proof_that_failed_later(place):
    mode = {"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}
    place.attach(place.report(mode=mode, devices=[GPU]), place.theirs)
    later = place.report(mode=mode, devices=[GPU], status="fail", started_utc=now(hours=-1))
    place.attach(later, place.theirs, status="fail")
    known = entry_of(place, place.theirs)
    assert known.proved_on == () and sorted(each.verdict for each in known.reports) == ["fail", "pass"]


@pytest.mark.usefixtures("for_gpus")
def test_a_report_about_another_rendering_of_the_lock_is_shown_and_proves_nothing(place, monkeypatch):
    mode = {"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}
    place.attach(place.report(mode=mode, devices=[GPU]), place.theirs)
    own = entry_of(place, place.theirs)
    assert own.published is not None and not own.published.has_other_inputs
    assert own.proved_on and "smoke-gpu" in own.kinds
    monkeypatch.setattr(own_images.OwnImage, "fixed", property(lambda self: self.tags[2].rpartition(":")[2]))  # not published
    other = entry_of(place, place.theirs)
    assert other.published is not None and other.published.digest == place.digest and other.published.has_other_inputs
    assert other.proved_on == () and "registry" not in [each.where for each in other.proofs]
    assert [each.verdict for each in other.reports] == ["pass"]


@pytest.mark.usefixtures("for_gpus")
def test_a_report_from_the_future_counts_nowhere(place, tmp_path):
    """Otherwise it would outweigh each later report about the same GPU."""
    mode = {"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}
    believed, early = now(hours=14), now(hours=25)
    for day in (believed, early, "9999-99-99T99:99:99Z", "2026-02-30T00:00:00Z", "\u0662\u0660\u0662\u0666-11-01T00:00:00Z"):
        place.attach(place.report(started_utc=day, mode=mode, devices=[GPU]), place.theirs)
    found = place.gather(place.theirs)
    assert [each["report"]["date"] for each in found if each["verdict"] == "accepted"] == [believed[:10]]
    refused = [each["why"] for each in found if each["verdict"] == "refused"]
    assert sorted("is not a date" in why for why in refused) == [False, True, True, True]
    assert [why for why in refused if f"its report has a wrong date: {early} is in the future; it is now 2" in why]
    assert [each["date"] for each in place.run("show", NAME)[1]["elsewhere"]] == [believed[:10]]
    known = entry_of(place, place.theirs)
    assert [each.date for each in known.proofs if each.where == "registry"] == [believed[:10]] and len(known.reports) == 1
    path = tmp_path / "report.json"
    path.write_text(json.dumps(place.report(started_utc=early)))
    code, told = place.run("attest", NAME, str(path), "--to", place.to, "--key", str(place.theirs[0]))
    assert (code, told["error"]["code"]) == (5, "report") and "is in the future" in told["error"]["message"]


def test_attest_takes_the_image_with_our_inputs_even_if_the_moving_tag_was_moved_back(place, tmp_path):
    document = json.loads(place.registry.manifests[f"lab/dl:{NAME}"])
    before = json.dumps({**document, "annotations": {"made": "for an earlier release"}}).encode()
    place.registry.manifests[f"lab/dl:{NAME}"] = before
    path = tmp_path / "report.json"
    path.write_text(json.dumps(place.report()))
    words = ("attest", NAME, str(path), "--to", place.to, "--key", str(place.theirs[0]))
    code, told = place.run(*words)
    assert (code, told.get("digest")) == (0, place.digest), told
    assert [each["verdict"] for each in place.gather(place.theirs)] == ["accepted"]
    path.write_text(json.dumps(place.report(image={"ref": "x", "id": f"sha256:{hashlib.sha256(before).hexdigest()}"})))
    code, told = place.run(*words)
    assert (code, told["error"]["code"]) == (5, "report-of-another-image")
    assert place.run(*words, "--tag", NAME)[0] == 0, "the moving tag can still be named"


def test_the_policy_believes_the_newest_report_about_a_machine(place, tmp_path):
    mode = {"device": "cuda", "gpu_image": True, "allow_cpu": False, "expect": None}
    policy = tmp_path / "policy.yaml"
    policy.write_text('schema: 1\nevidence: {required: [{kind: smoke-gpu, machine: "*1080*"}]}\n')

    def judged() -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:  # only here: `check` would find that the lock is not for GPUs
            patch.setattr(Environment, "cuda_of", lambda _self, _framework: "9.0")
            place.gather(place.theirs)
        _, told = place.run("check", NAME, "--policy", str(policy), "--no-upgrades")
        (environment,) = told["environments"]
        return environment

    other = {**GPU, "name": "Tesla V100-SXM2-16GB", "cc": "7.0"}
    place.attach(place.report(mode=mode, devices=[GPU, other]), place.theirs)
    assert "no report names the machine" in judged()["unchecked"][0]["message"], "it does not say which GPU it used"
    place.attach(place.report(mode=mode, devices=[GPU]), place.theirs)
    assert judged()["clean"]
    place.attach(place.report(mode=mode, devices=[GPU], status="fail", started_utc=now(hours=-1)), place.theirs, status="fail")
    assert not judged()["clean"]


def test_the_catalogue_refuses_a_wrong_repository_before_any_work(place, monkeypatch):
    monkeypatch.setattr(cataloguing, "_locks", lambda _tools: pytest.fail("the name is checked too late"))
    for name, code in ((f"{place.registry.host}/lab/other", "not-in-registry"), ("127.0.0.1:1/lab/dl", "registry-unreachable")):
        exit_code, told = place.run("catalogue", "-o", str(place.folder / "site"), "--registry", name)
        assert (exit_code, told["error"]["code"]) == (11, code)
        assert "layers" not in told["error"]["hint"]
    code, told = place.run("catalogue", "-o", str(place.folder / "site"), "--key", str(place.ours[1]))
    assert (code, told["error"]["code"]) == (2, "usage")


MIXED = (("--key", "x"), ("--from", "h.example/r"), ("--from", "h.example/r", "--key", "x", "--prove"))


def test_options_that_do_not_go_together_are_refused(capsys):
    for words in (*((NAME, *each) for each in MIXED), ("--all", "--key", "x")):
        assert frame.run(["evidence", *words, "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_an_image_that_is_not_in_the_registry_is_told(place):
    code, told = place.run("evidence", NAME, "--from", f"{place.registry.host}/lab/other", "--key", str(place.ours[1]))
    assert (code, told["error"]["code"]) == (11, "not-in-registry")


def test_what_was_gathered_is_shown_although_the_next_name_fails(place):
    assert frame.run(["evidence", NAME, "nosuch", "--from", place.to, "--key", str(place.ours[1])]) == 4
    assert f"{NAME}: " in place._capsys.readouterr().out


def test_an_image_that_the_registry_lacks_is_told(place):
    place.registry.manifests.clear()
    code, told = place.run("evidence", NAME, "--from", place.to, "--key", str(place.ours[1]))
    assert (code, told["error"]["code"]) == (11, "not-in-registry") and "--tag" not in told["error"]["hint"]


@pytest.mark.parametrize("words", [("--kinds", "smoke-gpu"), ("--start-engine",), ("--prove",), ("--driver", "384.130")])
def test_no_other_option_is_ignored_silently(place, words):
    place.registry.asked.clear()
    code, told = place.run("evidence", NAME, "--from", place.to, "--key", str(place.ours[1]), *words)
    assert (code, told["error"]["code"]) == (2, "usage") and words[0] in told["error"]["message"]
    assert not place.registry.asked


@pytest.mark.parametrize("words", [("--kinds", "smoke-gpu"), ("--keep-images",)])
def test_options_of_prove_are_refused_without_it(place, words):
    code, told = place.run("evidence", NAME, *words)
    assert (code, told["error"]["code"]) == (2, "usage") and words[0] in told["error"]["message"]


def test_two_that_gather_at_once_keep_the_reports_of_both(place, monkeypatch):
    """Without a lock, both read the file before either writes it, and the reports of one are lost."""
    place.attach(place.report(), place.ours)
    registry = place.registry
    registry.blobs["lab/other"] = dict(registry.blobs["lab/dl"])
    for reference, content in list(registry.manifests.items()):
        registry.manifests[reference.replace("lab/dl:", "lab/other:")] = content
    tools, key, both = Tools(place.stages.workspace), keys.public_key(place.ours[1]), threading.Barrier(2)
    plain = gathering.held

    def held(*words: Any) -> Any:
        found = plain(*words)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)
        return found

    monkeypatch.setattr(gathering, "held", held)
    repositories = [f"{registry.host}/lab/{name}" for name in ("dl", "other")]
    with ThreadPoolExecutor(2) as pool:
        for answer in [pool.submit(gathering.gather, tools, NAME, each, [key]) for each in repositories]:
            assert any(each.report for each in answer.result().statements)
    assert sorted(each.repository for each in plain(tools, NAME)) == repositories
    assert [path.name for path in place.stages.workspace.gathered_file(NAME).parent.iterdir()] == [f"{NAME}.json"]
