"""Planted gaps, each found with its true cause, and healthy images without a gap."""

from __future__ import annotations

from typing import Any

import pytest
from linked_trees import LIBC, LOADER, PAINT, RULES, SITE, elf, layer, links

from envbuild.errors import InvalidInputError
from envbuild.linkcheck import checking
from envbuild.linkcheck.model import ElfFacts
from envbuild.linkcheck.tree import Tree

OWN = ("$ORIGIN/../paint/lib",)


def test_a_healthy_image_has_no_gap():
    found = links(layer({f"{SITE}/a/_a.so": elf("", "libc.so.6", versions={"libc.so.6": ("GLIBC_2.36",)})}))
    assert found.gaps == found.excused == found.duplicates == ()


def test_a_removed_library_is_named_with_its_package():
    (gap,) = links(layer({f"{SITE}/cv2/cv2.so": elf("", "libGL.so.1")})).gaps
    assert (gap.kind, gap.needs, gap.remedy) == ("library", "libGL.so.1", "the package libgl1")
    assert gap.cause == "not found: no file of the image has this name"


def test_a_wheel_of_another_cuda_is_named_with_the_right_one():
    objects = {
        f"{SITE}/a/_a.so": elf("", "libcudart.so.12", "libbrush.so.9"),
        f"{SITE}/x/libbrush.so.8": elf("libbrush.so.8"),
        "/usr/lib/libcudart.so.12": elf("libcudart.so.12"),
    }
    (gap,) = links(layer(objects)).gaps
    assert gap.remedy == "the wheel paint-brush-cu12"
    assert gap.cause == f"not found: the image has another version instead: {SITE}/x/libbrush.so.8"


@pytest.mark.parametrize(
    ("runtime", "library", "remedy"),
    [
        ("libcudart.so.12", "libbrush.so.9", "the wheel paint-brush-cu12"),
        ("libcudart.so.11.0", "libbrush.so.9", "the wheel paint-brush-cu11"),
        ("libcudart.so.10.1", "libbrush.so.9", ""),  # no wheel exists for this CUDA
        ("libcudart.so.11.0", "libbrush.so.10", ""),  # the wheel for this CUDA has another library
        ("libz.so.1", "libbrush.so.9", ""),  # two wheels have it
        ("libz.so.1", "libbrush.so.10", "the wheel paint-brush-cu12"),
    ],
)
def test_a_wheel_is_named_only_if_it_exists_for_the_cuda_of_the_object(runtime: str, library: str, remedy: str):
    objects = {f"{SITE}/a/_a.so": elf("", "libcufft.so.10", runtime, library), f"/usr/lib/{runtime}": elf(runtime)}
    (gap,) = (each for each in links(layer(objects)).gaps if each.needs == library)
    assert gap.remedy == remedy


@pytest.mark.parametrize(
    ("others", "remedy"),
    [
        ([elf("libcudart.so.12")], "the wheel paint-brush-cu12"),
        ([elf("libnvrtc.so.11.2")], "the wheel paint-brush-cu11"),
        ([elf("liba.so", "libcublas.so.12")], "the wheel paint-brush-cu12"),
        ([elf("libcudart.so.12"), elf("libb.so", "libcublas.so.11")], "the wheel paint-brush-cu12"),
        ([elf("libcudart.so.12"), elf("libcudart.so.11.0")], ""),
        ([elf("liba.so", "libcublas.so.12"), elf("libb.so", "libcublas.so.11")], ""),
    ],
)
def test_the_cuda_of_the_image_counts_if_that_of_the_object_is_unknown(others: list[ElfFacts], remedy: str):
    objects = {f"{SITE}/a/_a.so": elf("", "libbrush.so.9"), **{f"/usr/lib/{each.soname}": each for each in others}}
    (gap,) = (each for each in links(layer(objects)).gaps if each.needs == "libbrush.so.9")
    assert gap.remedy == remedy


