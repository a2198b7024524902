"""Fixtures of the tests of the index's settings."""

import os

import pytest


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """A function that makes the given text the only configuration file of pip."""
    for name in os.environ:
        if name.upper().startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "none"))

    def write(text):
        path = tmp_path / "pip.conf"
        path.write_text(text)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(path))

    return write
