"""The guest trains in real containers, and the host judges: pass, fail, inconclusive, hang, killed, silent, stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import smoke_toy
from report_files import stored_outcome
from smoke_toy import ADAPTER, Toy, derive

from envbuild import smoketest
from envbuild.engine.client import Engine
from envbuild.errors import SmokeFailedError, TimedOutError, UnknownNameError, UsageError
from envbuild.model.progress import Progress, ignore_progress
from envbuild.smoketest import SmokeOptions
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]

SHORT = ("--phases", "oracle", "--stall", "6", "--stall-first", "20")
PUT_ADAPTER = "COPY --chmod=644 toy.py /opt/envbuild/smoke/adapters/toy.py"


@pytest.fixture(scope="module")
def toy(engine: Engine, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    made = smoke_toy.make(engine, workspace, tmp_path_factory.mktemp("smoke"))
    yield made
    smoke_toy.remove(engine, made)


def with_adapter(engine: Engine, toy: Toy, folder: Path, body: str) -> str:
    """The toy's image with an adapter whose class ends with ``body``."""
    return derive(engine, toy, folder, PUT_ADAPTER, files={"toy.py": ADAPTER + body})


def containers(engine: Engine) -> int:
    """The number of containers of this process. Another run may use the same engine."""
    found = engine.client.containers.list(all=True, filters={"label": "org.envbuild.owner"})
    return sum(f"/{os.getpid()}@" in container.labels["org.envbuild.owner"] for container in found)


def check(outcome: smoketest.SmokeOutcome, key: str, n: int | None = None) -> str:
    return next(c["status"] for c in outcome.report["checks"] if c["id"] == key and c["n"] == n)


