"""Small images for tests of the link check, as facts without files."""

from __future__ import annotations

from typing import Any

from envbuild.linkcheck import checking
from envbuild.linkcheck.model import ElfFacts, LayerFacts
from envbuild.linkcheck.rules import Before, Family, LinkRules, Optional, Wheel
from envbuild.linkcheck.tree import Tree

SITE = "/opt/env/lib/python3.11/site-packages"
PAINT = f"{SITE}/paint/__init__.py"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
LOADER = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
RULES = LinkRules(
    families=(
        Family(
            name="Brush",
            libraries=("libbrush.so*",),
            symbols="brush[A-Z]",
            wheels=(Wheel("paint-brush-cu11", "11", ("9",)), Wheel("paint-brush-cu12", "12", ("9", "10"))),
        ),
    ),
    loaded_before=(Before(libraries="paint/lib/lib*.so*", packages=("paint/__init__.py",), reason="paint is imported first"),),
    optional=(Optional(objects="*/rare.so", needs="*", reason="nobody uses it"),),
)


def elf(soname: str = "", *needed: str, **more: Any) -> ElfFacts:
    """An object with this soname that needs these libraries."""
    return ElfFacts(soname=soname, needed=needed, **more)


def layer(objects: dict[str, ElfFacts] | None = None, links: dict[str, str] | None = None, **more: Any) -> LayerFacts:
    """A layer with these objects and links."""
    held = objects or {}
    return LayerFacts(objects=held, files=[*held, *more.pop("files", [])], links=links or {}, **more)


def system() -> LayerFacts:
    """The lowest layer: a C library, and a Python that every prefix uses."""
    return layer(
        {
            LIBC: elf("libc.so.6", defines=("libc.so.6", "GLIBC_2.2.5", "GLIBC_2.36")),
            LOADER: elf("ld-linux-x86-64.so.2", defines=("ld-linux-x86-64.so.2", "GLIBC_2.2.5")),
            "/usr/bin/python3.11": elf("", "libc.so.6", interpreter="/lib64/ld-linux-x86-64.so.2"),
        },
        {
            "/lib": "usr/lib",
            "/lib64": "usr/lib64",
            "/usr/lib64/ld-linux-x86-64.so.2": "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
            "/opt/env/bin/python": "/usr/bin/python3.11",
        },
    )


def links(*layers: LayerFacts, rules: LinkRules = RULES, **environment: str) -> checking.Links:
    """Check the system with these layers above it."""
    return checking.check(
        Tree([system(), *layers]),
        environment,
        rules,
        is_of_driver=lambda name: name == "libdriver.so.1",
        package_of=lambda name: {"libGL.so.1": "libgl1"}.get(name, ""),
    )
