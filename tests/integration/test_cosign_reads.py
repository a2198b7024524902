"""cosign accepts every statement that `publish` attaches, and refuses each with another key; envbuild reads those of cosign."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from debian_registry import serve_debians
from signing import write_pair
from stood_in_stages import stand_in

from envbuild.attest import signing
from envbuild.cli import frame
from envbuild.pipeline import own_images

ONE = "opencv-5.0.0.93-cpu-py311-debian12"
TYPES = {
    signing.SBOM: "cyclonedx", signing.PROVENANCE: "slsaprovenance1", signing.OPENVEX: "openvex",
    signing.AUDIT: signing.AUDIT, signing.LICENCES: signing.LICENCES, signing.VERIFIED: signing.VERIFIED,
    signing.SMOKE: signing.SMOKE,
}  # fmt: skip
ADVISORY = {
    "id": "TEST-1", "modified": "2026-01-01T00:00:00Z", "summary": "made up",
    "affected": [{
        "package": {"ecosystem": "PyPI", "name": "numpy"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}],
    }],
}  # fmt: skip


@pytest.fixture
def cosign(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run cosign with a home folder of its own, and an empty password for its keys."""
    env = os.environ | {"HOME": str(tmp_path), "COSIGN_PASSWORD": ""}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = ["cosign", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, env=env, cwd=tmp_path)

    return run


@pytest.mark.prove
@pytest.mark.judges("cosign", "docker-registry")
def test_cosign_accepts_each_statement(tmp_path, monkeypatch, capsys, cosign):
    stand_in(tmp_path, monkeypatch, {ONE: "first"})
    (tmp_path / "osv").mkdir()
    (tmp_path / "osv/TEST-1.json").write_text(json.dumps(ADVISORY))
    private, public = write_pair(tmp_path)
    other = write_pair(tmp_path, "other")[1]

    with serve_debians(tmp_path) as host:
        to = f"{host}/lab/dl"
        words = ["publish", ONE, "--to", to, "--key", str(private), "--database", str(tmp_path / "osv"), "--json"]
        assert frame.run(words) == 0
        told = json.loads(capsys.readouterr().out)["published"]
        assert told["attached"] == 8
        image = f"{to}@{told['digest']}"
        common = ["--insecure-ignore-tlog=true", "--allow-insecure-registry"]
        assert cosign("verify", "--key", str(public), *common, image).returncode == 0
        for kind, name in TYPES.items():
            done = cosign("verify-attestation", "--key", str(public), "--type", name, *common, image)
            assert done.returncode == 0, (kind, done.stderr)
            payload = json.loads(base64.b64decode(json.loads(done.stdout.splitlines()[0])["payload"]))
            assert payload["predicateType"] == kind
            refused = cosign("verify-attestation", "--key", str(other), "--type", name, *common, image)
            assert refused.returncode != 0
            if kind == signing.OPENVEX:
                assert payload["predicate"]["statements"][0]["vulnerability"]["name"] == "TEST-1"
                assert "Not checked" in payload["predicate"]["tooling"]
                (product,) = payload["predicate"]["statements"][0]["products"]
                assert product["@id"] == f"pkg:oci/dl@{told['digest'].replace(':', '%3A')}"
        assert frame.run(words) == 0
        assert json.loads(capsys.readouterr().out)["published"]["attached"] == 0, "the same audit is stated once"
        assert frame.run(["publish", ONE, "--to", to, "--key", str(private), "--release", "r1", "-q"]) == 0
        done = cosign("verify", "--key", str(public), *common, f"{to}:release-r1")
        assert done.returncode == 0, done.stderr


@pytest.mark.prove
@pytest.mark.judges("cosign", "docker-registry")
def test_a_statement_that_cosign_made_is_accepted(tmp_path, monkeypatch, capsys, cosign):
    stages = stand_in(tmp_path, monkeypatch, {ONE: "first"})
    fixed = stages.made(None, [ONE]).record.tags[2].rpartition(":")[2]
    monkeypatch.setattr(own_images.OwnImage, "fixed", property(lambda _self: fixed))
    ours, theirs = write_pair(tmp_path), write_pair(tmp_path, "theirs")
    assert cosign("import-key-pair", "--key", str(theirs[0]), "--output-key-prefix", "cosigns").returncode == 0
    (tmp_path / "predicate.json").write_text('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": []}')
    with serve_debians(tmp_path) as host:
        to = f"{host}/lab/dl"
        assert frame.run(["publish", ONE, "--to", to, "--key", str(ours[0]), "--json"]) == 0
        digest = json.loads(capsys.readouterr().out)["published"]["digest"]
        words = ["--predicate", "predicate.json", "--type", "cyclonedx", "--tlog-upload=false", "--use-signing-config=false"]
        key = ["--key", "cosigns.key", "--allow-insecure-registry", "-y"]
        done = cosign("attest", *words, *key, f"{to}@{digest}")
        assert done.returncode == 0, done.stderr
        assert frame.run(["evidence", ONE, "--from", to, "--key", str(theirs[1]), "--json"]) == 0
        (gathered,) = json.loads(capsys.readouterr().out)["gathered"]
        accepted = [each["kind"] for each in gathered["statements"] if each["verdict"] == "accepted"]
        assert accepted == [signing.SBOM], gathered