def test_a_library_that_the_python_of_the_modules_lacks_is_named():
    program = elf("", "libc.so.6", "libexpat.so.1", interpreter="/lib64/ld-linux-x86-64.so.2")
    (gap,) = links(layer({"/usr/bin/python3.11": program, f"{SITE}/a/_a.so": elf("", "libc.so.6")})).gaps
    assert (gap.object, gap.needs) == ("/usr/bin/python3.11", "libexpat.so.1")


@pytest.mark.parametrize("name", ["python3.11", "python3.13t"])
def test_a_python_without_a_link_to_its_name_is_the_program_of_its_modules(name: str):
    modules = f"/opt/py/lib/{name}/site-packages"
    objects = {
        f"/opt/py/bin/{name}": elf("", "libpy.so", rpath=("$ORIGIN/../own",), interpreter="/lib64/ld-linux-x86-64.so.2"),
        "/opt/py/own/libpy.so": elf("libpy.so"),
        f"{modules}/a/_a.so": elf("", "libpy.so"),
    }
    assert not links(layer(objects, {"/usr/bin/python3": "python3.11"})).gaps
    objects["/opt/py/lib/python9.9/a/_a.so"] = elf("", "libpy.so")  # the folder of a Python that the image lacks
    found = links(layer(objects, {"/usr/bin/python3": "python3.11"})).gaps
    assert [gap.object for gap in found] == ["/opt/py/lib/python9.9/a/_a.so"]


def test_a_library_outside_the_search_is_named_with_its_place():
    (gap,) = links(layer({f"{SITE}/a/_a.so": elf("", "libz.so.1"), "/opt/z/libz.so.1": elf("libz.so.1")})).gaps
    assert "/opt/z/libz.so.1, which is in no folder" in gap.cause
    assert gap.remedy.startswith("set LD_LIBRARY_PATH to /opt/z")


def test_a_library_in_a_default_folder_that_the_object_leaves_out_is_named_so():
    objects = {f"{SITE}/a/_a.so": elf("", "libz.so.1", has_no_default_folders=True), "/usr/lib/libz.so.1": elf("libz.so.1")}
    (gap,) = links(layer(objects)).gaps
    assert "`-z nodefaultlib`, so the loader searches no default folder" in gap.cause and "ldconfig" not in gap.remedy


def test_a_newer_glibc_is_named():
    (gap,) = links(layer({f"{SITE}/a/_a.so": elf("", "libc.so.6", versions={"libc.so.6": ("GLIBC_2.38",)})})).gaps
    assert (gap.kind, gap.needs) == ("version", "libc.so.6: GLIBC_2.38")
    assert "up to GLIBC_2.36" in gap.cause and "glibc 2.38 or newer" in gap.remedy


def test_an_older_library_first_on_the_path_is_named_with_the_newer_one():
    objects = {
        f"{SITE}/a/_a.so": elf("", "libbrush.so.8", rpath=OWN, wanted=("brushDraw", "brushNew")),
        f"{SITE}/paint/lib/libbrush.so.8": elf("libbrush.so.8", offers=("brushDraw", "brushNew")),
        "/old/libbrush.so.8": elf("libbrush.so.8", offers=("brushDraw",)),
    }
    healthy = links(layer(objects))
    assert not healthy.gaps and [each.library for each in healthy.duplicates] == ["libbrush.so.8"]
    assert [each.users for each in healthy.duplicates[0].copies] == [1, 0] and not healthy.duplicates[0].newer
    objects[f"{SITE}/a/_a.so"] = elf("", "libbrush.so.8", runpath=OWN, wanted=("brushDraw", "brushNew"))
    found = links(layer(objects), LD_LIBRARY_PATH="/old")
    (gap,) = found.gaps
    assert (gap.kind, gap.needs) == ("symbol", "libbrush.so.8: brushNew")
    assert gap.cause.startswith("the loader chooses /old/libbrush.so.8, which lacks this symbol")
    assert f"{SITE}/paint/lib/libbrush.so.8 has it" in gap.cause
    assert found.duplicates[0].copies[0].path == "/old/libbrush.so.8"


