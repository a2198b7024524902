"""What a package offers, imported when it is first asked for: a cold start pays for what it uses, not for its neighbours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module


def exported(package: str, **modules: str) -> Callable[[str], object]:
    """The ``__getattr__`` (PEP 562) of ``package``: its modules by name, each with the names that it offers."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def look_up(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
