"""Bills of materials are valid and complete, and the same for the same lock."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from render_locks import ALL

from envbuild import sbom
from envbuild.lock import lock_file
from envbuild.model.lock import Bootstrap, DebianPackage, Missing


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_bill_is_valid_and_names_every_file(name: str) -> None:
    lock = ALL[name]()
    text = sbom.dumps(lock, lock_file.digest(lock))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    hashes = {each["content"] for part in document["components"] for each in part.get("hashes", ())}
    pinned = [artifact.sha256 for prefix in lock.prefixes for artifact in prefix.installed]
    pinned += [package.sha256 for package in (lock.base.bootstrap.packages if lock.base.bootstrap else ())]
    assert hashes >= set(pinned)
    names = {part["name"] for part in document["components"]}
    assert names >= {package.name for package in lock.environment.base.packages}
    build_only = {tool.name for prefix in lock.prefixes for tool in prefix.build_artifacts}
    build_only -= {artifact.name for prefix in lock.prefixes for artifact in prefix.artifacts}
    assert not names & build_only, "what only the build needs is not in the image"


def test_the_same_lock_gives_the_same_bytes_and_another_lock_another_number() -> None:
    lock = ALL["cpu"]()
    text = sbom.dumps(lock, lock_file.digest(lock))
    assert text == sbom.dumps(lock, lock_file.digest(lock))
    assert "timestamp" not in json.loads(text)["metadata"]
    assert json.loads(text)["serialNumber"] != json.loads(sbom.dumps(lock, "0" * 64))["serialNumber"]


def test_what_is_not_pinned_is_said() -> None:
    lock = replace(ALL["cpu"](), missing=(Missing(what="a wheel", why="its index did not answer"),))
    properties = json.loads(sbom.dumps(lock, lock_file.digest(lock)))["metadata"]["component"]["properties"]
    assert {"name": "envbuild:not-pinned", "value": "a wheel: its index did not answer"} in properties


def test_of_an_image_every_package_of_the_distribution_is_named_and_what_the_lock_does_not_pin_is_marked() -> None:
    lock = ALL["cpu"]()
    pinned = DebianPackage(name="zlib1g", version="1:1.2", sha256="a" * 64)
    bootstrap = Bootstrap(suite="bookworm", architecture="amd64", variant="minbase", packages=(pinned,))
    lock = replace(lock, base=replace(lock.base, bootstrap=bootstrap))
    packages = [(pinned.name, pinned.version, "amd64"), ("tini", "0.19-1", "all")]
    bill = json.loads(sbom.dumps(lock, "0" * 64, sbom.Built(image="sha256:1", packages=packages)))
    debs = {each["name"]: each for each in bill["components"] if each.get("purl", "").startswith("pkg:deb/")}
    assert sorted(debs) == sorted([pinned.name, "tini"])
    assert debs[pinned.name]["hashes"][0]["content"] == pinned.sha256
    assert debs["tini"]["properties"] == [{"name": "envbuild:pinned", "value": "no"}]
    assert "arch=all" in debs["tini"]["purl"]
    assert {"name": "envbuild:image", "value": "sha256:1"} in bill["metadata"]["component"]["properties"]
    assert bill["serialNumber"] != json.loads(sbom.dumps(lock, "0" * 64))["serialNumber"]
