"""Tests must not reach the public services. The report then says that they are unreachable, not that they found nothing."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.audit import audit
from envbuild.audit.debian_version import BadVersionError, DebianVersion
from envbuild.errors import PublishError
from envbuild.lock import lock_file

ENVIRONMENTS = Path(__file__).parents[2] / "images" / "environments"


@pytest.mark.parametrize("service", ["osv", "pypi"])
def test_a_service_that_does_not_answer_is_no_clean_bill(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port, on which no program listens
    monkeypatch.setenv("NO_PROXY", "")
    lock = lock_file.read(next(ENVIRONMENTS.glob("*/lock.json")))
    with pytest.raises(PublishError) as caught:
        audit(lock, databases=[], service=service)
    assert caught.value.code == "advisories-unreachable" and "packages were not checked" in caught.value.message


VERSIONS = [
    "0",
    "0.0",
    "00",
    "1",
    "1.0",
    "1.00",
    "1.0-0",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1~bpo12+1",
    "1.0~rc1",
    "1.0~~",
    "1.0~~a",
    "1.0~",
    "1.0a",
    "1.0+",
    "1.0+a",
    "1.0.a",
    "1.0.",
    "1.0ab",
    "1.0a~",
    "1:0",
    "1:1.0-1",
    "2:0~1",
    "1.0-1-1",
    "1.9",
    "1.10",
    "1.010",
    "3.0.11-1~deb12u2",
    "3.0.11-1~deb12u10",
    "3.0.11-1",
    "1:2.06-13+deb12u1",
    "2.36-9+deb12u7",
    "0.19.0-1+b3",
    "20230311+deb12u1",
    "1.0-a",
    "1.0-a1",
    "1.0+dfsg-1",
]


def test_versions_of_debian_are_in_dpkgs_own_order() -> None:
    """dpkg itself compares every pair."""
    if shutil.which("dpkg") is None:
        pytest.skip("this machine has no dpkg")
    pairs = list(itertools.product(VERSIONS, repeat=2))
    script = "".join(f"dpkg --compare-versions '{a}' lt '{b}'; echo $?\n" for a, b in pairs)
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert len(told) == len(pairs)
    ours = ["0" if DebianVersion(a) < DebianVersion(b) else "1" for a, b in pairs]
    assert [pair for pair, code, mine in zip(pairs, told, ours, strict=True) if code != mine] == []


@pytest.mark.parametrize("text", ["", "-1", "1:", "a:1", "1 0", "1.0-", "ü", "1/2", "1" * 600])
def test_what_dpkg_does_not_know_is_no_version(text: str) -> None:
    with pytest.raises(BadVersionError):
        DebianVersion(text)
