"""Reads a registry without envbuild's code, and judges whether its tags tell the truth."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import requests

from envbuild.attest import signing

KINDS = {
    signing.SIGNED,
    signing.SBOM,
    signing.PROVENANCE,
    signing.VERIFIED,
    signing.SMOKE,
}
ACCEPT = ", ".join(f"application/vnd.oci.image.{kind}.v1+json" for kind in ("manifest", "index"))


class Judge:
    """Reads the registry without envbuild's code."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/v2/lab/dl"
        self._session = requests.Session()
        self._session.trust_env = False

    def get(self, path: str) -> requests.Response:
        return self._session.get(f"{self._base}/{path}", headers={"Accept": ACCEPT}, timeout=60)

    def tags(self) -> list[str]:
        return self.get("tags/list").json().get("tags") or []

    def document(self, reference: str) -> tuple[str, dict[str, Any]]:
        answer = self.get(f"manifests/{reference}")
        assert answer.status_code == 200, f"{reference}: {answer.text}"
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        assert answer.headers["Docker-Content-Digest"] == digest
        return digest, answer.json()

    def stated(self, digest: str) -> set[str]:
        """The kinds of statements about an image. Checks that each is about this very image."""
        tag = digest.replace(":", "-")
        if self.get(f"manifests/{tag}").status_code == 404:
            return set()
        kinds = set()
        for entry in self.document(tag)[1]["manifests"]:
            _, artifact = self.document(entry["digest"])
            assert artifact["subject"]["digest"] == digest, "the list of another image"
            (layer,) = artifact["layers"]
            content = self.get(f"blobs/{layer['digest']}").content
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == layer["digest"]
            statement = json.loads(base64.b64decode(json.loads(content)["dsseEnvelope"]["payload"]))
            assert [f"sha256:{each['digest']['sha256']}" for each in statement["subject"]] == [digest]
            kinds.add(statement["predicateType"])
        return kinds

    def require_truth(self) -> dict[str, str]:
        """Check that each tag names a complete image, and each moving tag an image with all its statements.

        Returns the digests by tag.
        """
        found = {}
        for tag in self.tags():
            if re.fullmatch("sha256-[0-9a-f]{64}", tag):
                self.stated(tag.replace("-", ":"))
                continue
            digest, document = self.document(tag)
            found[tag] = digest
            if "manifests" in document:  # a release; one that was killed before it was signed has no tag
                assert self.stated(digest) == {signing.SIGNED}, tag
                for member in document["manifests"]:
                    assert self.stated(member["digest"]) >= KINDS, tag
                continue
            for blob in (document["config"], *document["layers"]):
                answer = self._session.head(f"{self._base}/blobs/{blob['digest']}", timeout=60)
                assert (answer.status_code, int(answer.headers["Content-Length"])) == (200, blob["size"]), tag
            if not re.fullmatch(".*-[0-9a-f]{8}-[0-9a-f]{8}", tag):
                assert self.stated(digest) >= KINDS, f"{tag} is on an image without its proofs"
        return found