def test_an_older_copy_that_has_all_needed_symbols_is_named_too():
    objects = {
        f"{SITE}/a/_a.so": elf("", "libbrush.so.8", wanted=("brushDraw",)),
        f"{SITE}/paint/lib/libbrush.so.8": elf("libbrush.so.8", offers=("brushDraw", "brushNew")),
        "/old/libbrush.so.8": elf("libbrush.so.8", offers=("brushDraw",)),
    }
    found = links(layer(objects), LD_LIBRARY_PATH="/old")
    (told,) = found.duplicates
    assert not found.gaps and told.copies[0].path == "/old/libbrush.so.8"
    assert (told.newer, told.lacks) == (f"{SITE}/paint/lib/libbrush.so.8", ("brushNew",))


def test_a_library_whose_symbols_are_unknown_lacks_none():
    objects = {
        f"{SITE}/a/_a.so": elf("", "libbrush.so.8", wanted=("brushDraw",)),
        f"{SITE}/paint/lib/libbrush.so.8": elf("libbrush.so.8", offers=("brushDraw",)),
        "/own/libbrush.so.8": elf("libbrush.so.8", hides_symbols=True),
    }
    found = links(layer(objects), LD_LIBRARY_PATH="/own")
    assert not found.gaps and [each.newer for each in found.duplicates] == [""]


def test_libraries_of_the_driver_are_expected_to_be_absent():
    assert not links(layer({f"{SITE}/a/_a.so": elf("", "libdriver.so.1")})).gaps


def test_extensions_find_what_their_package_loads_before():
    objects = {f"{SITE}/ext/_c.so": elf("", "libcore.so"), f"{SITE}/paint/lib/libcore.so": elf("libcore.so")}
    assert not links(layer(objects, files=[PAINT])).gaps
    objects["/usr/lib/python3/dist-packages/ext/_c.so"] = elf("", "libcore.so")  # another folder of packages
    found = links(layer(objects, files=[PAINT]))
    assert [gap.object for gap in found.gaps] == ["/usr/lib/python3/dist-packages/ext/_c.so"]


def test_libraries_are_loaded_before_only_if_the_package_that_loads_them_is_there():
    objects = {f"{SITE}/ext/_c.so": elf("", "libcore.so"), f"{SITE}/paint/lib/libcore.so": elf("libcore.so")}
    (gap,) = links(layer(objects)).gaps
    assert (gap.needs, gap.object) == ("libcore.so", f"{SITE}/ext/_c.so")
    assert links(layer(objects, files=["/usr/lib/python3/dist-packages/paint/__init__.py"])).gaps == (gap,)
    assert not links(layer(objects, {PAINT: "/opt/shared/paint.py"}, files=["/opt/shared/paint.py"])).gaps


def test_a_library_is_judged_in_the_processes_of_those_that_load_it():
    inner = {f"{SITE}/p/libs/libinner.so": elf("libinner.so", "libmath.so"), f"{SITE}/p/libs/libmath.so": elf("libmath.so")}
    outer = {f"{SITE}/p/_p.so": elf("", "libmath.so", "libinner.so", runpath=("$ORIGIN/libs",))}
    assert not links(layer(inner | outer)).gaps
    assert [gap.object for gap in links(layer(inner)).gaps] == [f"{SITE}/p/libs/libinner.so"]


def test_objects_that_load_each_other_are_judged_too():
    ring = {
        f"{SITE}/a.so": elf("a.so", "b.so", "libgone.so", rpath=(SITE,)),
        f"{SITE}/b.so": elf("b.so", "a.so", rpath=(SITE,)),
    }
    assert [gap.needs for gap in links(layer(ring)).gaps] == ["libgone.so"]


def test_what_a_rule_excuses_is_listed_apart():
    found = links(layer({f"{SITE}/a/rare.so": elf("", "libgone.so")}))
    assert not found.gaps and found.excused[0].excuse == "nobody uses it"


