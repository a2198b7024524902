"""Make environments from a bundle on a machine without a network, with an empty cache and a separate engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from program import ROOT, Program, fresh_root, share_bases

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.prove]

NAMES = ("opencv-5.0.0.93-cpu-py311-debian12", "chainer-4.3.1-cpu-py27-debian11")
PATIENCE_S = 4 * 3600  # on a slow machine compiling packages takes an hour
# A namespace with only the loopback device, which Docker needs. The engine's mounts stay in the namespace.
APART = ("unshare", "--net", "--mount", "--propagation=slave", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("online")
    share_bases(folder / "home")
    root = fresh_root(folder / "root")
    for name in NAMES:
        shutil.copytree(ROOT / "images/environments" / name, root / "images/environments" / name)
    return Program(root=root, home=folder / "home")


@pytest.fixture(scope="module")
def bundle(online: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("carried") / "bundle"
    online.run("bundle", *NAMES, "-o", str(folder), timeout=PATIENCE_S).expect(0)
    return folder


@pytest.fixture
def offline(online: Program, root_machine: None, tmp_path: Path) -> Iterator[Program]:
    made = replace(online, home=tmp_path / "home", prefix=APART, environment={"DOCKER_HOST": "<unset>"})
    yield made
    made.run("engine", "down", "--purge").expect(0)


@pytest.mark.parametrize(("name", "builder"), [(NAMES[0], "docker"), (NAMES[0], "compose"), (NAMES[1], "docker")])
def test_an_environment_is_made_from_a_bundle_alone(offline: Program, bundle: Path, name: str, builder: str):
    answer = offline.run(
        "make", "--offline", str(bundle), name, "--builder", builder, "--start-engine", "--json", timeout=PATIENCE_S
    ).expect(0)
    assert answer.document["status"] == "pass"
    evidence = json.loads((offline.home / f"evidence/{name}.json").read_text())
    assert {"built", "verified", "smoke-cpu"} <= {proof["kind"] for proof in evidence["proofs"]}


def test_several_environments_are_made_at_once_from_a_bundle_alone(online: Program, offline: Program, tmp_path: Path):
    """Each environment has its own request, and one has two. Names are resolved and everything is made without a network."""
    other = "opencv-4.5.1.48-cpu-py39-debian11"
    online.run("lock", other).expect(0)
    folder = tmp_path / "bundle"
    online.run("bundle", NAMES[0], other, "-o", str(folder), timeout=PATIENCE_S).expect(0)
    words = ("make", "--offline", str(folder), "opencv-4.5.1-cpu-py39-debian11", "opencv-5-cpu", NAMES[0], "--start-engine")
    made = offline.run(*words, "--json", "--keep-going", timeout=PATIENCE_S).expect(0).document["environments"]
    assert [(each["name"], each["state"], each["status"]) for each in made] == [
        (other, "done", "pass"), (NAMES[0], "done", "pass"),
    ]  # fmt: skip
    assert {"envbuild:opencv-5-cpu", f"envbuild:{NAMES[0]}"} <= set(made[1]["tags"])
    again = offline.run(*words, "--json").expect(0).document["environments"]
    assert [each["state"] for each in again] == ["kept", "kept"]
    refused = offline.run("make", "--offline", str(folder), NAMES[0], NAMES[1], "--json").expect(7)
    assert refused.document["error"]["code"] == "not-in-bundle"


def test_what_the_bundle_lacks_is_named_before_anything_is_built(offline: Program, bundle: Path, tmp_path: Path):
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    manifest = json.loads((bundle / "bundle.json").read_text())
    wheel = next(file for file in manifest["files"] if file["name"].startswith("numpy-"))
    (damaged / "files" / wheel["sha256"]).unlink()
    doctor = offline.run("doctor", "--offline", str(damaged), "--json").expect(5).document
    assert [wheel["name"] in str(each["lacks"]) for each in doctor["environments"] if not each["ok"]] == [True]
    words = ["--offline", str(damaged), "--start-engine", "--json"]
    broken = next(each["name"] for each in doctor["environments"] if not each["ok"])
    error = offline.run("build", broken, *words).expect(7).document["error"]
    assert (error["code"], [problem["where"] for problem in error["problems"]]) == ("not-in-bundle", [wheel["name"]])
    assert offline.run("build", "tf-2.21.0-cpu-py311-debian12", *words).expect(7).document["error"]["code"] == "not-in-bundle"
