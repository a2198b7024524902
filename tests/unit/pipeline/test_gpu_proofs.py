"""`resolve --gpu` prefers what others proved on this GPU, among environments with the same releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild import codec, files
from envbuild.model.resolution import Resolution
from envbuild.pipeline import gathered_reports, gpu_proofs, proofs, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.gathered_reports import AcceptedReport, Gathered
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[3]
PROVED = "pytorch-1.12.1-cuda10.2-py39-debian11"  # locked; the matrix alone prefers Ubuntu for this request
CARD = "NVIDIA GeForce GTX 1080 Ti"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder, so that the matrix is compiled only once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def tools(home: Path) -> Iterator[Tools]:
    made = Tools(workspace=Workspace(root=ROOT, output=ROOT / "images", home=home))
    yield made
    made.workspace.gathered_file(PROVED).unlink(missing_ok=True)


def hold(tools: Tools, name: str, *told: tuple[str, str, str, str]) -> None:
    """Store reports about ``name``: GPU, capability, verdict and day of each."""
    subject = proofs.subject_of(tools, name)
    assert subject is not None
    reports = tuple(
        AcceptedReport(
            repository="h.example/r", digest="sha256:1", signer="somebody's key", status=status, kind="smoke-gpu", gpus=(gpu,),
            capabilities=(code,), driver="470.82", processor="", date=day, lock=subject.lock, rendering=subject.rendering,
            guest=subject.guest,
        )
        for gpu, code, status, day in told
    )  # fmt: skip
    files.write_atomic(tools.workspace.gathered_file(name), codec.dumps(Gathered(schema=1, name=name, reports=reports)))
    assert gathered_reports.held(tools, name) == reports


def answer(tools: Tools, *texts: str, **constraints: str) -> Resolution:
    return resolving.resolve_request(tools, texts, Constraints(**constraints))


def test_a_report_of_a_machine_with_different_gpus_proves_nothing(tools):
    hold(tools, PROVED, (CARD, "6.1", "pass", "2026-01-02"))
    (report,) = gathered_reports.held(tools, PROVED)
    (gpu,) = gpu_proofs.wanted(tools.matrix, "GTX 1080 Ti")
    assert gpu_proofs.is_about(tools.matrix, report, gpu)
    assert gpu_proofs.is_about(tools.matrix, replace(report, gpus=(CARD, CARD)), gpu)
    mixed = replace(report, gpus=("NVIDIA A100-SXM4-40GB", CARD), capabilities=("8.0", "6.1"))
    assert not gpu_proofs.is_about(tools.matrix, mixed, gpu)


@pytest.mark.parametrize("gpu", ["GTX 1080 Ti", "sm_61", "6.1"])
def test_what_was_proved_on_the_gpu_is_preferred_and_the_reason_says_so(tools, gpu):
    usual = answer(tools, "pytorch-1.12.1", gpu=gpu)
    assert usual.environment.name != PROVED
    hold(tools, PROVED, (CARD, "6.1", "pass", "2026-01-02"))
    found = answer(tools, "pytorch-1.12.1", gpu=gpu)
    assert found.environment.name == PROVED and found.request == usual.request
    reason = found.reasons[-1]
    told = {each.choice.partition(" ")[0]: each.because for each in found.reasons}
    assert told["python"] == told["os"] == "the proved image has it"
    assert CARD in reason.choice and usual.environment.name in reason.because and reason.source == "h.example/r@sha256:1"
    assert answer(tools, "pytorch-1.12.1").environment.name == answer(tools, "pytorch-1.12.1", driver="470.82").environment.name


@pytest.mark.parametrize(
    ("texts", "constraints"),
    [
        (("pytorch-1.12.1",), {"gpu": "Tesla P40"}),  # the same capability, another board
        (("pytorch-1.12.1",), {"gpu": "GTX 1080"}),
        (("pytorch-1.12.1",), {"gpu": "GTX 1080 Ti,Tesla V100"}),  # proved on one of the two
        (("pytorch-1.12.1",), {"gpu": "GTX 1080 Ti", "system": "ubuntu22.04"}),
        (("pytorch-1.12.1",), {"gpu": "GTX 1080 Ti", "python": "3.10"}),
        (("pytorch-1.12.1-cuda11",), {"gpu": "GTX 1080 Ti"}),
        (("pytorch-1",), {"gpu": "GTX 1080 Ti"}),  # a proof does not choose another release
        (("pytorch-1.12.1",), {}),
        (("pytorch-1.12.1-cpu",), {"gpu": "GTX 1080 Ti"}),
    ],
)
def test_a_proof_overrides_nothing_that_was_asked_for(tools, texts, constraints):
    usual = answer(tools, *texts, **constraints)
    hold(tools, PROVED, (CARD, "6.1", "pass", "2026-01-02"))
    assert answer(tools, *texts, **constraints) == usual


@pytest.mark.parametrize(
    "told",
    [
        [(CARD, "6.1", "fail", "2026-01-02")],
        [(CARD, "6.1", "inconclusive", "2026-01-02")],
        [(CARD, "6.1", "pass", "2026-01-02"), (CARD, "6.1", "fail", "2026-01-02")],
        [(CARD, "6.1", "pass", "2026-01-02"), (CARD, "6.1", "fail", "2026-02-01")],
    ],
)
def test_the_newest_verdict_counts(tools, told):
    hold(tools, PROVED, *told)
    assert answer(tools, "pytorch-1.12.1", gpu="GTX 1080 Ti").environment.name != PROVED


def test_a_failure_on_the_gpu_is_a_warning(tools):
    hold(tools, PROVED, (CARD, "6.1", "fail", "2026-01-02"))
    found = answer(tools, PROVED, gpu="GTX 1080 Ti")
    assert found.environment.name == PROVED
    assert any("failed" in each and CARD in each for each in found.warnings)
    hold(tools, PROVED, (CARD, "6.1", "fail", "2026-01-02"), (CARD, "6.1", "pass", "2026-02-01"))
    found = answer(tools, PROVED, gpu="GTX 1080 Ti")
    assert not any("failed" in each for each in found.warnings) and CARD in found.reasons[-1].choice


def test_a_report_about_an_older_lock_counts_no_more(tools):
    hold(tools, PROVED, (CARD, "6.1", "pass", "2026-01-02"))
    path = tools.workspace.gathered_file(PROVED)
    path.write_text(path.read_text().replace('"lock": "', '"lock": "0'))
    assert answer(tools, "pytorch-1.12.1", gpu="GTX 1080 Ti").environment.name != PROVED


def test_explain_names_the_preferred_environment(tools):
    hold(tools, PROVED, (CARD, "6.1", "pass", "2026-01-02"))
    found = resolving.explain_request(tools, ["pytorch-1.12.1"], Constraints(gpu="GTX 1080 Ti")).resolution
    assert found is not None and found.environment.name != PROVED
    assert any(f"`resolve` prefers {PROVED}" in each for each in found.warnings)
