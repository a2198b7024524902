"""Every name of a framework means this framework, even if a package name begins with the name."""

from __future__ import annotations

from real_matrix import FACTS

from envbuild.resolve.request.parser import parse


def test_a_framework_is_meant_by_each_of_its_names_before_a_version() -> None:
    for table in FACTS.frameworks:
        version = table.releases[0].version
        for name in {table.name, table.short, *table.aliases}:
            (wanted,) = parse([f"{name}-{version}"], matrix=FACTS).wanted
            assert (wanted.framework.name, wanted.version.lstrip("=")) == (table.name, version)
