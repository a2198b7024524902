"""Reads a registry without envbuild's code, and judges whether its tags tell the truth."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
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
REMOVED = "application/vnd.envbuild.removed-tag.v1"  # the type of the empty document that a removed tag may name
_AGAIN = 5  # tags that never move, and are read again at each call
ACCEPT = ", ".join(f"application/vnd.oci.image.{kind}.v1+json" for kind in ("manifest", "index"))


class Judge:
    """Reads the registry without envbuild's code."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/v2/lab/dl"
        self._session = requests.Session()
        self._session.trust_env = False
        self.requests = 0  # how many documents and blobs were read
        self._fixed: dict[str, str] = {}  # the tags that never move, and were judged, with their digests
        self._turns = self._in_turn()
        self._empty: set[str] = set()  # the documents that replace the images of removed tags

    def _in_turn(self) -> Iterator[str]:
        """Yield the tags of ``_fixed`` again and again."""
        while True:
            yield from list(self._fixed)

    def get(self, path: str) -> requests.Response:
        self.requests += 1
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

    def require_truth(self, *, whole: bool = False) -> dict[str, str]:
        """Check that each tag names a complete image, and each moving tag an image with all its statements.

        Returns the digests by tag. A tag that never moves, and was judged before, is not read at each call: else the number of
        requests would grow with the square of the number of calls. Each call checks that all these tags still exist, and reads
        some of them again, in turn. The lists of statements count as such tags, too: the lists of images with moving tags are
        read at each call. With ``whole``, all tags are read again.
        """
        listed = self.tags()
        assert not (gone := self._fixed.keys() - {*listed}), f"tags that never move are gone: {sorted(gone)}"
        again = {*self._fixed} if whole else {next(self._turns) for _ in range(min(_AGAIN, len(self._fixed)))}
        found: dict[str, str] = {}
        for tag in listed:
            if tag in self._fixed and tag not in again:
                found[tag] = self._fixed[tag]
                continue
            found[tag] = self._judge(tag)
            if tag in self._fixed:
                assert found[tag] == self._fixed[tag], f"{tag} was moved"
            elif re.fullmatch(".*-[0-9a-f]{8}-[0-9a-f]{8}|release-.*|sha256-[0-9a-f]{64}", tag):
                self._fixed[tag] = found[tag]
        return {tag: digest for tag, digest in found.items() if digest}

    def is_fixed(self, tag: str) -> bool:
        """Whether the tag never moves, and was judged."""
        return tag in self._fixed

    def names_nothing(self, digest: str) -> bool:
        """Whether a tag with this digest was judged, and the document replaces the image of a removed tag."""
        return digest in self._empty

    def _judge(self, tag: str) -> str:
        """Judge one tag; return the digest of its document. For a list of statements, the digest is empty."""
        if re.fullmatch("sha256-[0-9a-f]{64}", tag):
            self.stated(tag.replace("-", ":"))
            return ""
        digest, document = self.document(tag)
        if "manifests" in document:  # a release; one that was killed before it was signed has no tag
            assert self.stated(digest) == {signing.SIGNED}, tag
            for member in document["manifests"]:
                assert self.stated(member["digest"]) >= KINDS, tag
            return digest
        for blob in (document["config"], *document["layers"]):
            answer = self._session.head(f"{self._base}/blobs/{blob['digest']}", timeout=60)
            assert (answer.status_code, int(answer.headers["Content-Length"])) == (200, blob["size"]), tag
        if document.get("artifactType") == REMOVED:
            self._empty.add(digest)
            assert {blob["size"] for blob in (document["config"], *document["layers"])} == {2}, f"{tag} is not empty"
        elif not re.fullmatch(".*-[0-9a-f]{8}-[0-9a-f]{8}", tag):
            assert self.stated(digest) >= KINDS, f"{tag} is on an image without its proofs"
        return digest