def test_a_sound_image_passes_with_every_format_written(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    seen: list[Progress] = []
    options = SmokeOptions(arguments=("--rounds", "5", "--round-seconds", "0.1"))
    outcome = smoketest.run(engine, toy.tag, toy.lock, options, tmp_path, seen.append)
    assert (outcome.status, outcome.exit_code) == ("pass", 0), outcome.sentence
    assert outcome.report["environment"]["name"] == toy.lock.environment.name
    assert outcome.report["image"] == {"ref": toy.tag, "id": toy.image}
    assert [run["n"] for run in outcome.report["runs"]] == [2]  # one worker is timed in the rounds of two workers
    assert all(run["images_per_s"]["solo"] > 0 for run in outcome.report["runs"])
    assert {training["n"] for training in outcome.report["training"]} == {1, 2}
    assert all(training["accuracy"] >= 0.97 for training in outcome.report["training"])
    assert json.loads(outcome.paths["json"].read_bytes()) == outcome.report
    assert outcome.paths["html"].read_text().count("<svg") == 8  # pictures: four of speed, two of training, bandwidth, time
    assert "2 workers" in outcome.paths["markdown"].read_text() or "| 2 |" in outcome.paths["markdown"].read_text()
    suite = ElementTree.fromstring(outcome.paths["junit"].read_bytes())[0]
    assert suite.attrib["failures"] == suite.attrib["errors"] == "0"
    assert any("2 workers" in news.message for news in seen)  # progress was reported during the run
    assert stored_outcome(tmp_path) == outcome
    assert containers(engine) == 0


def test_a_damaged_file_of_data_reaches_the_container_and_fails_there(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mnist.npz").write_bytes(b"not what it says")
    options = SmokeOptions(arguments=("--phases", "train"), workload="mnist", data=str(tmp_path / "data"))
    outcome = smoketest.run(engine, toy.tag, toy.lock, options, tmp_path / "out")
    assert outcome.status == "fail"
    assert check(outcome, "DATA") == "fail"
    assert "mnist.npz has 16 bytes instead of 11490434" in outcome.sentence
    assert not outcome.report["training"]


def test_replicas_that_do_not_exchange_fail(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    body = """
    def average(self, flat):
        return flat
"""
    image = with_adapter(engine, toy, tmp_path / "apart", body)
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("fail", 9)
    assert check(outcome, "ORACLE", 1) == "pass" and check(outcome, "ORACLE", 2) == "fail"
    assert check(outcome, "REPLICA", 2) == "fail"
    assert outcome.sentence and outcome.hint


def test_a_framework_that_cannot_be_imported_fails(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    body = """
    def setup(self, ctx):
        import no_such_framework
"""
    image = with_adapter(engine, toy, tmp_path / "unimportable", body)
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("fail", 9)
    assert check(outcome, "IMPORT", 1) == "fail" and "no_such_framework" in outcome.sentence


def test_a_gpu_image_without_a_gpu_is_inconclusive_on_the_cpu_too_unless_that_is_expected(
    engine: Engine, toy: Toy, tmp_path: Path
) -> None:
    lock = smoke_toy.for_gpus(toy.lock)
    body = """
    def versions(self):
        return dict(super(Adapter, self).versions(), cuda_build='13.0')
"""
    files = {"toy.py": ADAPTER + body, "lock.json": smoke_toy.text_of(lock)}
    put_lock = "COPY --chmod=644 lock.json /opt/envbuild/lock.json"
    image = derive(engine, toy, tmp_path / "gpu", PUT_ADAPTER, put_lock, files=files)
    info = engine.image(image)
    assert info is not None
    trial = smoketest.Trial(
        engine=engine, image=image, info=info, lock=lock, options=SmokeOptions(), on_progress=ignore_progress
    )
    if smoketest.gpus_to_use(trial):
        pytest.skip("this machine has a GPU")
    plain = smoketest.run(engine, image, lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (plain.status, plain.exit_code) == ("inconclusive", 10)
    assert "GPU" in plain.sentence and plain.hint
    assert ElementTree.fromstring(plain.paths["junit"].read_bytes())[0].attrib["skipped"] != "0"
    allowed = smoketest.run(engine, image, lock, SmokeOptions(arguments=SHORT, allow_cpu=True), tmp_path / "out")
    assert (allowed.status, allowed.exit_code) == ("inconclusive", 10)
    assert check(allowed, "ORACLE", 2) == "pass"
    assert "A GPU image was tested on the CPU" in allowed.paths["html"].read_text()
    expected = SmokeOptions(arguments=SHORT, allow_cpu=True, expect="cpu")
    assert smoketest.run(engine, image, lock, expected, tmp_path / "out").exit_code == 0
    missed = smoketest.run(engine, image, lock, SmokeOptions(arguments=SHORT, expect="gpu"), tmp_path / "out")
    assert (missed.status, missed.exit_code) == ("fail", 9)


def test_a_worker_that_hangs_is_a_failure_that_names_it(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    body = """
    def step(self, handle, batch, lr=None):
        import time
        if self.ctx.rank == 1:
            time.sleep(3600)
        return super(Adapter, self).step(handle, batch, lr)

    def setup(self, ctx):
        self.ctx = ctx
        super(Adapter, self).setup(ctx)
"""
    image = with_adapter(engine, toy, tmp_path / "hangs", body)
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("fail", 9)
    assert check(outcome, "HANG", 2) == "fail" and "rank 1" in outcome.sentence
    assert containers(engine) == 0


def test_a_killed_worker_is_a_failure_and_a_killed_guest_an_error(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    body = """
    def step(self, handle, batch, lr=None):
        import os, signal
        os.kill(%s, signal.SIGKILL)
"""
    worker = with_adapter(engine, toy, tmp_path / "worker", body % "os.getpid()")
    outcome = smoketest.run(engine, worker, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("fail", 9) and "SIGKILL" in outcome.sentence
    guest = with_adapter(engine, toy, tmp_path / "guest", body % "os.getppid()")
    outcome = smoketest.run(engine, guest, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("error", 9)
    assert "was killed by SIGKILL" in outcome.sentence
    assert stored_outcome(tmp_path / "out") == outcome


@pytest.mark.parametrize("answer", ["", "{", '{"schema": "envbuild-smoke/1", "status": "pass", "exit_code": 0, "checks": []}'])
def test_a_missing_or_invalid_report_is_an_error_whatever_the_exit_code(
    engine: Engine, toy: Toy, tmp_path: Path, answer: str
) -> None:
    script = f"#!/bin/sh\necho last words\n{f'''printf %s '{answer}' > $3''' if answer else ''}\nexit 0\n"
    put = "COPY --chmod=755 envbuild-smoke /usr/local/bin/envbuild-smoke"
    image = derive(engine, toy, tmp_path / f"liar{len(answer)}", put, files={"envbuild-smoke": script})
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(), tmp_path / "out")
    assert (outcome.status, outcome.exit_code) == ("error", 9)
    assert "last words" in outcome.report["logs"]["container"]


def test_any_user_id_will_do(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    image = derive(engine, toy, tmp_path / "anybody", "USER 54321:0")
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(arguments=SHORT), tmp_path / "out")
    assert outcome.exit_code == 0, outcome.sentence


def test_the_users_limit_stops_it_with_a_report_and_no_container(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TimedOutError) as raised:
        smoketest.run(engine, toy.tag, toy.lock, SmokeOptions(timeout_s=3), tmp_path)
    assert raised.value.exit_code == 124 and time.monotonic() - began < 120
    stored = stored_outcome(tmp_path)
    assert stored is not None and stored.status == "error" and "time limit of 3 s" in stored.sentence
    assert containers(engine) == 0


def test_ctrl_c_leaves_no_container_and_the_last_verdict_as_it_was(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    before = smoketest.run(engine, toy.tag, toy.lock, SmokeOptions(arguments=SHORT), tmp_path)

    running: list[int] = []

    def interrupt(news: Progress) -> None:
        if "oracle" in news.message:
            running.append(containers(engine))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smoketest.run(engine, toy.tag, toy.lock, SmokeOptions(arguments=SHORT), tmp_path, interrupt)
    assert running == [1] and containers(engine) == 0
    assert stored_outcome(tmp_path) == before


def test_wrong_arguments_are_told_in_the_guests_words(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--min-speedup"):
        smoketest.run(engine, toy.tag, toy.lock, SmokeOptions(min_speedup="fast"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_image_without_the_guest_says_so(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    bare = derive(engine, toy, tmp_path / "bare", "RUN rm /usr/local/bin/envbuild-smoke")
    for image in (bare, toy.base):  # with an init, which exits with 127, and without one, where the engine reports the error
        with pytest.raises(SmokeFailedError) as raised:
            smoketest.run(engine, image, toy.lock, SmokeOptions(), tmp_path / "out")
        assert raised.value.code == "no-guest"


def test_an_image_that_is_not_there_is_named(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no-such-image"):
        smoketest.run(engine, "envbuild-test/no-such-image:1", replace(toy.lock), SmokeOptions(), tmp_path)
