"""Known vulnerabilities as OpenVEX."""

from __future__ import annotations

import json
from typing import Any

from envbuild.attest import openvex
from envbuild.model.vulnerabilities import Vulnerability

NAME = "opencv-5.0.0.93-cpu-py311-debian12"


def finding(**changed: Any) -> Vulnerability:
    told: dict[str, Any] = {
        "ecosystem": "PyPI", "package": "pillow", "version": "9.0.0", "advisory": "GHSA-1", "aliases": ("CVE-2023-1",),
        "fixed_in": ("10.0.1",), "summary": "overflow",
    }  # fmt: skip
    return Vulnerability(**{**told, **changed})


def test_each_finding_is_a_statement_about_one_package_of_the_image():
    document = openvex.document(
        NAME, [finding(), finding(ecosystem="Debian:12", fixed_in=(), aliases=())], "how", "2026-11-23T10:00:00+00:00"
    )
    assert document is not None
    assert set(document) == {"@context", "@id", "author", "timestamp", "version", "tooling", "statements"}
    python, debian = document["statements"]
    assert python["vulnerability"] == {"name": "GHSA-1", "aliases": ["CVE-2023-1"], "description": "overflow"}
    assert python["products"][0]["subcomponents"] == [{"@id": "pkg:pypi/pillow@9.0.0"}]
    assert (python["status"], python["action_statement"]) == ("affected", "Fixed in 10.0.1.")
    assert debian["products"][0]["subcomponents"] == [{"@id": "pkg:deb/debian/pillow@9.0.0"}]
    assert debian["action_statement"] == "No release fixes it." and "aliases" not in debian["vulnerability"]
    assert document["tooling"] == "how" and json.dumps(document)


def test_the_same_findings_have_the_same_name():
    one, same, other = (openvex.document(NAME, [finding(version=each)], "how", "d") for each in ("1", "1", "2"))
    assert one == same and one is not None and other is not None and one["@id"] != other["@id"]


def test_without_findings_there_is_no_document():
    assert openvex.document(NAME, [], "how", "d") is None


def test_the_product_is_the_image_by_its_digest():
    """The form of the package URL: https://github.com/package-url/purl-spec (type oci)."""
    document = openvex.document(NAME, [finding(), finding(package="numpy")], "how", "d")
    assert document is not None
    digest = f"sha256:{'1' * 64}"
    about = openvex.about_image(document, "127.0.0.1:5000/lab/DL", digest)
    assert [[part["@id"] for part in each["products"]] for each in about["statements"]] == [
        [f"pkg:oci/dl@sha256%3A{'1' * 64}"]
    ] * 2
    assert about["statements"][1]["products"][0]["subcomponents"] == [{"@id": "pkg:pypi/numpy@9.0.0"}]
    assert about == openvex.about_image(document, "h.example/dl", digest), "also in another registry"
    other = openvex.about_image(document, "h.example/dl", f"sha256:{'2' * 64}")
    assert len({document["@id"], about["@id"], other["@id"]}) == 3
