"""Index settings for uv, for pip and for builds."""

from dataclasses import replace

import pytest

from envbuild.errors import UsageError
from envbuild.index.settings import read_settings
from envbuild.index.tool_settings import build_secrets, pip_variables, uv_variables


def test_variables_say_the_same_to_uv_and_pip(configure, monkeypatch, tmp_path):
    configure(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url = https://b.example/simple\n"
        "proxy = http://proxy.example:3128\ntimeout = 42\ntrusted-host = a.example\n"
    )
    settings = read_settings()
    settings = replace(settings, ca_bundle="/ca")
    uv, pip = uv_variables(settings), pip_variables(settings)
    assert uv["UV_DEFAULT_INDEX"] == pip["PIP_INDEX_URL"] == "https://a.example/simple"
    assert uv["UV_INDEX"] == pip["PIP_EXTRA_INDEX_URL"] == "https://b.example/simple"
    assert uv["UV_HTTP_TIMEOUT"] == pip["PIP_TIMEOUT"] == "42"
    assert uv["UV_INSECURE_HOST"] == pip["PIP_TRUSTED_HOST"] == "a.example"
    assert uv["HTTPS_PROXY"] == pip["https_proxy"] == "http://proxy.example:3128"
    assert uv["SSL_CERT_FILE"] == pip["PIP_CERT"] == "/ca"


def test_secrets_survive_a_shell_and_point_into_the_build(configure, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    configure(f"[global]\nindex-url = https://us$er:p'w d@a.example/simple\ncert = {bundle}\n")
    secrets = build_secrets(read_settings())
    assert secrets["envbuild-ca"] == bundle.read_bytes()
    lines = secrets["envbuild-env"].decode().splitlines()
    assert all(line.startswith("export ") for line in lines)
    assert "export PIP_CERT=/dev/shm/envbuild/ca" in lines
    assert str(tmp_path) not in secrets["envbuild-env"].decode().replace("PIP_CONFIG_FILE=/dev/null", "")
    import shlex

    words = shlex.split("\n".join(lines))
    assert "PIP_INDEX_URL=https://us$er:p'w d@a.example/simple" in words


def test_a_large_bundle_is_reduced_or_refused(configure, tmp_path):
    bundle = tmp_path / "ca.pem"
    configure(f"[global]\ncert = {bundle}\n")
    certificate = "-----BEGIN CERTIFICATE-----\n" + "A" * 70_000 + "\n-----END CERTIFICATE-----\n"
    bundle.write_text(("# who and what\n" * 40_000) + certificate * 3)
    assert build_secrets(read_settings())["envbuild-ca"].decode() == certificate
    bundle.write_text("".join(certificate.replace("AAA", f"{n:03d}", 1) for n in range(9)))
    with pytest.raises(UsageError) as caught:
        build_secrets(read_settings())
    assert caught.value.code == "ca-bundle"
    assert str(bundle) in caught.value.message
    bundle.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        build_secrets(read_settings())


def test_a_client_certificate_is_not_silently_dropped(configure, tmp_path):
    configure(f"[global]\nclient-cert = {tmp_path / 'me.pem'}\n")
    with pytest.raises(UsageError) as caught:
        build_secrets(read_settings())
    assert caught.value.code == "client-cert"
