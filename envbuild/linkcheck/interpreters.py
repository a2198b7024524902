"""Check that the image has the interpreter of each program: the dynamic loader, which the kernel starts first."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from envbuild.errors import InvalidInputError
from envbuild.linkcheck.loader import DEFAULT_FOLDERS, LOADER
from envbuild.linkcheck.model import ElfFacts, Gap
from envbuild.linkcheck.rules import LinkRules
from envbuild.linkcheck.tree import Tree

_GLIBC = "libc.so.6"
_MUSL = "/lib/ld-musl-x86_64.so.1"


def refuse_musl(tree: Tree) -> None:
    """Raise :class:`InvalidInputError` (``other-c-library``) if the image is for musl, and has no glibc."""
    if tree.real(_MUSL) is None or _has_glibc(tree):
        return
    raise InvalidInputError(
        f"The image is for the C library musl: it has {_MUSL}, and no glibc. `linkcheck` knows only how the loader of glibc "
        "searches for libraries.",
        code="other-c-library",
        hint="Use an image with glibc, such as one of Debian or Ubuntu. In a container of this image, `ldd FILE` shows which "
        "libraries a file loads.",
    )


def _has_glibc(tree: Tree) -> bool:
    paths = (LOADER, *(f"{folder}/{_GLIBC}" for folder in DEFAULT_FOLDERS))
    found = (facts for path in paths if (facts := tree.facts(tree.real(path) or "")) is not None)
    return any(version.startswith("GLIBC_") for facts in found for version in facts.defines)


def absent(objects: Mapping[str, ElfFacts], tree: Tree) -> dict[str, str]:
    """The programs that cannot start, because the image lacks their interpreter: path → interpreter.

    A library may name an interpreter, too, but is loaded without it.
    """
    return {
        path: facts.interpreter
        for path, facts in objects.items()
        if facts.interpreter.startswith("/") and not facts.soname and tree.real(facts.interpreter) is None
    }


def is_for_other_library(facts: ElfFacts) -> bool:
    """Whether a program is for another C library than glibc."""
    return posixpath.basename(facts.interpreter) != posixpath.basename(LOADER) and _GLIBC not in facts.needed


def gaps(lacking: Mapping[str, str], objects: Mapping[str, ElfFacts], tree: Tree, rules: LinkRules) -> Iterable[Gap]:
    """The gaps for the programs in ``lacking``, the result of :func:`absent`: one for all programs with the same interpreter.
    Programs for another C library are excused, because the image works without them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path, interpreter in lacking.items():
        reason = rules.excuse(path, interpreter)
        if not reason and is_for_other_library(objects[path]):
            reason = f"a program for another C library: the image has no {interpreter}"
        groups.setdefault((interpreter, reason), []).append(path)
    for (interpreter, reason), programs in groups.items():
        yield _gap(interpreter, reason, programs, objects, tree)


def _gap(interpreter: str, reason: str, programs: list[str], objects: Mapping[str, ElfFacts], tree: Tree) -> Gap:
    others = len(programs) - 1
    which = f"the program and {others} other program{'s' if others > 1 else ''}" if others else "the program"
    cause = f"this is the program's interpreter, which is absent, so {which} cannot start"
    target = tree.target(interpreter)
    if target is not None and target != interpreter:
        cause += f"; the path leads to {target}"
    name = posixpath.basename(interpreter)
    place = next((path for path, facts in objects.items() if name in (facts.soname, posixpath.basename(path))), "")
    if place:
        cause += f"; the image has {place}"
        remedy = f"make the link {interpreter} to {place}"
    else:
        remedy = f"install the package with {interpreter}, or link the program again for the interpreter {LOADER}"
    return Gap(kind="library", object=programs[0], needs=interpreter, cause=cause, remedy=remedy, excuse=reason)
