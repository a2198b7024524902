"""Runs on several machines by the launchers that they have: what each is told, as data in images/launchers/."""

from __future__ import annotations

from envbuild.launch.hosts import Host, read_hosts
from envbuild.launch.images import has_registry, require_reachable
from envbuild.launch.launchers import Kind, Launcher, choose, load_launchers
from envbuild.launch.preflight import SCRIPT, HostReport, Looked, judge, questions
from envbuild.launch.programs import Contents, Program, load_programs, require_programs
from envbuild.launch.rendering import USER, Order, render
from envbuild.launch.settings import (
    Settings,
    Toleration,
    read_label,
    read_memory,
    read_sbatch,
    read_time,
    read_toleration,
    read_word,
)

__all__ = [
    "SCRIPT",
    "USER",
    "Contents",
    "Host",
    "HostReport",
    "Kind",
    "Launcher",
    "Looked",
    "Order",
    "Program",
    "Settings",
    "Toleration",
    "choose",
    "has_registry",
    "judge",
    "load_launchers",
    "load_programs",
    "questions",
    "read_hosts",
    "read_label",
    "read_memory",
    "read_sbatch",
    "read_time",
    "read_toleration",
    "read_word",
    "render",
    "require_programs",
    "require_reachable",
]
