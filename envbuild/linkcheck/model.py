"""Values of the link check: facts of files, and what the check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class RequiredDriver:
    """The driver that an image must run on. ``version`` is empty if any driver will do; ``whose`` says where it comes from.

    ``is_named`` is true for a driver that the user named: notes then say what cannot be checked for it.
    """

    version: str = ""
    whose: str = ""
    is_named: bool = False


NO_DRIVER = RequiredDriver()


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """The facts of one ELF file that the check uses.

    ``versions`` maps a needed library to the symbol versions that it must define. ``defines`` are the symbol versions that the
    file itself defines. ``wanted`` are undefined symbols of the families of the rules, ``offers`` the exported ones. ``opens``
    are names of driver libraries in the file's constants. ``native`` and ``ptx`` are the GPUs of its own GPU code.
    ``architectures`` are the GPUs that a compiler for GPUs compiles for. ``hides_code`` is true if the file has GPU code in a
    form that is not read.
    """

    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str = ""
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    hides_code: bool = False
    damage: str = ""


@dataclass(kw_only=True, slots=True)
class LayerFacts:
    """The facts of one layer, by absolute path. ``removed`` are whiteouts; below ``opaque`` nothing of lower layers is seen.

    ``texts`` holds the few small files that the loader or the check reads (latin-1).
    """

    objects: dict[str, ElfFacts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Something that an object needs and the loader does not find. ``excuse`` is the reason if a rule allows it."""

    kind: Literal["library", "version", "symbol", "damaged", "driver", "compiler"]
    object: str
    needs: str
    cause: str
    remedy: str = ""
    excuse: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """One of several files of the same library; ``users`` counts the objects that get this one."""

    path: str
    users: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicate:
    """A library of which the image has several files; the first copy is the one that most objects get.

    If objects get an older copy, ``newer`` is a copy with more symbols, and ``lacks`` are those that the first copy lacks.
    """

    library: str
    copies: tuple[Copy, ...]
    newer: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkReport:
    """The result of a link check. ``facts`` are all sections except the gaps, ready for JSON."""

    objects: int
    libraries: int
    gaps: tuple[Gap, ...]
    excused: tuple[Gap, ...]
    duplicates: tuple[Duplicate, ...]
    facts: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing."""
        return not self.gaps
