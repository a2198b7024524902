"""What the committed evidence claims of each environment can be had again: built from its lock, verified, trained on the CPU.

It follows the files below images/, so that a new recipe with its environment and evidence is proved here without a word.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from program import ROOT, Program, fresh_root, share_bases

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.prove]

EVIDENCE = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "images/evidence").glob("*.json"))}
TRAINED = [name for name, content in EVIDENCE.items() if "smoke-cpu" in {proof["kind"] for proof in content["proofs"]}]
OUT_OF_REACH = {"base-unreachable", "source-unreachable"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, engine_endpoint: str) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("committed")
    share_bases(folder / "home")
    root = fresh_root(folder / "root")
    shutil.copytree(ROOT / "images/environments", root / "images/environments")
    yield Program(root=root, home=folder / "home", environment={"DOCKER_HOST": engine_endpoint})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def image_of(program: Program) -> Iterator[list[str]]:
    """The tags to remove at the end: one image at a time is enough for a disk."""
    from envbuild.engine import connect
    from envbuild.workspace import Workspace

    tags: list[str] = []
    yield tags
    engine = connect(Workspace(root=program.root, output=program.root, home=program.home), program.env())
    for tag in tags:
        engine.remove_image(tag)


@pytest.mark.parametrize("name", TRAINED)
def test_a_committed_environment_passes_again(program: Program, image_of: list[str], name: str) -> None:
    of_gpu = json.loads((ROOT / f"images/environments/{name}/lock.json").read_text())["environment"]["cuda"] is not None
    answer = program.run("make", name, "--json", *(["--allow-cpu", "--expect", "cpu"] if of_gpu else []), timeout=3600)
    if answer.code == 7 and answer.document["error"]["code"] in OUT_OF_REACH:
        pytest.skip(answer.document["error"]["message"])
    document = answer.expect(0).document
    image_of += document["tags"]
    assert document["status"] == "pass"
    checks = {(check["id"], check["n"]): check for check in document["report"]["checks"]}
    judged = {n for (key, n), check in checks.items() if key in {"ORACLE", "WORK"} and check["status"] == "pass"}
    assert 1 in judged
    several = checks.get(("DEVICES", 2))
    assert 2 in judged or (several is not None and several["message"].startswith("does not apply: "))
    assert {proof["kind"] for proof in EVIDENCE[name]["proofs"]} >= {"locked", "rendered", "built", "verified", "smoke-cpu"}
