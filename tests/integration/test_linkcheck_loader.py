"""The search of the link check, compared with glibc's own loader on libraries that are compiled here."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.linkcheck import checking, layer_facts
from envbuild.linkcheck.elf_facts import Wanted
from envbuild.linkcheck.loader import Loader
from envbuild.linkcheck.rules import LinkRules
from envbuild.linkcheck.tree import Tree

LOADER = Path("/lib64/ld-linux-x86-64.so.2")
COMPILER = shutil.which("cc") or shutil.which("gcc") or ""
WANTED = Wanted(symbols=re.compile(b"(?!)"), constants=re.compile(b"(?!)"))
_TRACED = re.compile(r"\t(?:(?P<name>\S+) => )?(?P<path>/\S+|not found)(?: \(0x[0-9a-f]+\))?")
_LIBC = next((path for path in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6") if Path(path).exists()), "")
_FAILED = re.compile(
    r"(\S+): cannot open shared object file"
    r"|: (/\S+): (?:file too short|invalid ELF header|ELF file OS ABI|cannot read file data)"
)

pytestmark = pytest.mark.skipif(not (COMPILER and LOADER.exists() and _LIBC), reason="no C compiler, or no glibc")


class Place:
    """A folder of compiled programs and libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "empty.c").write_text("void _start(void) {}\n")

    def add(
        self,
        path: str,
        *needed: str,
        soname: str = "",
        rpath: str = "",
        runpath: str = "",
        program: bool = False,
        more: tuple[str, ...] = (),
    ) -> None:
        """Compile a library that needs others under these names, without a C library, or a program. ``@`` in a search path
        stands for the folder. ``more`` are further options of the compiler."""
        out = self.folder / path
        out.parent.mkdir(parents=True, exist_ok=True)
        options = ["-pie" if program else "-shared", *more]
        options += [f"-Wl,-soname,{soname}"] if soname else []
        search = (rpath or runpath).replace("@", str(self.folder))
        options += [f"-Wl,--{'disable' if rpath else 'enable'}-new-dtags,-rpath,{search}"] if search else []
        for number, name in enumerate(needed):
            stub = self.folder / f"stub{number}"
            _compile(self.folder / "empty.c", stub, "-shared", f"-Wl,-soname,{name}")
            options.append(str(stub))
        _compile(self.folder / "empty.c", out, "-Wl,--no-as-needed,--allow-shlib-undefined", *options)

    def text(self, path: str, content: str | bytes) -> None:
        """Write a file."""
        out = self.folder / path
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        out = self.folder / path
        out.parent.mkdir(parents=True, exist_ok=True)
        out.symlink_to(target)

    def tree(self) -> Tree:
        """All files of the folder, at their own paths, and the system's loader and C library."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(LOADER.resolve(), arcname=str(LOADER))
            tar.add(os.path.realpath(_LIBC))
            tar.add(self.folder, arcname=str(self.folder))
        return Tree([layer_facts.read([packed.getvalue()], WANTED, "layer", lambda _size: None)])


def _compile(source: Path, out: Path, *options: str) -> None:
    subprocess.run([COMPILER, "-nostdlib", "-fPIC", "-o", out, source, *options], check=True)


def of_system(place: Path, variables: dict[str, str], *, is_program: bool) -> tuple[set[str], set[str]]:
    """What the system's loader loads, as paths without links; and the names or files at which it fails."""
    command = [str(place)] if is_program else [str(LOADER), "--list", str(place)]
    asked = {**variables, "LD_TRACE_LOADED_OBJECTS": "1"} if is_program else variables
    told = subprocess.run(command, env=asked, cwd="/", capture_output=True, text=True, errors="surrogateescape", check=False)
    lines = [match for line in told.stdout.splitlines() if (match := _TRACED.fullmatch(line))]
    loaded = {os.path.realpath(each["path"]) for each in lines if each["path"] != "not found"}
    failed = {each["name"] for each in lines if each["path"] == "not found"}
    failed |= {match[1] or match[2] for match in _FAILED.finditer(told.stderr)}
    assert told.returncode == 0 or failed, told.stderr
    return loaded - {str(LOADER.resolve()), os.path.realpath(place)}, failed


