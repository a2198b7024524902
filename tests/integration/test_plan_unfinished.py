"""`plan --against` names the images whose publication is not complete, and no other. `publish` completes them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from debian_registry import serve_debians
from killed_commands import publish_words, run_and_kill
from registry_judge import Judge
from stand_in_registry import Registry
from stood_in_stages import Stages, stand_in

from envbuild.attest import signing
from envbuild.cli import frame
from envbuild.pipeline import plan
from envbuild.pipeline.batch import Job
from envbuild.pipeline.tools import Tools

ONE, TWO = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"
FIXED, LIST = ".*-[0-9a-f]{8}-[0-9a-f]{8}", "sha256-[0-9a-f]{64}"
PROOFS = ["signature", "bill of materials", "verify", "smoke test"]


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """Stages whose images have the inputs of this checkout. So `plan` looks for these images."""
    stages = stand_in(tmp_path, monkeypatch, {ONE: "new", TWO: "new"})
    stages.inputs = inputs_of_checkout(stages)
    return stages


def inputs_of_checkout(stages: Stages) -> dict[str, str]:
    jobs = [Job(name=name, request=name) for name in (ONE, TWO)]
    return {each.name: each.inputs for each in plan.candidates(Tools(stages.workspace), jobs)[0]}


@pytest.fixture
def debians(tmp_path: Path) -> Iterator[str]:
    with serve_debians(tmp_path) as address:
        yield address


def planned(host: str, *names: str) -> dict[str, list[tuple[str, list[str]]]]:
    """The reasons of the plan, with what the images lack."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert frame.run(["plan", *names, "--against", f"{host}/lab/dl", "--json"]) == 0
    document = json.loads(out.getvalue())
    found = {
        each["name"]: [(reason["input"], reason["lacks"]) for reason in each["reasons"]]
        for part in document["parts"]
        for each in part["environments"]
    }
    assert sorted([*found, *document["unchanged"]]) == sorted(names)
    return found


def unfinished(*lacks: str) -> dict[str, list[tuple[str, list[str]]]]:
    return {ONE: [("unfinished", [*lacks])]}


def publish_older(stages: Stages, *commands: list[str]) -> None:
    """Publish images of older inputs, and then let the stages make images of the inputs of the checkout again."""
    stages.contents |= dict.fromkeys((ONE, TWO), "old")
    stages.inputs = {}
    for words in commands:
        assert run_and_kill(words) == 0
    stages.contents |= dict.fromkeys((ONE, TWO), "new")
    stages.inputs = inputs_of_checkout(stages)


@pytest.mark.parametrize("has_older", [False, True], ids=["first image", "newer image"])
@pytest.mark.parametrize(
    ("moment", "lacks"),
    [(FIXED, [*PROOFS, f"tag {ONE}"]), (LIST, [f"tag {ONE}"]), (f"{ONE}-[0-9a-f]{{8}}", [f"tag {ONE}"])],
    ids=["before the statements", "before the moving tags", "between the moving tags"],
)
def test_what_a_killed_publisher_left_is_planned_until_it_is_complete(stages, debians, tmp_path, has_older, moment, lacks):
    words = publish_words(debians, tmp_path, ONE)
    if has_older:
        publish_older(stages, words)
    assert run_and_kill(words, after_write=moment) == -signal.SIGKILL
    assert planned(debians, ONE) == unfinished(*lacks)
    assert run_and_kill(words) == 0
    assert planned(debians, ONE) == {}
    Judge(debians).require_truth(whole=True)


def is_complete(registry: Registry) -> bool:
    """Whether the registry has the image with all its tags and statements, and nothing is left to do."""
    tags = [found for found in registry.manifests if found.startswith(f"lab/dl:{ONE}")]
    if len(tags) != 3 or len({registry.manifests[tag] for tag in tags}) != 1:
        return False
    (lists,) = [found for found in registry.manifests if re.fullmatch(f"lab/dl:{LIST}", found)]
    return len(json.loads(registry.manifests[lists])["manifests"]) == 6


@pytest.mark.prove
def test_after_a_kill_at_any_request_the_plan_is_empty_exactly_if_nothing_is_left_to_do(stages, registry: Registry, tmp_path):
    words, found = publish_words(registry.host, tmp_path, ONE), list[tuple[int, bool]]()
    for number in range(1, 80):
        registry.manifests.clear()
        registry.blobs.clear()
        ended = run_and_kill(words, after_requests=number)
        found.append((ended, is_complete(registry)))
        assert (planned(registry.host, ONE) == {}) == found[-1][1], number
        assert run_and_kill(words) == 0 and is_complete(registry), number
        assert planned(registry.host, ONE) == {}, number
        if ended == 0:
            break
    assert ended == 0 and (-signal.SIGKILL, True) in found and (-signal.SIGKILL, False) in found