def test_a_program_for_another_c_library_is_excused():
    found = links(layer({"/opt/musl": elf("", "libc.musl.so.1", interpreter="/lib/ld-musl-x86_64.so.1")}))
    assert not found.gaps and "/lib/ld-musl-x86_64.so.1" in found.excused[0].excuse


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        (elf("", "libc.so.6", interpreter="/nowhere/ld.so"), "install the package with /nowhere/ld.so"),
        (
            elf("", interpreter="/nowhere/ld-linux-x86-64.so.2"),
            f"make the link /nowhere/ld-linux-x86-64.so.2 to {LOADER}",
        ),
    ],
)
def test_a_program_whose_interpreter_is_absent_cannot_start(program: ElfFacts, remedy: str):
    (gap,) = links(layer({"/app/main": program})).gaps
    assert (gap.kind, gap.object, gap.needs) == ("library", "/app/main", program.interpreter)
    assert gap.cause.startswith("this is the program's interpreter, which is absent, so the program cannot start")
    assert gap.remedy.startswith(remedy)


def test_a_folder_that_hides_the_loader_is_one_gap():
    objects = {"/usr/bin/ls": elf("", "libc.so.6", interpreter="/lib64/ld-linux-x86-64.so.2"), "/lib/own.so": elf("own.so")}
    found = links(layer(objects, folders=["/lib"]))
    (gap,) = found.gaps
    assert (gap.object, gap.needs) == ("/usr/bin/ls", "/lib64/ld-linux-x86-64.so.2")
    assert "so the program and 1 other program cannot start" in gap.cause
    assert "the path leads to /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" in gap.cause and LOADER in gap.cause


def test_a_library_that_names_an_absent_interpreter_is_no_program():
    assert not links(layer({f"{SITE}/a/liba.so": elf("liba.so", interpreter="/nowhere/ld-linux-x86-64.so.2")})).gaps


def test_an_absent_preload_is_listed_once_and_is_no_gap():
    found = links(layer({"/usr/bin/ls": elf("", interpreter="/lib64/ld-linux-x86-64.so.2")}), LD_PRELOAD="/gone.so")
    assert not found.gaps and [each.needs for each in found.excused] == ["/gone.so"]
    assert found.excused[0].excuse.startswith("the loader prints a warning about a library of LD_PRELOAD")


@pytest.mark.parametrize("links_of_musl", [{}, {"/lib64/ld-linux-x86-64.so.2": "/lib/ld-musl-x86_64.so.1"}])
def test_an_image_for_musl_is_refused(links_of_musl: dict[str, str]):
    objects = {
        "/lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1"),
        "/bin/app": elf("", "libc.musl-x86_64.so.1", interpreter="/lib/ld-musl-x86_64.so.1"),
    }
    with pytest.raises(InvalidInputError, match="musl") as caught:
        checking.check(Tree([layer(objects, links_of_musl)]), {}, RULES, is_of_driver=lambda _: False, package_of=lambda _: "")
    assert caught.value.code == "other-c-library" and "glibc" in caught.value.hint
    assert not links(layer(objects)).gaps  # musl beside glibc


def test_a_library_that_only_newer_processors_get_is_named():
    place = f"{SITE}/a/glibc-hwcaps/x86-64-v3/libz.so.1"
    (gap,) = links(layer({f"{SITE}/a/_a.so": elf("", "libz.so.1", runpath=("$ORIGIN",)), place: elf("libz.so.1")})).gaps
    assert gap.cause == f"not found: the image has it only for newer processors, as {place}"
    assert gap.remedy == f"add a build of the library for all processors in {SITE}/a"


def test_a_damaged_object_is_a_gap():
    (gap,) = links(layer({f"{SITE}/a/_a.so": ElfFacts(damage="ends within its ELF header")})).gaps
    assert gap.kind == "damaged" and gap.cause.startswith("ends within")


