"""Writes the known vulnerabilities of an image as an OpenVEX document (https://github.com/openvex/spec, version 0.2.0).
Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from envbuild.model.vulnerabilities import Vulnerability

_CONTEXT = "https://openvex.dev/ns/v0.2.0"
_OURS = "https://envbuild.invalid"
_KINDS = {"pypi": "pypi", "debian": "deb/debian", "ubuntu": "deb/ubuntu"}  # OSV's ecosystem → the type in a package URL


def document(
    name: str,
    findings: Iterable[Vulnerability],
    how: str,
    date: str,
    accepted: Callable[[Vulnerability], Mapping[str, str] | None] = lambda _finding: None,
) -> Mapping[str, Any] | None:
    """Return an OpenVEX document whose product is the environment ``name``.

    :func:`about_image` makes it a document whose product is one image.

    Return None if there are no findings, because OpenVEX has no empty documents. ``how`` says which database was searched, and
    what could not be checked. ``date`` (RFC 3339) is the time of the search. ``accepted`` is a function. For a finding that the
    site's policy accepts, this function returns the OpenVEX status and further fields. For any other finding, it returns None.
    """
    told = [_statement(name, each, accepted(each)) for each in findings]
    if not told:
        return None
    return {
        "@context": _CONTEXT,
        "@id": _id_of(told, how),
        "author": "the owner of the key that signed this statement",
        "timestamp": date,
        "version": 1,
        "tooling": how,
        "statements": told,
    }


def about_image(document: Mapping[str, Any], repository: str, digest: str) -> Mapping[str, Any]:
    """Return ``document`` with the image ``digest`` (``sha256:…``) of ``repository`` (``HOST/REPOSITORY``) as its product.

    The product is a package URL, which scanners compare with the image: its name is the last part of the repository's name, and
    its version is the digest. Without the host, the document is also about copies of the image in other registries.
    """
    name = quote(repository.rpartition("/")[2].lower())
    product = {"@id": f"pkg:oci/{name}@{quote(digest, safe='')}"}
    told = [{**each, "products": [part | product for part in each["products"]]} for each in document["statements"]]
    return {**document, "@id": _id_of(told, document["tooling"]), "statements": told}


def _id_of(statements: object, how: str) -> str:
    content = json.dumps([statements, how], sort_keys=True).encode()
    return f"{_OURS}/openvex/{hashlib.sha256(content).hexdigest()}"


def _statement(name: str, finding: Vulnerability, accepted: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the statement about one finding.

    The statement says that the advisory covers the installed version. Unless the site's policy says more, the statement also
    says that nobody has checked whether the image uses the vulnerable code.
    """
    fix = f"Fixed in {', '.join(finding.fixed_in)}." if finding.fixed_in else "No release fixes it."
    aliases = {"aliases": list(finding.aliases)} if finding.aliases else {}
    summary = {"description": finding.summary} if finding.summary else {}
    status = accepted or {
        "status": "affected",
        "status_notes": "The advisory names this version. Nobody has checked whether the image uses the vulnerable code.",
    }
    return {
        "vulnerability": {"name": finding.advisory, **aliases, **summary},
        "products": [{"@id": f"{_OURS}/environments/{quote(name)}", "subcomponents": [{"@id": _url(finding)}]}],
        **status,
        **({"action_statement": fix} if status["status"] == "affected" else {}),
    }


def _url(finding: Vulnerability) -> str:
    kind = _KINDS.get(finding.ecosystem.partition(":")[0].lower(), "generic")
    return f"pkg:{kind}/{quote(finding.package)}@{quote(finding.version, safe='')}"
