"""When stored results of `verify` and of the smoke test count."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import envbuild
from envbuild import build, smoketest, verify
from envbuild.engine import host_apt
from envbuild.errors import InvalidInputError, TimedOutError
from envbuild.host import nvidia
from envbuild.host.nvidia import InstalledDriver
from envbuild.model.lock import Lock
from envbuild.pipeline import image_checks
from envbuild.pipeline.tools import Tools
from envbuild.smoketest import SmokeOptions, SmokeOutcome
from envbuild.verify import installed
from envbuild.verify.findings import VerifyReport
from envbuild.workspace import IMPORT_RULES, WRONG_RECORDS, Workspace

LOCK = cast(Lock, SimpleNamespace(environment=SimpleNamespace(name="widget", frameworks=("a", "b"))))


class World:
    """A smoke test that counts its runs."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root=root, output=root / "images", home=root / "home")
        self.report = root / "report.json"
        self.runs = 0
        self.times_out = False

    def write(self, status: str, image: str) -> None:
        told = {"schema": "envbuild-smoke/1", "status": status, "image": {"ref": "x", "id": image}}
        self.report.write_text(json.dumps(told))

    def run(self, *_words: Any, **_more: Any) -> SmokeOutcome:
        self.runs += 1
        if self.times_out:
            self.write("error", "sha256:1")
            raise TimedOutError("The time limit passed.")
        self.write("fail", "sha256:1")
        return SmokeOutcome(status="fail", exit_code=9, sentence="", hint="", report={}, paths={"json": self.report})

    def is_replayed(self, options: SmokeOptions, endpoint: str = "unix:///engine") -> bool:
        tools = SimpleNamespace(
            workspace=self.workspace, engine=SimpleNamespace(endpoint=endpoint), on_progress=lambda _news: None
        )
        before = self.runs
        image_checks.smoke_image(cast(Tools, tools), LOCK, "0" * 64, "sha256:1", options, replay=True)
        return self.runs == before


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(smoketest, "run", made.run)
    monkeypatch.setattr(nvidia, "gpus", tuple)
    monkeypatch.setattr(nvidia, "driver", lambda: None)
    return made


def test_why_the_packages_of_an_image_are_unknown_is_said_as_it_is(monkeypatch):
    record = SimpleNamespace(lock="a" * 64, image="sha256:1")
    held: dict[str, object] = {}
    engines: list[object] = [None]
    tools = cast(Tools, SimpleNamespace(
        workspace=None, engine_or_none=lambda: engines[0], cli_name=lambda name: f"./{name}/envbuild.yaml",
    ))  # fmt: skip
    records: list[object] = [None]
    monkeypatch.setattr(build, "read_record", lambda *_words: records[0])
    monkeypatch.setattr(installed, "sources", lambda *_words: [("bash", "bash", "5.2")])

    def told(lock: str = "a" * 64) -> tuple[object, str]:
        return image_checks.sources_of_image(tools, "widget", lock)

    not_built = (None, "no image of this lock was built here; `envbuild build ./widget/envbuild.yaml` builds it")
    assert told() == not_built
    records[0] = record
    assert told("b" * 64) == not_built
    assert told() == (None, "an image of this lock was built here, but no container engine responded")
    engines[0] = SimpleNamespace(image=held.get)
    assert told() == (None, "an image of this lock was built here, but the container engine does not have it any more")
    held["sha256:1"] = object()
    assert told() == ([("bash", "bash", "5.2")], "")


def test_data_that_was_mended_is_trained_on_again(world, tmp_path):
    (tmp_path / "data").mkdir()
    options = SmokeOptions(data=str(tmp_path / "data"))
    assert not world.is_replayed(options)
    assert world.is_replayed(options)
    (tmp_path / "data" / "images.gz").write_bytes(b"mended")
    assert not world.is_replayed(options)


def test_a_test_beyond_its_time_limit_takes_the_place_of_the_stored_verdict(world):
    assert not world.is_replayed(SmokeOptions()) and world.is_replayed(SmokeOptions())
    world.times_out = True
    with pytest.raises(TimedOutError):
        world.is_replayed(SmokeOptions(timeout_s=5))
    world.times_out = False
    assert not world.is_replayed(SmokeOptions())


@pytest.mark.parametrize("report", [("error", "sha256:1"), ("pass", "sha256:1"), ("fail", "sha256:2"), None])
def test_a_verdict_whose_report_was_replaced_does_not_count(world, report):
    assert not world.is_replayed(SmokeOptions())
    if report:
        world.write(*report)
    else:
        world.report.write_text("{")
    assert not world.is_replayed(SmokeOptions())


def test_a_verdict_of_this_machine_does_not_stand_for_another(world):
    assert not world.is_replayed(SmokeOptions())
    assert world.is_replayed(SmokeOptions(), "unix:///another/of/this/machine")
    assert not world.is_replayed(SmokeOptions(), "ssh://gpu-server")


def test_a_verdict_under_an_older_driver_does_not_stand_for_a_newer_one(world, monkeypatch):
    for version in ("384.130", "550.54"):
        monkeypatch.setattr(nvidia, "driver", lambda version=version: InstalledDriver(version=version, cuda="9.0"))
        assert not world.is_replayed(SmokeOptions())
        assert world.is_replayed(SmokeOptions())