def test_a_c_library_that_a_higher_layer_removed_is_missed():
    found = links(layer({f"{SITE}/a/_a.so": elf("", "libc.so.6")}, removed=[LIBC]))
    assert {gap.needs for gap in found.gaps} == {"libc.so.6"}


@pytest.mark.parametrize("names", [("x",), ("brushNew",)])
def test_a_symbol_without_its_library_is_no_gap(names: tuple[str, ...]):
    assert not links(layer({f"{SITE}/a/_a.so": elf("", wanted=names)})).gaps


def test_a_library_without_its_link_is_named_with_the_link():
    (gap,) = links(layer({f"{SITE}/a/_a.so": elf("", "libz.so.1"), "/usr/lib/libz.so.1.2": elf("libz.so.1")})).gaps
    assert gap.cause == "not found: no file or link has this name, but the image has the library as /usr/lib/libz.so.1.2"
    assert gap.remedy.startswith("make the link libz.so.1 to libz.so.1.2 in /usr/lib")


def test_a_link_outside_the_search_is_named_with_its_place():
    objects = {f"{SITE}/a/_a.so": elf("", "libz.so.1"), "/opt/real/libz.so.1.2": elf("libz.so.1")}
    (gap,) = links(layer(objects, {"/opt/z/libz.so.1": "../real/libz.so.1.2"})).gaps
    assert "/opt/z/libz.so.1, which is in no folder" in gap.cause
    assert gap.remedy.startswith("set LD_LIBRARY_PATH to /opt/z")


def test_a_file_at_which_the_loader_stops_is_named():
    objects = {f"{SITE}/a/_a.so": elf("", "libz.so.1", runpath=("$ORIGIN",)), "/usr/lib/libz.so.1": elf("libz.so.1")}
    (gap,) = links(layer(objects, files=[f"{SITE}/a/libz.so.1"])).gaps
    assert gap.cause == f"the loader finds {SITE}/a/libz.so.1, which it cannot load, and stops there"
    assert gap.remedy.startswith(f"remove {SITE}/a/libz.so.1")


def test_a_version_of_a_library_that_nobody_loads_is_a_gap():
    versions = {"libz.so.1": ("Z_2",)}
    objects = {f"{SITE}/a/_a.so": elf("", versions=versions), "/usr/lib/libz.so.1": elf("libz.so.1", defines=("Z_1", "Z_2"))}
    (gap,) = links(layer(objects)).gaps
    assert (gap.kind, gap.needs) == ("version", "libz.so.1: Z_2") and "not linked with libz.so.1" in gap.cause
    objects["/usr/lib/libother.so"] = elf("libother.so", "libz.so.1")
    objects[f"{SITE}/a/_a.so"] = elf("", "libother.so", versions=versions)
    assert not links(layer(objects)).gaps
    objects["/usr/lib/libz.so.1"] = elf("libz.so.1", defines=("Z_1",))
    (gap,) = links(layer(objects)).gaps
    assert gap.cause == "/lib/libz.so.1 has versions up to Z_1"


V2 = {"libz.so.1": {"Z_2": "melt zip"}}


def needing(**more: Any) -> ElfFacts:
    """An object that needs `zip` and `melt` of version Z_2."""
    return elf("", "libz.so.1", versions={"libz.so.1": ("Z_2",)}, needed_symbols=V2, **more)


def z_of(*, defines: tuple[str, ...] = ("libz.so.1", "Z_1", "Z_2"), **offered: str) -> ElfFacts:
    """A library with these symbols of versions; `none` has the symbols without a version."""
    return elf("libz.so.1", defines=defines, offered_symbols={"" if v == "none" else v: names for v, names in offered.items()})


