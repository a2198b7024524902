"""The texts of the building machine that are searched for. Texts across two pieces of a stream are found, too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envbuild.index.pip_internals import default_index, public_hosts
from envbuild.verify.leaks import find_strings, secret_strings

pieces = st.lists(st.binary(max_size=12), max_size=6)


def test_addresses_hosts_and_passwords_are_taken_from_the_build_secrets() -> None:
    script = (
        b"export PIP_INDEX_URL='https://user:p%40ssword@mirror.example/simple/'\n"
        b"export UV_NO_CONFIG=1\n"
        b"export HTTPS_PROXY=http://127.0.0.1:3128\n"
        b"export SSL_CERT_FILE=/tmp/secrets/ca\n"
    )
    assert secret_strings({"envbuild-env": script, "envbuild-ca": b"PEM"}) == {
        "PIP_INDEX_URL": "https://user:p%40ssword@mirror.example/simple",
        "PIP_INDEX_URL (host)": "mirror.example",
        "PIP_INDEX_URL (password)": "p@ssword",
        "HTTPS_PROXY": "http://127.0.0.1:3128",
    }
    assert secret_strings({}) == {}


def test_proxies_of_apts_own_are_looked_for_too() -> None:
    settings = b'Acquire::http::Proxy "http://me:p%40ssword@proxy.example:3142/";\nAcquire::http::Proxy::a.example "DIRECT";\n'
    assert secret_strings({"envbuild-apt-conf": settings}) == {
        "Acquire::http::Proxy": "http://me:p%40ssword@proxy.example:3142",
        "Acquire::http::Proxy (host)": "proxy.example",
        "Acquire::http::Proxy (password)": "p@ssword",
    }


def test_the_public_index_is_no_secret_but_a_password_for_it_is() -> None:
    script = f"export PIP_INDEX_URL={default_index()}\nexport UV_INDEX=https://me:hunter22@{public_hosts()[0]}/simple/\n"
    assert secret_strings({"envbuild-env": script.encode()}) == {
        "UV_INDEX": f"https://me:hunter22@{public_hosts()[0]}/simple",
        "UV_INDEX (password)": "hunter22",
    }


@given(pieces, st.dictionaries(st.sampled_from("abc"), st.binary(min_size=1, max_size=5), min_size=1))
def test_a_string_is_found_wherever_the_stream_is_cut(parts: list[bytes], wanted: dict[str, bytes]) -> None:
    whole = b"".join(parts)
    assert sorted(find_strings(parts, wanted)) == sorted(name for name, value in wanted.items() if value in whole)


@given(st.binary(min_size=2, max_size=30), st.integers(1, 29))
def test_a_secret_over_a_border_is_found(secret: bytes, cut: int) -> None:
    assert find_strings([b"x" * 50 + secret[:cut], secret[cut:] + b"y" * 50], {"it": secret}) == ["it"]
