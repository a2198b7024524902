"""The values of the link check: facts of files, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class RequiredDriver:
    """The driver on which an image must run. ``version`` is empty if any driver is enough. ``whose`` says where the driver
    comes from.

    ``is_named`` is true if the user named the driver. Notes then say what cannot be checked for this driver.
    """

    version: str = ""
    whose: str = ""
    is_named: bool = False


NO_DRIVER = RequiredDriver()


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """The facts about one ELF file that the check uses.

    ``versions`` maps each needed library to the symbol versions that the library must define. ``defines`` are the symbol
    versions that the file itself defines. ``wanted`` and ``offers`` contain only symbols that match a pattern of the rules:
    ``wanted`` are undefined in the file, and ``offers`` are exported by the file.

    ``needed_symbols`` maps each library and each version to the undefined symbols that the file needs in this version; symbols
    that may be absent (weak ones) are left out. ``offered_symbols`` maps each version to the symbols that the file exports in
    this version. The symbols without a version are listed under an empty version. A file that defines no versions lists only
    its symbols without C++ names. In each text, spaces separate the symbols.

    ``opens`` are names of libraries that occur as strings in the file, which probably opens these libraries at run time: those
    of the driver, and those that a pattern of the rules matches. ``hides_symbols`` is true if the
    symbols of the file could not be read. ``has_no_default_folders`` is true if the loader must not search the default folders
    for the libraries that the file needs.

    ``native`` are the GPUs for which the file itself has native code. ``ptx`` are the GPUs for which the file itself has PTX.
    ``some_native`` and ``some_ptx`` are GPUs for which only some kernels have code, if the file does not show which GPUs it was
    compiled for.
    If the file is a compiler for GPUs, ``architectures`` are the GPUs for which it compiles. If the file is glibc's dynamic
    loader, ``default_folders`` are the folders that it searches last. ``hides_code`` is true if the file has GPU code in a
    format that is not read, or may have GPU code because UPX packed it.
    """

    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    has_no_default_folders: bool = False
    interpreter: str = ""
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    needed_symbols: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    offered_symbols: Mapping[str, str] = field(default_factory=dict)
    hides_symbols: bool = False
    opens: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    some_native: tuple[str, ...] = ()
    some_ptx: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    default_folders: tuple[str, ...] = ()
    hides_code: bool = False
    damage: str = ""


@dataclass(kw_only=True, slots=True)
class LayerFacts:
    """The facts of one layer. All paths are absolute. ``removed`` are the paths that the layer's whiteouts remove. In an
    ``opaque`` folder, all files of lower layers are hidden. ``other_processors`` are ELF files for other processors.

    ``texts`` holds the few small files that the loader or the check reads (as latin-1).
    """

    objects: dict[str, ElfFacts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    other_processors: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Something that an object needs and the loader does not find. If a rule allows this gap, ``excuse`` is the rule's
    reason."""

    kind: Literal["library", "version", "symbol", "damaged", "driver", "compiler"]
    object: str
    needs: str
    cause: str
    remedy: str = ""
    excuse: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """One of several files of the same library. ``users`` is the number of objects that load this file."""

    path: str
    users: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicate:
    """A library that the image has as several files. The first copy is the one that most objects load.

    ``newer`` is a copy with more symbols than the first copy, if such a copy exists. ``lacks`` are symbols that ``newer`` has
    and the first copy lacks.
    """

    library: str
    copies: tuple[Copy, ...]
    newer: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkReport:
    """The result of a link check. ``facts`` are all sections of the report except the gaps, ready for JSON."""

    objects: int
    libraries: int
    gaps: tuple[Gap, ...]
    excused: tuple[Gap, ...]
    duplicates: tuple[Duplicate, ...]
    facts: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no gaps."""
        return not self.gaps
