"""The public services, which nothing here may reach: they are said to be unreachable, never to know nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import lock as locks
from envbuild.audit import audit
from envbuild.errors import PublishError

ENVIRONMENTS = Path(__file__).parents[2] / "images" / "environments"


@pytest.mark.parametrize("service", ["osv", "pypi"])
def test_a_service_that_does_not_answer_is_no_clean_bill(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nobody listens
    monkeypatch.setenv("NO_PROXY", "")
    lock = locks.read(next(ENVIRONMENTS.glob("*/lock.json")))
    with pytest.raises(PublishError) as caught:
        audit(lock, database=None, service=service)
    assert caught.value.code == "advisories-unreachable" and "nothing is known" in caught.value.message
