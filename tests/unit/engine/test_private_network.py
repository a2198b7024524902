"""The private engine's subnet and rules."""

from __future__ import annotations

import ipaddress

import pytest

from envbuild.engine import private_network
from envbuild.errors import EngineError


def test_the_subnet_avoids_what_is_taken():
    assert private_network.choose_subnet([]) == "10.213.0.0/24"
    assert private_network.choose_subnet(["10.213.0.0/24", "10.213.1.7/32", "fd00::/8", "127.0.0.0/8"]) == "10.213.2.0/24"


def test_no_subnet_left_is_an_error_and_not_a_clash():
    with pytest.raises(EngineError) as caught:
        private_network.choose_subnet(["10.0.0.0/8"])
    assert caught.value.code == "no-network"


def test_every_rule_carries_the_bridges_mark():
    rules = private_network.rules("envb12345678", "10.213.0.0/24")
    assert {(r.table, r.chain) for r in rules} == {("nat", "POSTROUTING"), ("filter", "FORWARD")}
    assert all("envbuild:envb12345678" in rule.words for rule in rules)


def test_gateways_are_inside_their_subnet():
    subnet = ipaddress.ip_network(private_network.choose_subnet([]))
    assert str(next(subnet.hosts())).endswith(".1")