@pytest.mark.parametrize(
    ("file", "old", "new"), [(IMPORT_RULES, "[nvfuser]", "[nvfuser, widget]"), (WRONG_RECORDS, "libtorch_cpu", "libtorch")]
)
def test_changed_rules_are_applied_to_the_same_image(file, old, new, tmp_path, monkeypatch):
    workspace = Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home")
    workspace.images.mkdir()
    for each in (IMPORT_RULES, WRONG_RECORDS):
        shutil.copy(Path(envbuild.__file__).parents[1] / "images" / each, workspace.images)
    rules = workspace.images / file
    text = rules.read_text()
    tools = SimpleNamespace(
        workspace=workspace,
        engine=None,
        matrix=SimpleNamespace(frameworks=()),
        index=SimpleNamespace(build_secrets=dict),
        on_progress=lambda _news: None,
    )
    lock = cast(Lock, SimpleNamespace(environment=SimpleNamespace(name="widget", frameworks=())))
    report = VerifyReport(name="widget", image="sha256:1", quick=False, seconds=0.0, problems=(), counts={}, notes=())
    monkeypatch.setattr(verify, "verify", lambda *_, **__: report)
    monkeypatch.setattr(host_apt, "build_secrets", dict)
    monkeypatch.setattr(image_checks.proofs, "prove_image", lambda *_, **__: None)

    def is_replayed() -> bool:
        return image_checks.verify_image(cast(Tools, tools), lock, "0" * 64, "sha256:1", replay=True).replayed

    assert [is_replayed(), is_replayed()] == [False, True]
    assert old in text
    rules.write_text(text.replace(old, new))
    assert [is_replayed(), is_replayed()] == [False, True]


@pytest.mark.parametrize("left_out", ["", "ORACLE", "ACC"])
def test_only_a_whole_test_proves_an_image(left_out, world, monkeypatch):
    whole = json.loads((Path(__file__).parents[1] / "data/report-pass.json").read_text())
    whole["checks"] = [each for each in whole["checks"] if each["id"] != left_out]
    world.report.write_text(json.dumps(whole))
    outcome = SmokeOutcome(status="pass", exit_code=0, sentence="", hint="", report=whole, paths={"json": world.report})
    proved, warned = [], []
    monkeypatch.setattr(smoketest, "run", lambda *_words, **_more: outcome)
    monkeypatch.setattr(image_checks.proofs, "prove_image", lambda *words, **_more: proved.append(words[-1]))
    monkeypatch.setattr(build, "read_record", lambda *_words: None)
    tools = SimpleNamespace(
        workspace=world.workspace,
        engine=SimpleNamespace(endpoint="unix:///engine"),
        on_progress=lambda news: news.warning and warned.append(news.message),
    )
    lock = cast(Lock, SimpleNamespace(environment=SimpleNamespace(name="widget", frameworks=("a",))))
    smoked = image_checks.smoke_image(cast(Tools, tools), lock, "0" * 64, "sha256:1", SmokeOptions(), replay=False)
    assert smoked.status == "pass" and proved == ([] if left_out else ["smoke-cpu"])
    assert [f"lacks the check {left_out}" in message for message in warned] == ([True] if left_out else [])


@pytest.mark.parametrize(("device", "is_kept"), [("cpu", True), (None, False)])
def test_the_reason_why_a_framework_could_not_be_tested_is_kept(device, is_kept, world, monkeypatch):
    report = json.loads((Path(__file__).parents[1] / "data/report-allow-cpu.json").read_text())
    report["mode"]["device"] = device
    world.report.write_text(json.dumps(report))
    words = "It computes only on GPUs."
    outcome = SmokeOutcome(
        status="inconclusive", exit_code=10, sentence=words, hint="", report=report, paths={"json": world.report}
    )
    kept = []
    monkeypatch.setattr(smoketest, "run", lambda *_words, **_more: outcome)
    monkeypatch.setattr(image_checks.proofs, "leave_open", lambda *words, why: kept.append((*words[1:], why)))
    tools = SimpleNamespace(
        workspace=world.workspace, engine=SimpleNamespace(endpoint="unix:///engine"), on_progress=lambda _news: None
    )
    lock = cast(Lock, SimpleNamespace(environment=SimpleNamespace(name="widget", frameworks=("a",))))
    image_checks.smoke_image(cast(Tools, tools), lock, "0" * 64, "sha256:1", SmokeOptions(), replay=False)
    assert kept == ([("widget", "0" * 64, "smoke-cpu", words)] if is_kept else [])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read: Expecting value"),
        (b"\xff", "cannot be read: 'utf-8'"),
        (b'{"schema": NaN}', "cannot be read: NaN is not JSON"),
        (b"[" * 10**6, "cannot be read: its values are nested too deeply"),
        (b"[]", "is not a smoke report"),
        (b"{}", "is not a smoke report"),
    ],
)
def test_a_file_of_a_user_that_is_no_report_is_named_and_not_to_be_deleted(content, words, tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError) as caught:
        image_checks.read_report(path)
    assert str(path) in caught.value.message and words in caught.value.message
    assert caught.value.hint == "To make one, run: envbuild smoke NAME"
