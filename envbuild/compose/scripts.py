"""Makes the scripts that installers write into the folder ``bin``, with the same bytes as the scripts of uv 0.13 or pip
20.3."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from envbuild.compose.model import InstallPlace

PLACEHOLDER = b"#!python"  # the first line of a script in a wheel begins with this text; installers replace this line
_LONGEST_FIRST_LINE = 127  # bytes (Linux before 5.1); for longer lines, installers write another form of script

_UV = """\
#!{python}
# -*- coding: utf-8 -*-
import sys
from {module} import {name}
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({function}())
"""
_PIP = """\
#!{python}
# -*- coding: utf-8 -*-
import re
import sys
from {module} import {name}
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit({function}())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script that calls ``function`` of ``module``. An entry point of a wheel names both."""

    name: str
    module: str
    function: str
    is_gui: bool = False

    def text(self, place: InstallPlace) -> bytes:
        """The content of the script."""
        template = _UV if place.installer == "uv" else _PIP
        name = self.function.partition(".")[0]
        return template.format(python=interpreter(place), module=self.module, name=name, function=self.function).encode()


def interpreter(place: InstallPlace) -> str:
    """Return the interpreter that scripts at ``place`` name in their first line."""
    python = f"{place.prefix}/bin/python"
    if len(python) + 3 > _LONGEST_FIRST_LINE or " " in python:
        raise ValueError(f"{python!r} does not fit into the first line of a script")
    return python


def rewrite(script: bytes, place: InstallPlace) -> bytes:
    """Return the ``script`` of a wheel with a first line that names the interpreter instead of the placeholder.

    For uv, a carriage return also ends a line.
    """
    end = re.search(rb"\r\n|\r|\n" if place.installer == "uv" else rb"\n", script)
    rest = script[end.end() :] if end else b""
    return f"#!{interpreter(place)}\n".encode() + rest


def is_replaced(name: str, scripts: Iterable[Script], place: InstallPlace) -> bool:
    """Whether setuptools made the script ``name`` for an entry point of the same name. ``scripts`` are the scripts of all entry
    points. The installer replaces a script of setuptools with its own."""
    if place.installer == "uv":
        found = re.fullmatch(r"(.*?)([.]exe|-script[.]py|[.]pya)?", name, re.DOTALL)
    else:
        found = re.fullmatch(r"(.*?)([.]exe|-script[.]py|[.]pya)?", name, re.DOTALL | re.IGNORECASE)
    assert found
    return any(script.name == found[1] for script in scripts)


def with_versions(scripts: Iterable[Script], place: InstallPlace) -> list[Script]:
    """Return the scripts. The names of pip's and setuptools' scripts get the Python version of ``place``.

    In their wheels, these names contain the version of the Python that built the wheel.
    """
    given = list(scripts)
    console = [script for script in given if not script.is_gui]
    gui = [script for script in given if script.is_gui]
    if place.installer == "uv":
        kept = [script for script in console if not re.fullmatch(r"pip3[.]\+?[0-9]+", script.name)]
        made = [replace(script, name=f"pip{place.python}") for script in kept if script.name == "pip3"]
        return [*kept, *made, *gui]
    major = place.python.partition(".")[0]
    for name, pattern, versions in (
        ("pip", r"pip(\d(\.\d)?)?", (f"pip{major}", f"pip{place.python}")),
        ("easy_install", r"easy_install(-\d\.\d)?", (f"easy_install-{place.python}",)),
    ):
        plain = [script for script in console if script.name == name]
        if plain:
            console = [script for script in console if not re.fullmatch(pattern, script.name)]
            console += [replace(plain[0], name=name) for name in (name, *versions)]
    return [*console, *gui]
