"""The list of licences."""

from __future__ import annotations

from envbuild.attest import licences

TOLD = (
    "ignored\n\x01/opt/a.dist-info/METADATA\nName: a\nVersion: 1\nLicense: BSD\nLicense-Expression: BSD-3-Clause\n"
    "\x01/opt/b.dist-info/METADATA\nName: b\nVersion: 2\nLicense: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n"
    "\x01/opt/c.egg-info/PKG-INFO\nName: c\nVersion: 3\n"
    "\x01/opt/damaged.dist-info/METADATA\n"
    "\x01/opt/again/a.dist-info/METADATA\nName: a\nVersion: 1\nLicense-Expression: BSD-3-Clause\n"
    "\x01deb bash 5.2\nLicense: GPL-3+\nLicense: GPL-3+\n\x01deb bare 1\n"
)


def test_the_most_exact_field_counts_and_silence_is_counted():
    found = licences.predicate("sha256:i", "l" * 64, TOLD)
    told = {(each["type"], each["name"], each["version"]): each["licences"] for each in found["packages"]}
    assert told == {
        ("pypi", "a", "1"): ["BSD-3-Clause"], ("pypi", "b", "2"): ["MIT License"], ("pypi", "c", "3"): [],
        ("deb", "bash", "5.2"): ["GPL-3+"], ("deb", "bare", "1"): [],
    }  # fmt: skip
    assert (len(found["packages"]), found["unknown"], found["image"]) == (5, 2, "sha256:i")


def test_a_package_without_metadata_in_the_image_is_listed_by_the_metadata_of_its_wheel():
    wheels = [
        "Metadata-Version: 2.4\nName: pip\nVersion: 26.3\nLicense-Expression: MIT\n\nLicense: a word of the description\n"
    ]
    wheels += ["Name: pip\r\nVersion: 20.3.4\r\nLicense: MIT\r\n\r\nLicense-Expression: another\r\n", wheels[0]]
    found = licences.predicate("i", "l", "\x01deb bash 5.2\n", wheels)
    told = [(each["type"], each["name"], each["version"], each["licences"]) for each in found["packages"]]
    assert told == [("deb", "bash", "5.2", []), ("pypi", "pip", "20.3.4", ["MIT"]), ("pypi", "pip", "26.3", ["MIT"])]
    assert found["unknown"] == 1


def test_a_whole_licence_in_place_of_its_name_is_cut():
    (found,) = licences.predicate("i", "l", f"\x01x\nName: a\nVersion: 1\nLicense: {'x' * 900}\n")["packages"]
    assert [len(each) for each in found["licences"]] == [200]


def test_an_image_that_says_nothing_has_no_packages():
    assert licences.predicate("i", "l", "sh: not found")["packages"] == []
