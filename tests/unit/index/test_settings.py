"""envbuild reads pip's configuration as pip does, and passes on no setting that only this machine may use."""

import pytest

from envbuild.errors import UsageError
from envbuild.index.pip_internals import default_index
from envbuild.index.settings import host_of, is_trusted, read_settings, without_credentials
from envbuild.index.tool_settings import pip_variables, uv_variables


def test_sections_and_variables_win_in_pips_order(configure, monkeypatch):
    configure("[global]\nindex-url = https://a.example/simple\ntimeout = 7\n[download]\nindex-url = https://b.example/simple\n")
    assert read_settings().index_url == "https://b.example/simple"
    assert read_settings().timeout_s == 7
    monkeypatch.setenv("PIP_INDEX_URL", "https://c.example/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "c.example d.example:8080")
    settings = read_settings()
    assert (settings.index_url, settings.is_default) == ("https://c.example/simple", False)
    assert settings.trusted_hosts == ("c.example", "d.example:8080")


def test_without_configuration_it_is_pips_own_default(configure):
    configure("[global]\n")
    settings = read_settings()
    assert settings.is_default
    assert settings.index_url == default_index()


def test_local_sources_are_left_out_with_a_note_and_reach_nobody(configure, tmp_path):
    configure(
        "[global]\nindex-url = https://a.example/simple\nfind-links = /opt/some-wheels\n"
        "extra-index-url = file:///opt/mirror/simple https://user:secret@b.example/simple\n"
    )
    settings = read_settings()
    assert settings.extra_index_urls == ("https://user:secret@b.example/simple",)
    assert len(settings.notes) == 2
    assert all("not used" in note for note in settings.notes)
    handed = [*uv_variables(settings).values(), *pip_variables(settings).values()]
    assert not [value for value in handed if "/opt/" in value or "file:" in value]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[global]\nindex-url = file:///opt/mirror/simple\n", "local-index"),
        ("[global]\nindex-url = /opt/mirror/simple\n", "local-index"),
        ("[global]\nno-index = true\n", "no-index"),
        ("[global]\nindex-url = http://a.example/simple\n", "insecure-index"),
        ("[global]\ntimeout = soon\n", "pip-configuration"),
        ("no section\n", "pip-configuration"),
    ],
)
def test_unusable_configurations_are_refused_with_a_way_out(configure, capfd, text, code):
    configure(text)
    with pytest.raises(UsageError) as caught:
        read_settings()
    assert caught.value.code == code
    assert caught.value.hint
    assert capfd.readouterr() == ("", "")


def test_plain_http_is_taken_where_pip_trusts_it(configure):
    configure("[global]\nindex-url = http://a.example:81/simple\ntrusted-host = a.example\n")
    assert read_settings().index_url == "http://a.example:81/simple"
    configure("[global]\nindex-url = http://localhost:3141/simple\n")
    assert read_settings().index_url == "http://localhost:3141/simple"


def test_messages_hold_no_credentials():
    assert without_credentials("see https://user:secret@a.example/simple") == "see https://a.example/simple"
    assert host_of("https://user:secret@a.example:8443/simple") == "a.example:8443"
    assert is_trusted("https://a.example:8443/simple", ("a.example",))
    assert not is_trusted("https://a.example.evil/simple", ("a.example",))
