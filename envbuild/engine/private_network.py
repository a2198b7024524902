"""Set up the private engine's bridge and its access to the network, without disturbing other engines on this machine.

Two engines that both manage iptables conflict: on its start, each engine empties the chains that both share
(https://github.com/moby/moby/blob/v20.10.24/libnetwork/drivers/bridge/bridge.go, removeIPChains). So the private engine runs
with ``--iptables=false``, on a bridge with another name. This module adds and removes the three rules that builds of the
private engine need. Each rule is marked with the bridge's name. Published ports need no rule, because docker-proxy forwards
them (see ``daemon``).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import procs
from envbuild.errors import EngineError

_POOL = ipaddress.ip_network("10.213.0.0/16")  # outside of Docker's default pools in 172.17.0.0 to 172.31.0.0 and 192.168.0.0
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule of iptables: its table, its chain and its text."""

    table: str
    chain: str
    words: tuple[str, ...]


def choose_subnet(taken: Iterable[str]) -> str:
    """Return the first /24 network of the pool that overlaps none of ``taken`` (networks in the form ``a.b.c.d/n``)."""
    networks = [ipaddress.ip_network(text, strict=False) for text in taken]
    for candidate in _POOL.subnets(new_prefix=24):
        if not any(candidate.overlaps(n) for n in networks if isinstance(n, ipaddress.IPv4Network)):
            return str(candidate)
    raise EngineError(f"No free subnet is left in {_POOL} for the private engine.", code="no-network")


def taken_subnets() -> list[str]:
    """Return the networks that this machine's routes and addresses use."""
    routes = _ip_json("-4", "route", "show", "table", "all")
    found = [str(route["dst"]) for route in routes if route.get("dst") not in (None, "default")]
    for link in _ip_json("-4", "address", "show"):
        found += [f"{address['local']}/{address['prefixlen']}" for address in link.get("addr_info", [])]
    return found


def up(bridge: str, subnet: str) -> None:
    """Make the bridge and its rules, unless they exist already."""
    gateway = next(ipaddress.ip_network(subnet).hosts())
    length = subnet.partition("/")[2]
    if not exists(bridge):
        _do("ip", "link", "add", bridge, "type", "bridge")
    _do("ip", "address", "replace", f"{gateway}/{length}", "dev", bridge)
    _do("ip", "link", "set", bridge, "up")
    for rule in rules(bridge, subnet):
        if not _has(rule):
            _iptables("-I", rule)
    if _FORWARDING.read_text(encoding="ascii").strip() == "0":
        _FORWARDING.write_text("1", encoding="ascii")


def down(bridge: str) -> None:
    """Remove the bridge, and every rule with the bridge's mark. If they are absent, do nothing.

    IP forwarding stays on, as after every Docker daemon, because other programs may rely on it.
    """
    for table, line in marked_rules(bridge):
        _do("iptables", "-w", "-t", table, "-D", *line.split()[1:])
    if exists(bridge):
        _do("ip", "link", "delete", bridge)


def exists(bridge: str) -> bool:
    """Whether a network interface of this name exists."""
    return Path("/sys/class/net", bridge).exists()


def rules(bridge: str, subnet: str) -> list[Rule]:
    """Return the rules for ``bridge``. With these rules, the containers on the bridge can reach the network. From outside, only
    answers reach the containers."""
    mark = ("-m", "comment", "--comment", mark_of(bridge))
    return [
        Rule(table="nat", chain="POSTROUTING", words=("-s", subnet, "!", "-o", bridge, *mark, "-j", "MASQUERADE")),
        Rule(table="filter", chain="FORWARD", words=("-i", bridge, *mark, "-j", "ACCEPT")),
        Rule(
            table="filter",
            chain="FORWARD",
            words=("-o", bridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", *mark, "-j", "ACCEPT"),
        ),
    ]


def mark_of(bridge: str) -> str:
    """Return the text that marks this bridge's rules, as a comment of iptables."""
    return f"envbuild:{bridge}"


def marked_rules(bridge: str) -> list[tuple[str, str]]:
    """Return every rule with this bridge's mark: its table and its ``-A …`` line."""
    if procs.find("iptables") is None:  # without iptables there are no rules
        return []
    found: list[tuple[str, str]] = []
    for table in ("nat", "filter"):
        listing = procs.run([_program("iptables"), "-w", "-t", table, "-S"], timeout_s=30)
        found += [(table, line.replace('"', "")) for line in listing.output.splitlines() if mark_of(bridge) in line]
    return found


def _has(rule: Rule) -> bool:
    return procs.run([_program("iptables"), "-w", "-t", rule.table, "-C", rule.chain, *rule.words], timeout_s=30).code == 0


def _iptables(verb: str, rule: Rule) -> None:
    _do("iptables", "-w", "-t", rule.table, verb, rule.chain, *rule.words)


def _do(program: str, *words: str) -> None:
    result = procs.run([_program(program), *words], timeout_s=30)
    if result.code != 0:
        raise EngineError(
            f"The private engine's network could not be set up: `{program} {' '.join(words)}` said: {result.output.strip()}",
            code="no-network",
            hint="It needs root with CAP_NET_ADMIN and the kernel's bridge and NAT modules; inside a container, --privileged.",
        )


def _ip_json(*words: str) -> list[dict[str, Any]]:
    answer = procs.run([_program("ip"), "-json", *words], timeout_s=30, split=True)
    parsed: list[dict[str, Any]] = json.loads(answer.output or "[]")
    return parsed


def _program(name: str) -> str:
    found = procs.find(name)
    if found is None:
        package = {"ip": "iproute2"}.get(name, name)
        raise EngineError(
            f"The private engine needs the program {name}, which is not installed.",
            code="missing-program",
            hint=f"Install it: apt-get install {package}.",
        )
    return found