def test_a_symbol_that_its_version_lacks_is_a_gap():
    objects = {f"{SITE}/a/_a.so": needing(), "/usr/lib/libz.so.1": z_of(Z_1="melt zip", Z_2="zip")}
    (gap,) = links(layer(objects)).gaps
    assert (gap.kind, gap.object, gap.needs) == ("symbol", f"{SITE}/a/_a.so", "libz.so.1: melt@Z_2")
    assert (gap.cause, gap.remedy) == ("/lib/libz.so.1 defines the version Z_2, but lacks this symbol", "")
    objects["/opt/libz.so.1"] = z_of(Z_2="melt zip")
    (gap,) = links(layer(objects)).gaps
    assert "/opt/libz.so.1 has it" in gap.cause and gap.remedy.startswith("remove /usr/lib/libz.so.1")
    assert not links(layer(objects), LD_LIBRARY_PATH="/opt").gaps


@pytest.mark.parametrize(
    "library",
    [
        z_of(Z_2="melt zip"),
        z_of(Z_2="zip", none="melt"),
        z_of(defines=(), none="x"),  # the loader accepts a library without versions
        elf("libz.so.1", defines=("Z_2",), hides_symbols=True),
    ],
)
def test_a_symbol_is_found_in_its_version_or_without_one(library: ElfFacts):
    assert not links(layer({f"{SITE}/a/_a.so": needing(), "/usr/lib/libz.so.1": library})).gaps


@pytest.mark.parametrize(
    ("other", "gaps"),
    [
        (elf("libnew.so", offered_symbols={"Z_2": "melt"}), 0),  # moved to another library, as from libpthread to libc
        (elf("libnew.so", offered_symbols={"": "melt"}), 0),
        (elf("libnew.so", offered_symbols={"Z_1": "melt"}), 1),
    ],
)
def test_any_loaded_object_may_have_the_symbol(other: ElfFacts, gaps: int):
    objects = {"/usr/lib/libnew.so": other, "/usr/lib/libz.so.1": z_of(Z_2="zip")}
    objects[f"{SITE}/a/_a.so"] = elf("", "libz.so.1", "libnew.so", versions={"libz.so.1": ("Z_2",)}, needed_symbols=V2)
    assert len(links(layer(objects)).gaps) == gaps


def test_a_version_that_is_missing_as_a_whole_is_one_gap():
    objects = {f"{SITE}/a/_a.so": needing(), "/usr/lib/libz.so.1": z_of(defines=("Z_1",), Z_1="zip")}
    assert [gap.kind for gap in links(layer(objects)).gaps] == ["version"]
    objects[f"{SITE}/a/_a.so"] = elf("", "libgone.so.1", versions={"libgone.so.1": ("Z_2",)}, needed_symbols=V2)
    assert [gap.kind for gap in links(layer(objects)).gaps] == ["library"]


def test_a_version_of_a_library_that_was_loaded_before_is_no_gap():
    versions = {"libcore.so": ("CORE_1",)}
    objects = {f"{SITE}/ext/_c.so": elf("", versions=versions), f"{SITE}/paint/lib/libcore.so": elf("libcore.so")}
    assert not links(layer(objects, files=[PAINT])).gaps
    assert not links(layer({f"{SITE}/ext/_c.so": elf("", versions={"libdriver.so.1": ("D_1",)})})).gaps


def test_copies_of_any_library_are_listed_if_an_object_loads_one():
    objects = {"/own/libz.so.1": elf("libz.so.1"), "/usr/lib/libz.so.1": elf("libz.so.1"), f"{SITE}/a/_a.so": elf("")}
    objects["/opt/env/bin/python3.11"] = elf("", interpreter="/lib64/ld-linux-x86-64.so.2")  # /usr/bin has another one
    assert not links(layer(objects), LD_LIBRARY_PATH="/own").duplicates
    objects[f"{SITE}/a/_a.so"] = elf("", "libz.so.1")
    (found,) = links(layer(objects), LD_LIBRARY_PATH="/own").duplicates
    assert [(each.path, each.users) for each in found.copies] == [("/own/libz.so.1", 1), ("/usr/lib/libz.so.1", 0)]
