"""The rules of the link check. People write them in ``images/linking.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import NamedTuple

from envbuild import rule_files, yaml_reader
from envbuild.linkcheck.elf_facts import Wanted
from envbuild.rule_files import regular_expression
from envbuild.workspace import LINK_RULES

# Tools that repair wheels, such as auditwheel, add a hash to the names of libraries: libcudart-5a077122.so.12.0.107.
_HASH = f"[-.]{'[0-9a-f]' * 8}"
_NUMBER = rf"(?:{_HASH})?\.so\.(\d+)(?:\.\d+)*"
# These libraries have the same major version as CUDA. Others do not: libcufft.so.11 belongs to CUDA 12.
OF_CUDA = re.compile(rf"lib(?:cudart|cublas|cublasLt){_NUMBER}")
# NVIDIA's tools for developers have this version, too, but do not show which driver an image needs.
WITH_NUMBER_OF_CUDA = re.compile(rf"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti){_NUMBER}")

STUBS = "/stubs/"  # a folder of stub libraries by NVIDIA, which serve only to link programs: their functions do nothing


class Wheel(NamedTuple):
    """A Python package with libraries: the major version of CUDA for which it is, and the first numbers of the libraries. For
    example, libcufft.so.11 has the number 11. Each of the two is empty if it does not matter."""

    name: str
    cuda: str = ""
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Libraries of one kind. ``symbols`` is a pattern for the beginnings of their symbols; it may be empty. ``wheels`` are the
    Python packages that contain the libraries."""

    name: str
    libraries: tuple[str, ...]
    symbols: str
    wheels: tuple[Wheel, ...] = ()

    @property
    def is_of_vendor(self) -> bool:
        """Whether the libraries are NVIDIA's own, so that all of their GPU code is theirs. NVIDIA's wheels have its name."""
        return any(each.name.startswith("nvidia-") for each in self.wheels)

    def has(self, library: str) -> bool:
        """Whether a file of this name is a library of the family."""
        return _is_named(library, self.libraries)


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverLibrary:
    """A library that comes with the machine's NVIDIA driver."""

    name: str
    library: str
    symbols: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """A compiler for GPUs, and the patterns of its file names."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """A pattern of libraries that are loaded before other objects in the same site-packages folder need them. The rule holds
    only if this folder has a file that matches one of ``packages``: a package that loads the libraries."""

    libraries: str
    packages: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Opens:
    """Libraries that objects open by name at run time: all ``libraries``, and each constant of the object that matches the
    regular expression ``names``.

    With ``packages``, ``objects`` is a pattern that begins in a site-packages folder, and the rule holds only if this folder
    has a file that matches one of ``packages``. Without, ``objects`` is a pattern of file names. ``works_without_gpu`` is true
    if the package also serves on machines without a GPU; there, it needs none of these libraries.
    """

    objects: str
    reason: str
    packages: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    names: str = ""
    works_without_gpu: bool = False

    def has(self, file: str) -> bool:
        """Whether a file of this name is one of the objects, in a rule without ``packages``."""
        return not self.packages and _is_named(file, [self.objects])


@dataclass(frozen=True, kw_only=True, slots=True)
class Optional:
    """Objects that are never loaded in ordinary use, and the libraries or symbols that they may lack."""

    objects: str
    needs: str
    reason: str


def any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression that matches every text that one of these file name patterns matches."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


def _with_hash(pattern: str) -> tuple[str, ...]:
    """The pattern of a library, and the pattern of the same library with a hash in its name."""
    stem, mark, version = pattern.partition(".so")
    return (pattern, f"{stem}{_HASH}{mark}{version}") if mark else (pattern,)


def _is_named(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(file, each) for pattern in patterns for each in _with_hash(pattern))


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRules:
    """All rules of the link check."""

    families: tuple[Family, ...] = ()
    driver: tuple[DriverLibrary, ...] = ()
    compilers: tuple[Compiler, ...] = ()
    loaded_before: tuple[Before, ...] = ()
    opens: tuple[Opens, ...] = ()
    optional: tuple[Optional, ...] = ()

    def wanted(self) -> Wanted:
        """The patterns that say what to read from each file."""
        symbols = "|".join(filter(None, [*(each.symbols for each in self.families), *(each.symbols for each in self.driver)]))
        drivers = (re.escape(each.library.removesuffix(".1")) for each in self.driver)
        names = (rf"(?:{each.names})(?=\0)" for each in self.opens if each.names)
        constants = "|".join((*drivers, *names))
        return Wanted(
            symbols=re.compile(f"(?:{symbols or '(?!)'})".encode()),
            constants=re.compile(f"(?:{constants or '(?!)'})".encode()),
            compilers=any_of(name for each in self.compilers for file in each.files for name in _with_hash(file)),
            vendor=any_of(
                name
                for each in self.families
                if each.is_of_vendor
                for library in each.libraries
                for name in _with_hash(library)
            ),
        )

    def compiler_of(self, file: str) -> str:
        """The name of the compiler for GPUs to which a file of this name belongs; empty for other files."""
        found = (each.name for each in self.compilers if _is_named(file, each.files))
        return next(found, "")

    def family_of(self, library: str) -> Family | None:
        """The family to which a file of this name belongs, or None."""
        return next((each for each in self.families if each.has(library)), None)

    def wheel_of(self, library: str, cuda: str) -> str:
        """The wheel that contains the library for the major version ``cuda`` of CUDA. If ``cuda`` is empty, the number of the
        library must be that of one CUDA only. The result is empty if no wheel is known."""
        family = self.family_of(library)
        if family is None:
            return ""
        number = library.partition(".so.")[2].partition(".")[0]
        fitting = [
            each
            for each in family.wheels
            if (not each.numbers or not number or number in each.numbers) and (not each.cuda or cuda in ("", each.cuda))
        ]
        return fitting[0].name if len(fitting) == 1 else ""

    def excuse(self, path: str, needs: str) -> str:
        """The reason why the object at ``path`` may lack the library or symbol ``needs``; empty if no rule allows this."""
        found = (each for each in self.optional if fnmatchcase(path, each.objects) and fnmatchcase(needs, each.needs))
        return next((each.reason for each in found), "")


def load(images: Path) -> LinkRules:
    """Read the rules in ``images/linking.yaml``. Raises :class:`InvalidInputError` with all problems of the file."""
    return rule_files.load(images, LINK_RULES, "The rules for links", _rules)


def _rules(table: yaml_reader.Table, sources: set[str]) -> LinkRules:
    return LinkRules(
        families=tuple(_family(each) for each in table.tables("families", required=True)),
        driver=tuple(_driver(each) for each in table.tables("driver", required=True)),
        compilers=tuple(_compiler(each) for each in table.tables("compilers", required=True)),
        loaded_before=tuple(_before(each, sources) for each in table.tables("loaded_before", required=True)),
        opens=tuple(_opens(each, sources) for each in table.tables("opens", required=True)),
        optional=tuple(_optional(each, sources) for each in table.tables("optional", required=True)),
    )


def _family(table: yaml_reader.Table) -> Family:
    found = Family(
        name=table.text("name"),
        libraries=table.texts("libraries", required=True),
        symbols=regular_expression(table, "symbols") if "symbols" in table else "",
        wheels=(*_wheels(table), *([Wheel(table.text("wheel"))] if "wheel" in table else ())),
    )
    table.finish()
    return found


def _wheels(table: yaml_reader.Table) -> Iterator[Wheel]:
    for cuda, text in table.text_map("wheels").items():
        name, *numbers = text.split() or [""]
        if not name or not cuda.isdigit():
            table.problem("must map a major version of CUDA to the name of a wheel", "wheels")
        yield Wheel(name, cuda, tuple(numbers))


def _driver(table: yaml_reader.Table) -> DriverLibrary:
    found = DriverLibrary(name=table.text("name"), library=table.text("library"), symbols=regular_expression(table, "symbols"))
    table.finish()
    return found


def _compiler(table: yaml_reader.Table) -> Compiler:
    found = Compiler(name=table.text("name"), files=table.texts("files", required=True))
    table.finish()
    return found


def _before(table: yaml_reader.Table, sources: set[str]) -> Before:
    table.text("source", choices=sources)
    found = Before(
        libraries=table.text("libraries"), packages=table.texts("packages", required=True), reason=table.text("reason")
    )
    table.finish()
    return found


def _opens(table: yaml_reader.Table, sources: set[str]) -> Opens:
    table.text("source", choices=sources)
    found = Opens(
        objects=table.text("objects"),
        packages=table.texts("packages"),
        libraries=table.texts("libraries", required="names" not in table),
        names=regular_expression(table, "names") if "names" in table else "",
        reason=table.text("reason"),
        works_without_gpu=table.boolean("works_without_gpu"),
    )
    table.finish()
    return found


def _optional(table: yaml_reader.Table, sources: set[str]) -> Optional:
    table.text("source", choices=sources)
    found = Optional(objects=table.text("objects"), needs=table.text("needs"), reason=table.text("reason"))
    table.finish()
    return found