def test_another_machine_completes_the_publication_if_it_makes_the_same_image(stages, registry: Registry, tmp_path, capfd):
    words = publish_words(registry.host, tmp_path, ONE)
    assert run_and_kill(words, after_write=FIXED) == -signal.SIGKILL
    shutil.rmtree(stages.workspace.home)
    stages.contents[ONE] = "made by an engine that writes the time of the build"
    assert run_and_kill(words) == 11 and "is already a different image" in capfd.readouterr().err
    assert planned(registry.host, ONE) == unfinished(*PROOFS, f"tag {ONE}")
    shutil.rmtree(stages.workspace.home)
    stages.contents[ONE] = "new"
    assert run_and_kill(words) == 0
    assert planned(registry.host, ONE) == {}


@pytest.mark.parametrize("knows_referrers", [False, True], ids=["list by tag", "referrers"])
@pytest.mark.parametrize(
    ("refused", "lacks"),
    [
        ("bundle", [*PROOFS, f"tag {ONE}"]),
        (ONE, [f"tag {ONE}"]),
    ],
)
def test_what_a_registry_refused_is_planned_until_it_is_complete(
    stages, registry: Registry, tmp_path, knows_referrers, refused, lacks
):
    """The registry refuses the first statement, or a moving tag."""
    registry.knows_referrers = knows_referrers

    def refuse(request: str) -> str:
        method, path = request.split()
        part = path.partition("/manifests/")[2]
        is_statement = method == "PUT" and part.startswith("sha256")
        return "403" if method == "PUT" and (part == refused or (refused == "bundle" and is_statement)) else ""

    registry.meddle = refuse
    words = publish_words(registry.host, tmp_path, ONE)
    assert run_and_kill(words) == 11
    assert planned(registry.host, ONE) == unfinished(*lacks)
    registry.meddle = None
    uploads = registry.count("POST", "/blobs/uploads/")
    assert run_and_kill(words) == 0
    assert planned(registry.host, ONE) == {}
    assert registry.count("POST", "/blobs/uploads/") - uploads <= 8, "statements only, and no layer"


def test_an_image_that_was_only_pushed_is_planned_and_then_proved(stages, registry: Registry, tmp_path):
    stages.made(None, [ONE])
    assert run_and_kill(["push", ONE, "--to", f"{registry.host}/lab/dl", "-q"]) == 0
    assert planned(registry.host, ONE) == unfinished(*PROOFS)
    registry.asked.clear()
    assert run_and_kill(publish_words(registry.host, tmp_path, ONE)) == 0
    tags = [line for line in registry.asked if re.fullmatch("PUT .*/manifests/(?!sha256).*", line)]
    assert tags == [], "the image had all its tags"
    assert planned(registry.host, ONE) == {}


def test_a_release_is_planned_until_its_tags_move_and_never_after_a_rollback(stages, debians, tmp_path):
    held = [publish_words(debians, tmp_path, name, "--hold-tags") for name in (ONE, TWO)]
    publish_older(stages, *held, publish_words(debians, tmp_path, ONE, TWO, "--release", "one"))
    for each in held:
        assert run_and_kill(each) == 0
    both = {name: [("unfinished", [f"tag {name}"])] for name in (ONE, TWO)}
    assert planned(debians, ONE, TWO) == both
    words = publish_words(debians, tmp_path, ONE, TWO, "--release", "two")
    assert run_and_kill(words, after_write="release") == -signal.SIGKILL
    assert planned(debians, ONE, TWO) == both, "the release is recorded, but no tag of an image has moved"
    assert run_and_kill(words) == 0
    assert planned(debians, ONE, TWO) == {}
    assert run_and_kill(publish_words(debians, tmp_path, "--rollback")) == 0
    assert planned(debians, ONE, TWO) == {}
    Judge(debians).require_truth(whole=True)


def test_an_image_whose_tag_somebody_moved_away_is_planned(stages, registry: Registry, tmp_path):
    """For example, a change of a lock was published and then taken back in git."""
    words = publish_words(registry.host, tmp_path, ONE)
    assert run_and_kill(words) == 0
    publish_older(stages, words)
    assert planned(registry.host, ONE) == unfinished(f"tag {ONE}")
    assert run_and_kill(words) == 0
    assert planned(registry.host, ONE) == {}


def test_statements_count_even_if_the_list_of_another_program_lacks_their_types(stages, registry: Registry, tmp_path):
    words = publish_words(registry.host, tmp_path, ONE)
    assert run_and_kill(words) == 0
    (lists,) = [reference for reference in registry.manifests if re.fullmatch(f"lab/dl:{LIST}", reference)]
    told = json.loads(registry.manifests[lists])
    for entry in told["manifests"]:
        del entry["annotations"]
    registry.manifests[lists] = json.dumps(told, separators=(",", ":")).encode()
    assert planned(registry.host, ONE) == {}
    told["manifests"] = [entry for entry in told["manifests"] if not is_about(registry, entry["digest"], signing.SMOKE)]
    registry.manifests[lists] = json.dumps(told, separators=(",", ":")).encode()
    assert planned(registry.host, ONE) == unfinished("smoke test")


def is_about(registry: Registry, digest: str, kind: str) -> bool:
    content = json.loads(registry.manifests[f"lab/dl:{digest}"])
    return bool(content["annotations"][signing.ABOUT] == kind)
