"""Check names from a package index or a lock before they are used. Pure.

These names become parts of paths, addresses and shell commands in Dockerfiles. This use is safe only because of these checks.
"""

from __future__ import annotations

import re

# Linux's file systems allow file names of 255 bytes. This limit leaves room for `.NAME.part` and `.NAME.lock`.
LONGEST_FILE_NAME = 240
# Longer versions are jokes or attacks. They would also cause errors: Python refuses to read numbers of more than 4300 digits.
LONGEST_VERSION = 100
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._!+-]*", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._!+~:%,@=-]*", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*", re.ASCII)


def is_file_name(text: str) -> bool:
    """Whether ``text`` is the plain file name of a wheel or source archive, in the form that the packaging standards
    require."""
    return len(text) <= LONGEST_FILE_NAME and _FILE.fullmatch(text) is not None


def is_plain_name(text: str) -> bool:
    """Whether ``text`` is a file name without a folder. All characters that occur in file names of system packages are
    allowed."""
    return len(text) <= LONGEST_FILE_NAME and _PLAIN.fullmatch(text) is not None


def is_package_name(text: str) -> bool:
    """Whether ``text`` can be the name of a distribution (PEP 508)."""
    return len(text) <= LONGEST_FILE_NAME and _PACKAGE.fullmatch(text) is not None


def is_version(text: str) -> bool:
    """Whether ``text`` has only characters that occur in versions. ``text`` need not be a valid version by PEP 440."""
    return len(text) <= LONGEST_VERSION and _VERSION.fullmatch(text) is not None
