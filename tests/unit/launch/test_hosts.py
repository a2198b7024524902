"""The hosts of a run."""

import pytest

from envbuild.errors import UsageError
from envbuild.launch.hosts import read_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:4,b:4", [("a", 4), ("b", 4)]),
        ("gpu-01.example", [("gpu-01.example", 1)]),
        ("10.0.0.1:2, 10.0.0.2:1", [("10.0.0.1", 2), ("10.0.0.2", 1)]),
        ("3x8", [("", 8)] * 3),
    ],
)
def test_hosts(text, hosts):
    assert [(host.name, host.slots) for host in read_hosts(text)] == hosts


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:x", "a b", "a,,b", "a:4,a:4", "a;rm:1", "-a", "0x4", "$(x)", "a:4:4"])
def test_malformed_hosts_are_refused(text):
    with pytest.raises(UsageError) as refused:
        read_hosts(text)
    assert refused.value.code == "malformed-hosts"
