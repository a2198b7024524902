"""One command composes several images straight into a registry: Debian's docker-registry."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import requests
from debian_registry import run_debians
from program import Program, own_program, share_bases, share_downloads

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

NAMES = ("opencv-4.10.0.84-cpu-py311-debian12", "opencv-5.0.0.93-cpu-py311-debian12")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def program(tmp_path: Path, engine: Engine) -> Program:
    share_bases(tmp_path / "home")
    share_downloads(tmp_path / "home")
    return own_program(tmp_path, {"DOCKER_HOST": engine.endpoint})


def test_several_images_are_composed_into_a_registry_by_one_command(program: Program, tmp_path: Path) -> None:
    """Layers that both images have are uploaded once."""
    for name in NAMES:
        program.run("lock", name, timeout=600).expect(0)
    with run_debians(tmp_path) as registry:
        command = ("build", *NAMES, "--to", f"{registry.host}/lab")
        document = program.run(*command, "--jobs", "1", "--json", timeout=1200).expect(0).document
        jsonschema.validate(document, json.loads(resources.files("envbuild.schemas").joinpath("batch.json").read_text()))
        assert [(each["name"], each["state"]) for each in document["environments"]] == [(name, "done") for name in NAMES]
        layers: list[set[str]] = []
        for each in document["environments"]:
            repository, _, tag = each["reference"].rpartition(":")
            assert repository == f"{registry.host}/lab" and tag.endswith("-unverified")
            got = requests.get(f"http://{registry.host}/v2/lab/manifests/{tag}", headers={"Accept": MANIFEST}, timeout=30)
            assert got.headers["Docker-Content-Digest"] == each["digest"]
            layers.append({layer["digest"].partition(":")[2] for layer in got.json()["layers"]})
        assert layers[0] & layers[1] and layers[0] != layers[1]
        uploads = registry.uploads()
        assert {uploads[digest] for digest in layers[0] | layers[1]} == {1}
        text = program.run(*command, timeout=600).expect(0).out
        assert all(each["reference"] in text for each in document["environments"])
        assert "Not verified." in text
