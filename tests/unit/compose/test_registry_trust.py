"""Only the registry itself gets the password and the token for it, and only by https."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter

from envbuild.compose.outputs.credentials import Credentials
from envbuild.compose.outputs.registry_client import Client, parse
from envbuild.errors import PublishError

HOST = "r.example.org"
UPLOADS = f"https://{HOST}/v2/lab/env/blobs/uploads/"
Answer = tuple[int, Mapping[str, str], bytes]


class Network(BaseAdapter):
    """Answers from a table of addresses, and accepts every request to other addresses.

    It records which address was sent which secret.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        super().__init__()
        self._answers = answers
        self.asked: list[str] = []
        self.secrets: list[tuple[str, str]] = []

    def send(self, request: requests.PreparedRequest, *_args: Any, **_named: Any) -> requests.Response:
        url = str(request.url).partition("?")[0]
        self.asked.append(url)
        secret = request.headers.get("Authorization") or ("s3cret" if "s3cret" in str(request.body) else "")
        if secret:
            self.secrets.append((url, secret))
        status, headers, body = self._answers.get(url, (201, {}, b""))
        if status == 401 and "Authorization" in request.headers:
            status = 202
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = status, str(request.url), request
        answer.headers.update(headers)
        answer.raw = io.BytesIO(body)
        return answer

    def close(self) -> None:
        """Do nothing, because no connection is open."""


def client(answers: Mapping[str, Answer], **who: str) -> tuple[Client, Network]:
    made, network = Client(parse(f"{HOST}/lab/env"), Credentials(**who), pause=lambda _seconds: True), Network(answers)
    for scheme in ("https://", "http://"):
        made._session.mount(scheme, network)
    return made, network


BASIC = {"username": "me", "password": "s3cret"}
ASKS_BASIC: Answer = (401, {"WWW-Authenticate": "Basic realm=here"}, b"")


@pytest.mark.parametrize("location", [f"http://{HOST}/up", f"http://{HOST}:80/up", "http://other.example/up"])
def test_an_upload_is_never_sent_without_tls(location):
    made, network = client({UPLOADS: (202, {"Location": location}, b"")}, **BASIC)
    with pytest.raises(PublishError, match="without TLS") as caught:
        made.upload("a" * 64, b"x")
    assert caught.value.code == "insecure-address" and network.asked == [UPLOADS]


@pytest.mark.parametrize(
    ("location", "is_own"), [(f"https://{HOST}/up", True), ("/up", True), ("https://other.example/up", False)]
)
def test_only_the_registry_itself_gets_the_password(location, is_own):
    made, network = client({UPLOADS: (401, {"Location": location, "WWW-Authenticate": "Basic realm=here"}, b"")}, **BASIC)
    made.upload("a" * 64, b"x")
    assert (len(network.secrets), len(network.asked)) == (1 + is_own, 3)
    assert all(url.startswith(f"https://{HOST}/") for url, _ in network.secrets)


@pytest.mark.parametrize(
    "realm", ["http://other.example/token", f"http://{HOST}/token", " http://x.example/", "\xa0http://x.example", ""]
)
@pytest.mark.parametrize("who", [BASIC, {"identity_token": "s3cret"}])
def test_a_token_is_asked_for_by_https_only(realm, who):
    made, network = client({UPLOADS: (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")}, **who)
    with pytest.raises(PublishError) as caught:
        made.upload("a" * 64, b"x")
    assert caught.value.code == "insecure-address" and not network.secrets


def test_no_redirect_to_plain_http_is_followed():
    blob, realm = f"https://{HOST}/v2/lab/env/blobs/sha256:{'a' * 64}", f"https://{HOST}/token"
    asks = (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")
    for answers in (
        {blob: (307, {"Location": "http://other.example/blob"}, b"")},
        {
            blob: (307, {"Location": "https://b.example/1"}, b""),
            "https://b.example/1": (302, {"Location": "http://c.example"}, b""),
        },
        {blob: asks, realm: (302, {"Location": f"http://{HOST}/token"}, b"")},
    ):
        made, network = client(answers)
        with pytest.raises(PublishError) as caught:
            b"".join(made.blob("a" * 64, 1))
        assert caught.value.code == "insecure-address" and all(url.startswith("https://") for url in network.asked)


def test_a_refresh_token_is_not_passed_on_by_a_redirect():
    realm = f"https://{HOST}/token"
    asks = (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")
    made, network = client({UPLOADS: asks, realm: (307, {"Location": "https://other.example/t"}, b"")}, identity_token="s3cret")
    with pytest.raises(PublishError, match="307"):
        made.upload("a" * 64, b"x")
    assert [url for url, _ in network.secrets] == [realm]


@pytest.mark.parametrize("token", ["a\\nb", "", "a b", "\\u00e9"])
def test_a_token_that_cannot_be_in_a_header_is_not_printed(token):
    realm = f"https://{HOST}/token"
    asks = (401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")
    made, _ = client({UPLOADS: asks, realm: (200, {}, f'{{"token": "{token}", "access_token": "{token}"}}'.encode())})
    with pytest.raises(PublishError) as caught:
        made.upload("a" * 64, b"x")
    assert caught.value.code == "registry-unreachable" and "is not a token" in caught.value.message


def test_of_a_long_message_the_beginning_is_told():
    made, _ = client({UPLOADS: (400, {}, b'{"errors": [{"code": "A\\u001b[2J", "message": "' + b"x" * 100_000 + b'"}]}')})
    with pytest.raises(PublishError, match="400 A") as caught:
        made.upload("a" * 64, b"x")
    assert len(caught.value.message) < 500 and caught.value.message.isprintable()
