"""The files of the site are escaped and well formed, make no request, and say so if something is unknown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree

import jsonschema
import pytest
from catalogue_files import catalogue, entry, made

from envbuild import codec
from envbuild.catalogue import model
from envbuild.catalogue.changes import compare
from envbuild.catalogue.pages import size
from envbuild.model.vulnerabilities import Audit, Vulnerability
from envbuild.pipeline import evidence

HOSTILE = "</script><script>alert(1)</script>\"'&<b>\u2028"
ATOM = "{http://www.w3.org/2005/Atom}"


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_words_cover_every_kind_of_proof_in_order() -> None:
    assert tuple(model.PROOFS) == evidence.KINDS


def test_every_page_loads_files_of_the_site_alone() -> None:
    site = made(catalogue(entry()))
    for path, text in site.items():
        if not path.endswith(".html"):
            continue
        folder = path.rpartition("/")[0]
        for tag, attributes in Tags(text).found:
            loaded = (
                attributes.get("src")
                if tag in ("script", "img", "iframe")
                else attributes.get("href")
                if tag == "link"
                else None
            )
            if loaded and not loaded.startswith("data:"):
                steps = f"{folder}/{loaded}" if folder else loaded
                assert re.sub(r"[^/]+/\.\./", "", steps) in site, (path, loaded)
            assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag, attributes)
    assert "http" not in re.sub(r"https\?:", "", site["search.js"] + site["machines.js"] + site["page.js"] + site["style.css"])


def test_links_between_pages_lead_somewhere() -> None:
    odd = "keras-2+tf-1.2-cpu"
    site = made(catalogue(entry(), entry(odd)))
    site |= {f"sbom/{name}.cdx.json": "" for name in (entry().name, odd)}
    for path, text in site.items():
        folder = path.rpartition("/")[0]
        for tag, attributes in Tags(text).found if path.endswith(".html") else []:
            target = (attributes.get("href") or "").partition("#")[0]
            if tag == "a" and target and not target.startswith("https:"):
                whole = re.sub(r"[^/]+/\.\./", "", f"{folder}/{target}" if folder else target).replace("%2B", "+")
                assert whole in site, (path, target)


def test_what_comes_from_data_is_escaped_everywhere() -> None:
    hostile = entry(
        why=HOSTILE, warnings=(HOSTILE,), choices=(model.Choice(what=HOSTILE, because=HOSTILE, source=f"javascript:{HOSTILE}"),)
    )
    site = made(catalogue(hostile, title=HOSTILE))
    scripts = [
        attributes
        for path, text in site.items()
        if path.endswith(".html")
        for tag, attributes in Tags(text).found
        if tag == "script"
    ]
    assert scripts
    assert all(attributes.get("src") for attributes in scripts)
    links = [
        attributes.get("href") or ""
        for path, text in site.items()
        if path.endswith(".html")
        for _, attributes in Tags(text).found
    ]
    assert not [link for link in links if link.startswith("javascript:")]
    ElementTree.fromstring(site["feed.xml"])
    assert "\u2028" not in site["data/catalogue.js"]
    assert json.loads(site["catalogue.json"])["title"] == HOSTILE


def test_what_was_not_asked_is_said_so() -> None:
    text = made(catalogue(entry()))[entry().page]
    assert "Not checked." in text
    assert "This catalogue was made without a registry" in text
    assert "made without an earlier one" in text
    assert "of unknown size" in text
    assert "docker run --rm -it --shm-size=2g" in text
    none = Audit(database="osv", checked=3, findings=(), unchecked=("1 package of plain: no records",))
    checked = made(catalogue(entry(vulnerabilities=none)))[entry().page]
    assert "0 advisories for 3 packages, from osv" in checked
    assert "1 package of plain: no records" in checked


def test_the_document_follows_its_schema() -> None:
    schema = json.loads(resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8"))
    published = model.PublishedImage(
        reference="h/r:t", digest="sha256:1", layers=(model.LayerEntry(digest="sha256:2", size=5),)
    )
    speed = model.Speed(workload="w", workers=2, images_per_s=1.5, speedup="1.9", efficiency=None, accuracy=0.9, verdict="pass")
    report = model.Smoke(verdict="pass", sentence="Fine.", started="", machine="a GPU", rows=(speed,))
    advisory = Vulnerability(package="p", version="1", advisory="A-1", aliases=(), fixed_in=("2",), summary="")
    found = Audit(database="d", checked=1, findings=(advisory,), unchecked=())
    full = entry(published=published, reports=(report,), vulnerabilities=found)
    whole = compare(catalogue(full, entry("new-1")), codec.encode(catalogue(entry(), entry("old-1"))), "before")
    site = made(whole)
    document = json.loads(site["catalogue.json"])
    jsonschema.validate(document, schema)
    assert document["gone"] == ["old-1"]
    page = site[full.page]
    for text in ("A-1", "1.9", "docker pull h/r@sha256:1", "to pull, in 1 layer.", "a GPU", "did not check its signature"):
        assert text in page, text


def test_the_document_names_its_schema_which_is_a_file_of_the_site() -> None:
    site = made(catalogue(entry()))
    document = json.loads(site["catalogue.json"])
    schema = json.loads(site[document["$schema"]])
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    validator(schema).validate(document)
    with pytest.raises(jsonschema.ValidationError):
        validator(schema).validate({**document, "$schema": "elsewhere.json"})
    validator(schema).validate({name: value for name, value in document.items() if name != "$schema"})  # an earlier one


def test_signed_reports_and_the_gpus_that_they_prove_are_shown() -> None:
    schema = json.loads(resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8"))
    image = model.PublishedImage(
        reference="h/r:t", digest="sha256:1", layers=(), signed_by=(f"key-of-{HOSTILE}",), others=2,
        statements=(model.Stated(kind=f"https://example.org/{HOSTILE}", signer="their-key"),),
    )  # fmt: skip
    report = model.Smoke(verdict="pass", sentence="Fine.", started="", machine=HOSTILE, rows=(), signer="their-key")
    proof = model.Proved(kind="smoke-gpu", date="2026-03-04", engine="", where="registry", gpus=("A100", "A100", HOSTILE))
    board = (("GeForce GTX 1080 Ti", "6.1"),)
    full = entry(cuda="9.0", published=image, reports=(report,), proofs=(proof,), proved_on=board)
    whole = catalogue(full)
    site = made(replace(whole, rows=(replace(whole.rows[0], proved_on=board),)))
    jsonschema.validate(json.loads(site["catalogue.json"]), schema)
    page = site[full.page]
    for text in (
        "their-key",
        "on 2 x A100, 1 x ",
        ", by a signed report",
        "GeForce GTX 1080 Ti (6.1)",
        "It is signed with",
        "2 attached documents are not",
    ):
        assert text in page, text
    assert "<script>alert" not in page and "did not check its signature" not in page
    assert '"proved_on":[["GeForce GTX 1080 Ti","6.1"]]' in site["catalogue.json"]
    assert "has_other_inputs" not in site["catalogue.json"] and "do not count as proofs" not in page
    other = made(catalogue(replace(full, published=replace(image, has_other_inputs=True))))
    jsonschema.validate(json.loads(other["catalogue.json"]), schema)
    assert "smoke reports about it do not count as proofs here" in other[full.page]
    unsigned = made(catalogue(entry(published=replace(image, signed_by=(), statements=()))))[entry().page]
    assert "Not signed with a key that this catalogue trusts" in unsigned


@pytest.mark.parametrize("url", ["", "https://example.org/site/"])
def test_the_feed_is_atom_and_the_badges_are_svg(url: str) -> None:
    site = made(catalogue(entry()), url=url)
    feed = ElementTree.fromstring(site["feed.xml"])
    entries = feed.findall(f"{ATOM}entry")
    assert [each.findtext(f"{ATOM}title") for each in entries] == [f"{entry().name}: built", f"{entry().name}: locked"]
    assert feed.findtext(f"{ATOM}updated") == "2026-02-03T00:00:00Z"
    assert len({each.findtext(f"{ATOM}id") for each in entries}) == 2
    links = [link.get("href") or "" for each in entries for link in each.findall(f"{ATOM}link")]
    assert links == [f"{url}{entry().page}"] * 2
    badge = ElementTree.fromstring(site[f"badges/{entry().name}.svg"])
    assert badge.get("aria-label") == "envbuild: built"


def test_the_same_values_give_the_same_bytes() -> None:
    assert made(catalogue(entry())) == made(catalogue(entry()))


def test_sizes_are_in_units_of_a_thousand() -> None:
    assert [size(count) for count in (0, 999, 1000, 999_499, 999_600, 1_234_567_890)] == [
        "0 B",
        "999 B",
        "1 kB",
        "999 kB",
        "1 MB",
        "1.23 GB",
    ]


def test_vulnerabilities_are_counted_by_severity_and_the_worst_come_first() -> None:
    def advisory(name: str, severity: str) -> Vulnerability:
        return Vulnerability(
            package="p", version="1", advisory=name, aliases=(), fixed_in=(), summary="", severity=severity
        )  # fmt: skip

    told = (advisory("A-1", "low"), advisory("A-2", "unknown"), advisory("A-3", "critical"), advisory("A-4", "low"))
    known = Audit(database="osv", checked=9, findings=told, unchecked=())
    page = made(catalogue(entry(vulnerabilities=known)))[entry().page]
    assert "4 advisories for 9 packages, from osv: 1 critical, 2 low, 1 of unknown severity." in page
    places = [page.index(name) for name in ("A-3", "A-1", "A-4", "A-2")]
    assert places == sorted(places) and page.count('data-label="Severity">low<') == 2
