"""Runs on several machines by the launchers that they have: what each is told, as data in images/launchers/."""

from __future__ import annotations

from envbuild.launch.hosts import Host, read_hosts
from envbuild.launch.launchers import Kind, Launcher, choose, load_launchers
from envbuild.launch.rendering import Order, render

__all__ = ["Host", "Kind", "Launcher", "Order", "choose", "load_launchers", "read_hosts", "render"]
