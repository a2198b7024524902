"""The subnet of a private engine that starts again after another engine has taken the subnet it used before."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.engine import private_engine
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("root_machine")]
OTHER = "envbother"  # stands in for the bridge of another engine


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    found = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    yield found
    private_engine.down(found, purge=True)
    subprocess.run(["ip", "link", "delete", OTHER], capture_output=True, check=False)


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def address(bridge: str) -> str:
    (link,) = json.loads(run("ip", "-json", "-4", "address", "show", "dev", bridge))
    (found,) = (f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"])
    return str(found)


def test_the_bridge_has_the_subnet_of_its_rules_after_another_engine_took_the_old_one(place):
    bridge = private_engine.up(place).bridge
    before = address(bridge)
    private_engine.down(place)
    run("ip", "link", "add", OTHER, "type", "bridge")
    run("ip", "address", "add", before, "dev", OTHER)
    private_engine.up(place)
    rule = re.search(rf"-s (\S+)\.0/24 ! -o {bridge} ", run("iptables-save", "-t", "nat"))
    assert rule is not None
    assert address(bridge) == f"{rule[1]}.1/24" != before
