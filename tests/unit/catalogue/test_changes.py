"""What changed between two catalogues."""

from __future__ import annotations

from dataclasses import replace

from catalogue_files import catalogue, entry, file

from envbuild import codec
from envbuild.catalogue import model
from envbuild.catalogue.changes import compare
from envbuild.model.vulnerabilities import Audit, Vulnerability


def changes(new: model.CatalogueEntry, old: model.CatalogueEntry, *, is_registry_known: bool = True) -> list[str]:
    before = codec.encode(catalogue(old))
    found = compare(catalogue(new), before, "before", is_registry_known=is_registry_known).entries[0].changes
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


def test_a_new_severe_vulnerability_is_told_with_its_severity() -> None:
    none = Audit(database="d", checked=1, findings=(), unchecked=())
    bad = Vulnerability(package="p", version="1", advisory="A", aliases=(), fixed_in=(), summary="", severity="critical")
    assert changes(entry(vulnerabilities=replace(none, findings=(bad,))), entry(vulnerabilities=none)) == [
        "new known vulnerability: A in p (critical)"
    ]


def test_published_images_are_compared() -> None:
    image = model.PublishedImage(reference="h/r:t", digest="sha256:1", layers=(), signed_by=())
    none, first, second = entry(), entry(published=image), entry(published=replace(image, digest="sha256:2"))
    signed = entry(published=replace(image, signed_by=("key",)))
    assert changes(first, none) == ["newly shown as published: h/r:t"]
    assert changes(second, first) == ["another image is published: sha256:1 → sha256:2"]
    assert changes(signed, first) == ["newly signed with key"]
    assert changes(none, first) == ["the registry has no image of this lock; the earlier catalogue showed h/r:t"]
    assert changes(first, first) == [] == changes(none, first, is_registry_known=False)