def compared(place: Place, path: str, **variables: str) -> tuple[set[str], set[str]]:
    """The answer of the system's loader, after a check that ours is the same."""
    at = place.folder / path
    real = os.path.realpath(at)
    told = {name: value.replace("@", str(place.folder)) for name, value in variables.items()}
    tree = place.tree()
    facts = tree.facts(real)
    assert facts is not None
    loaded, failed = of_system(at, told, is_program=bool(facts.interpreter))
    process = Loader(tree, told).load(real, program=str(at) if facts.interpreter else None, held={})
    assert process is not None
    assert {each.refused or each.name for each in process.missing} == failed
    if not failed:  # if something is missing, the loader does not list the rest
        assert {each.real for each in process.order} - {real, str(LOADER)} == loaded
    prefix = f"{place.folder}/"
    return {each.removeprefix(prefix) for each in loaded}, {each.removeprefix(prefix) for each in failed}


def _link_to_python(place: Place) -> None:
    place.add("python/bin/python3", "libpy.so.1", program=True, rpath="$ORIGIN/../lib")
    place.add("python/lib/libpy.so.1", soname="libpy.so.1")
    place.link("app", "python/bin/python3")


def _parent_of_a_linked_folder(place: Place) -> None:
    place.add("cuda-12/targets/x/lib/liba.so", "libb.so", soname="liba.so", runpath="$ORIGIN/../own")
    place.add("cuda-12/targets/x/own/libb.so", soname="libb.so")
    place.link("cuda-12/lib64", "targets/x/lib")
    place.add("app", "liba.so", runpath="@/cuda-12/lib64")


def _parent_of_a_folder_that_is_absent(place: Place) -> None:
    place.add("app", "liba.so", runpath="@/absent/../own")
    place.add("own/liba.so")


def _preloaded(place: Place) -> None:
    place.add("app", "liba.so.1", program=True, rpath="@/old")
    place.add("old/liba.so.1", soname="liba.so.1")
    place.add("new/liba.so.1", "libb.so", soname="liba.so.1", runpath="$ORIGIN")
    place.add("new/libb.so", soname="libb.so")


def _preload_without_its_library(place: Place) -> None:
    place.add("app", "libb.so", program=True, rpath="@/own")
    place.add("own/libb.so")
    place.add("new/liba.so", "libgone.so")


def _inherited_paths(place: Place) -> None:
    place.add("app", "libm1.so", rpath="@/own")
    place.add("own/libm1.so", "libm2.so", soname="libm1.so", runpath="$ORIGIN")
    place.add("own/libm2.so", "libm3.so", soname="libm2.so")
    place.add("own/libm3.so", soname="libm3.so")


def _runpath_is_not_inherited(place: Place) -> None:
    place.add("app", "libm1.so", runpath="@/own")
    place.add("own/libm1.so", "libm2.so", soname="libm1.so")
    place.add("own/libm2.so", soname="libm2.so")


def _two_names(place: Place) -> None:
    place.add("app", "liba.so", "liba.so.1", "libreal.so.2", runpath="@")
    place.add("liba.so.1", soname="libreal.so.2")
    place.link("liba.so", "liba.so.1")


def _name_of_the_object_itself(place: Place) -> None:
    place.add("app", "libb.so", runpath="@/own")
    place.add("own/libb.so", "app", soname="libb.so")


def _with_variables(place: Place) -> None:
    library = Path(os.path.realpath("/lib/x86_64-linux-gnu")) if Path("/lib/x86_64-linux-gnu").exists() else Path("/lib64")
    place.add("app", "liba.so", "libb.so", runpath="@/${LIB}:@/$PLATFORM")
    place.add(f"{'lib64' if library.name == 'lib64' else 'lib/x86_64-linux-gnu'}/liba.so")
    place.add("x86_64/libb.so")


def _needs_one(place: Place) -> None:
    place.add("app", "liba.so", runpath="@/first:@/second")
    place.add("second/liba.so")


def _first_is(content: str | bytes) -> Callable[[Place], None]:
    def made(place: Place) -> None:
        _needs_one(place)
        place.text("first/liba.so", content)

    return made


def _first_has(at: int, byte: int) -> Callable[[Place], None]:
    """The first library is a copy of the second, with another byte in its ELF header."""

    def made(place: Place) -> None:
        _needs_one(place)
        content = bytearray((place.folder / "second/liba.so").read_bytes())
        content[at] = byte
        place.text("first/liba.so", bytes(content))

    return made


def _by_the_program(place: Place) -> None:
    place.add("bin/app", "liba.so", program=True)
    place.add("own/liba.so")
    place.link("app", "bin/app")


def _needs_the_c_library(*more: str) -> Callable[[Place], None]:
    return lambda place: place.add("app", "libc.so.6", program=True, more=more)


def _folder_first(place: Place) -> None:
    _needs_one(place)
    (place.folder / "first/liba.so").mkdir(parents=True)


