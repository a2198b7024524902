"""The host's apt configuration."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from envbuild.engine import host_apt
from envbuild.engine.host_apt import Source
from envbuild.errors import BuildError

DEB822 = """\
Types: deb
# a comment that names another place
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/apt
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/other.gpg

Types: deb
Enabled: no
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://embedded.example/x
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEYCQjIxYJKwYBBAHaRw8BAQdAD
 -----END PGP PUBLIC KEY BLOCK-----
"""


def test_one_line_sources():
    text = """
# deb http://off.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 trusted=yes] http://mirror.example/debian bookworm contrib main # why
deb http://mirror.example/debian bookworm contrib
"""
    options = (("arch", "amd64"), ("trusted", "yes"))
    assert host_apt.parse_list(text) == [Source(uri="http://mirror.example/debian", suite="bookworm", options=options)]


def test_deb822_sources():
    found = host_apt.parse_deb822(DEB822)
    assert [(s.uri.split("/")[2], s.suite) for s in found] == [
        ("mirror.example", "bookworm"),
        ("mirror.example", "bookworm-updates"),
        ("mirror.example", "bookworm-security"),
        ("other.example", "bookworm"),
        ("embedded.example", "stable"),
    ]


@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie"])
def test_a_suite_comes_from_the_mirror_that_carries_the_hosts_own(suite):
    found = host_apt.sources_for(suite, host_apt.parse_deb822(DEB822), codename="bookworm")
    assert [(s.uri, s.suite) for s in found] == [
        ("http://mirror.example/debian", suite),
        ("http://mirror.example/debian", f"{suite}-updates"),
        ("http://mirror.example/debian-security", f"{suite}-security"),
    ]


def test_components_beside_main_are_those_that_are_asked_for():
    found = host_apt.sources_for(
        "trixie", host_apt.parse_deb822(DEB822), codename="bookworm", components=("contrib", "non-free")
    )
    assert {source.components for source in found} == {("main", "contrib", "non-free")}
    assert found[0].line() == "deb http://mirror.example/debian trixie main contrib non-free"
    assert host_apt.sources_for("trixie", host_apt.parse_deb822(DEB822), codename="bookworm")[0].line().endswith(" trixie main")


def test_a_third_partys_source_is_no_mirror():
    other = host_apt.parse_deb822(DEB822)[3:4]
    assert host_apt.sources_for("bookworm", other, codename="bookworm") == []


def test_a_source_that_names_the_suite_counts_before_the_hosts_mirror():
    own = Source(uri="http://archive.example/old", suite="bullseye", options=(("trusted", "yes"),))
    found = host_apt.sources_for("bullseye", [*host_apt.parse_deb822(DEB822), own], codename="bookworm")
    assert (found[0].uri, found[0].suite) == (own.uri, own.suite)


@pytest.mark.parametrize("option", ["trusted", "allow-insecure", "allow-weak", "check-valid-until", "check-date"])
def test_what_a_host_does_not_check_is_not_taken_over(option):
    own = Source(uri="http://archive.example/old", suite="bullseye", options=((option, "yes"),))
    assert host_apt.sources_for("bullseye", [own], codename="bookworm")[0].options == ()


def test_no_debian_host_and_no_debian_source():
    ubuntu = [Source(uri="http://mirror.example/ubuntu", suite="noble")]
    assert host_apt.sources_for("bookworm", ubuntu, codename="") == []


def test_security_alone_is_no_mirror():
    only = [Source(uri="http://mirror.example/debian-security", suite="bookworm-security")]
    assert host_apt.sources_for("bookworm", only, codename="bookworm") == []


def test_whether_a_host_minds_dates():
    assert host_apt.dates_ignored({"Acquire::Check-Valid-Until": "false"})
    assert host_apt.dates_ignored({"Acquire::Check-Date": "0"})
    assert not host_apt.dates_ignored({"Acquire::Check-Date": "true", "Acquire::http::Proxy": "false"})


def test_date_checks_go_along():
    options = {"Acquire::Check-Valid-Until": "false", "Acquire::http::Proxy": "http://proxy.example:3142"}
    (source,) = host_apt.with_host_options([Source(uri="http://mirror.example/debian", suite="trixie")], options)
    assert source.line() == "deb [check-valid-until=no] http://mirror.example/debian trixie main"
    assert source.line(signed_by="/k.gpg").startswith("deb [check-valid-until=no signed-by=/k.gpg] ")


def test_the_hosts_proxies_go_into_builds_and_nothing_else_of_its_settings(monkeypatch):
    dump = """APT::Architecture "amd64";
Acquire::http::Proxy "http://me:word@proxy.example:3142";
Acquire::http::Proxy::mirror.example "DIRECT";
Acquire::http::Proxy-Auto-Detect "/usr/local/bin/find-a-proxy";
Acquire::https::Proxy "";
Acquire::Check-Valid-Until "false";
"""
    monkeypatch.setattr(host_apt.procs, "find", lambda _: "/usr/bin/apt-config")
    monkeypatch.setattr(host_apt.procs, "run", lambda *_, **__: SimpleNamespace(output=dump))
    said = b'Acquire::http::Proxy "http://me:word@proxy.example:3142";\nAcquire::http::Proxy::mirror.example "DIRECT";\n'
    assert host_apt.build_secrets() == {"envbuild-apt-conf": said}
    monkeypatch.setattr(host_apt.procs, "run", lambda *_, **__: SimpleNamespace(output='APT::Architecture "amd64";'))
    assert host_apt.build_secrets() == {}
    monkeypatch.setattr(host_apt.procs, "find", lambda _: None)
    assert host_apt.build_secrets() == {}


def test_host_files_are_read_in_apts_order(tmp_path):
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://first.example/debian bookworm main\n")
    (parts / "b.sources").write_text("Types: deb\nURIs: http://third.example/d\nSuites: bookworm\nComponents: main\n")
    (parts / "a.list").write_text("deb http://second.example/debian bookworm main\n")
    (parts / "c.list.save").write_text("deb http://never.example/debian bookworm main\n")
    assert [s.uri.split("/")[2].split(".")[0] for s in host_apt.host_sources(tmp_path)] == ["first", "second", "third"]


def test_codename(tmp_path):
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="x"\n')
    assert host_apt.codename(release) == "bookworm"
    release.write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    assert host_apt.codename(release) == ""
    assert host_apt.codename(tmp_path / "absent") == ""


@pytest.mark.parametrize(("number", "begins"), [(28, "No space left on the file system"), (122, "The disk quota is used up")])
def test_apt_that_could_not_write_is_a_full_disk_in_any_language(tmp_path, number, begins):
    output = f"E: Failed to fetch http://m/x  Fehler beim Schreiben - write ({number}: andere Sprache) [IP: 10.0.0.1 80]"
    with pytest.raises(BuildError, match=begins) as caught:
        host_apt.require_space(output, tmp_path / "x")
    assert caught.value.code == "no-space"
    host_apt.require_space("E: Failed to fetch http://m/x-write(28:  404  Not Found [IP: 10.0.0.1 80]", tmp_path / "x")
