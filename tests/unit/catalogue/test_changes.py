"""What changed between two catalogues."""

from __future__ import annotations

from dataclasses import replace

from catalogue_files import catalogue, entry, file

from envbuild import codec
from envbuild.catalogue import model
from envbuild.catalogue.changes import compare
from envbuild.model.vulnerabilities import Audit, Vulnerability


def changes(new: model.CatalogueEntry, old: model.CatalogueEntry) -> list[str]:
    found = compare(catalogue(new), codec.encode(catalogue(old)), "before").entries[0].changes
    assert found is not None
    return list(found)


def locked(*files: model.File, sha256: str = "d" * 64) -> model.LockEntry:
    return model.LockEntry(sha256=sha256, missing=(), parts=(model.InstalledPart(title="Python packages", files=files),))


def test_nothing_changed() -> None:
    assert changes(entry(), entry()) == []


def test_a_new_environment_is_new() -> None:
    assert changes(entry(), entry("other")) == ["new in the catalogue"]


def test_versions_proofs_and_fields_are_told() -> None:
    old = entry(lock=locked(file("a", "1", 1), file("b", "1", 1), file("c", "1", 1), sha256="a" * 64))
    again = replace(file("c", "1", 1), sha256="e" * 64)
    new = entry(python="3.7", lock=locked(file("a", "2", 1), again, file("d", "1", 1)), proofs=entry().proofs[:1])
    assert changes(new, old) == [
        "Python: 3.6 → 3.7",
        "Python packages: a 1 → 2",
        "Python packages: b 1 removed",
        "Python packages: c 1 has a different file",
        "Python packages: d 1 added",
        "no longer proved: built",
    ]


def test_vulnerabilities_are_compared_only_if_both_were_checked() -> None:
    def known(*names: str) -> Audit:
        found = tuple(
            Vulnerability(package="p", version="1", advisory=name, aliases=(), fixed_in=(), summary="") for name in names
        )
        return Audit(database="d", checked=1, findings=found, unchecked=())

    assert changes(entry(vulnerabilities=known("A", "B")), entry()) == []
    assert changes(entry(), entry(vulnerabilities=known("A"))) == []
    assert changes(entry(vulnerabilities=known("B")), entry(vulnerabilities=known("A"))) == [
        "vulnerability closed: A in p",
        "new known vulnerability: B in p",
    ]