def _filter(place: Place) -> None:
    place.add("app", "liba.so", runpath="@")
    place.add("liba.so", soname="liba.so", runpath="@/own", more=("-Wl,-F,libb.so", "-Wl,-F,libgone.so"))
    place.add("own/libb.so", soname="libb.so")


def _names_that_are_not_utf8(place: Place) -> None:
    place.add("app", "lib\udce9.so", runpath="@/\udcff")
    place.add("\udcff/lib\udce9.so", soname="lib\udce9.so")


CASES: dict[str, tuple[Callable[[Place], None], dict[str, str], set[str], set[str]]] = {
    "a program that is started through a link": (_link_to_python, {}, {"python/lib/libpy.so.1"}, set()),
    "the parent of a folder behind a link": (
        _parent_of_a_linked_folder, {}, {"cuda-12/targets/x/lib/liba.so", "cuda-12/targets/x/own/libb.so"}, set(),
    ),
    "the parent of a folder that is absent": (_parent_of_a_folder_that_is_absent, {}, set(), {"liba.so"}),
    "a preload wins": (_preloaded, {"LD_PRELOAD": "@/new/liba.so.1"}, {"new/liba.so.1", "new/libb.so"}, set()),
    "a preload without its library": (
        _preload_without_its_library, {"LD_PRELOAD": "@/new/liba.so"}, {"own/libb.so", "new/liba.so"}, {"libgone.so"},
    ),
    "an inherited RPATH": (_inherited_paths, {}, {"own/libm1.so", "own/libm2.so", "own/libm3.so"}, set()),
    "a RUNPATH is not inherited": (_runpath_is_not_inherited, {}, set(), {"libm2.so"}),
    "two names": (_two_names, {}, {"liba.so.1"}, set()),
    "the name of the object itself": (_name_of_the_object_itself, {}, set(), {"app"}),
    "variables": (_with_variables, {}, {"lib/x86_64-linux-gnu/liba.so", "x86_64/libb.so"}, set()),
    "semicolons": (_by_the_program, {"LD_LIBRARY_PATH": "/nowhere;@/own"}, {"own/liba.so"}, set()),
    "ORIGIN in a variable": (_by_the_program, {"LD_LIBRARY_PATH": "$ORIGIN/../own"}, {"own/liba.so"}, set()),
    "a text": (_first_is("libother.so.1" * 100), {}, set(), {"first/liba.so"}),
    "an empty file": (_first_is(""), {}, set(), {"first/liba.so"}),
    "another system": (_first_has(7, 9), {}, set(), {"first/liba.so"}),
    "another processor": (_first_has(18, 183), {}, {"second/liba.so"}, set()),
    "a folder": (_folder_first, {}, set(), {"first/liba.so"}),
    "the C library needs the loader": (_needs_the_c_library(), {}, {os.path.realpath(_LIBC)}, set()),
    "no default folders": (_needs_the_c_library("-Wl,-z,nodefaultlib"), {}, set(), {"libc.so.6"}),
    "a filter": (_filter, {}, set(), {"libgone.so"}),
    "names that are not UTF-8": (_names_that_are_not_utf8, {}, {"\udcff/lib\udce9.so"}, set()),
    "an absent preload": (_by_the_program, {"LD_PRELOAD": "@/gone.so", "LD_LIBRARY_PATH": "@/own"}, {"own/liba.so"}, set()),
    "a preload that is no library": (
        _by_the_program, {"LD_PRELOAD": "@/empty.c", "LD_LIBRARY_PATH": "@/own"}, {"own/liba.so"}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_system_agrees(name: str, tmp_path: Path) -> None:
    make, variables, loaded, failed = CASES[name]
    place = Place(tmp_path.resolve())
    make(place)
    found: Any = compared(place, "app", **variables)
    assert found == (loaded, failed)


def test_the_system_agrees_about_a_loop_of_links(tmp_path: Path) -> None:
    place = Place(tmp_path.resolve())
    _needs_one(place)
    place.link("first/liba.so", "other.so")
    place.link("first/other.so", "../first/liba.so")
    assert of_system(place.folder / "app", {}, is_program=False)[1] == {"liba.so"}
    process = Loader(place.tree(), {}).load(str(place.folder / "app"), program=None, held={})
    assert process is not None and [each.refused for each in process.missing] == [str(place.folder / "first/liba.so")]
    (place.folder / "first/other.so").unlink()  # the link now leads nowhere, and the search goes on
    assert compared(place, "app") == ({"second/liba.so"}, set())


@pytest.mark.parametrize(("interpreter", "works"), [("@/ld.so", True), ("@/links/ld.so", False), ("@/gone/ld.so", False)])
def test_the_system_agrees_about_interpreters(interpreter: str, works: bool, tmp_path: Path) -> None:
    place = Place(tmp_path.resolve())
    path = interpreter.replace("@", str(place.folder))
    place.add("app", "libc.so.6", program=True, more=(f"-Wl,--dynamic-linker={path}",))
    place.link("ld.so", str(LOADER))
    place.link("links/ld.so", "../own/ld.so")
    found = checking.check(place.tree(), {}, LinkRules(), is_of_driver=lambda _: False, package_of=lambda _: "")
    told = [gap.needs for gap in found.gaps if gap.object == str(place.folder / "app")]
    if works:
        of_system(place.folder / "app", {}, is_program=True)
        assert not told
    else:
        with pytest.raises(FileNotFoundError):  # the kernel says that a file is absent: the interpreter
            subprocess.run([str(place.folder / "app")], check=False)
        assert told == [path]


PROGRAM = "int foo(void); int bar(void); void _start(void) { foo(); bar(); }"
WEAK = "int foo(void); __attribute__((weak)) int bar(void); void _start(void) { foo(); if (bar) bar(); }"
FOO, BAR, BOTH = (
    "int foo(void) { return 0; }",
    "int bar(void) { return 0; }",
    "int foo(void) { return 0; } int bar(void) { return 0; }",
)
NEEDED = "V1 { global: foo; }; V2 { global: bar; } V1;"
# For each case: the program, the source and the versions of the library that replaces the one for which the program was linked,
# those of another library that the program needs, and whether the loader finds `bar` of version V2.
VERSIONS: dict[str, tuple[str, tuple[str, str], tuple[str, str] | None, bool]] = {
    "the same versions": (PROGRAM, (BOTH, NEEDED), None, True),
    "the version without the symbol": (PROGRAM, (FOO, "V1 { global: foo; }; V2 { } V1;"), None, False),
    "the symbol in another version": (PROGRAM, (BOTH, "V1 { global: foo; bar; }; V2 { } V1;"), None, False),
    "a weak symbol": (WEAK, (FOO, "V1 { global: foo; }; V2 { } V1;"), None, True),
    "no versions": (PROGRAM, (BOTH, ""), None, True),
    "the symbol without a version": (PROGRAM, (BOTH, "V1 { global: foo; }; V2 { } V1; "), (BAR, ""), True),
    "the symbol in another library": (PROGRAM, (FOO, "V1 { global: foo; }; V2 { } V1;"), (BAR, "V2 { global: bar; };"), True),
    "another version in another library": (
        PROGRAM, (FOO, "V1 { global: foo; }; V2 { } V1;"), (BAR, "V9 { global: bar; };"), False,
    ),
    "a version that is not the default": (
        PROGRAM,
        ('__asm__(".symver old, bar@V2"); int old(void) { return 0; } ' + FOO, "V1 { global: foo; }; V2 { global: bar; } V1;"),
        None,
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERSIONS)
def test_the_system_agrees_about_symbols_with_versions(name: str, tmp_path: Path) -> None:
    program, library, other, works = VERSIONS[name]
    place = Place(tmp_path.resolve())

    def compiled(path: str, source: str, versions: str, *more: str) -> str:
        place.text("source.c", source)
        place.text("versions.map", versions)
        out = place.folder / path
        options = [f"-Wl,--version-script={place.folder}/versions.map"] if versions else []
        _compile(place.folder / "source.c", out, f"-Wl,-soname,{Path(path).name},--no-as-needed", *options, *more)
        return str(out)

    (place.folder / "linked").mkdir()
    linked = [compiled("linked/libz.so.1", BOTH, NEEDED, "-shared")]
    linked += [compiled("libother.so", *other, "-shared")] if other else []
    compiled("app", program, "", "-pie", "-Wl,-z,now", f"-Wl,-rpath,{place.folder},--allow-shlib-undefined", *linked)
    compiled("libz.so.1", *library, "-shared")
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    told = subprocess.run([str(place.folder / "app")], env=asked, capture_output=True, text=True, check=False)
    assert ("undefined symbol: bar" not in told.stdout + told.stderr) is works, told
    found = checking.check(place.tree(), {}, LinkRules(), is_of_driver=lambda _: False, package_of=lambda _: "")
    app = str(place.folder / "app")
    assert [gap.needs for gap in found.gaps if gap.object == app] == ([] if works else ["libz.so.1: bar@V2"])
