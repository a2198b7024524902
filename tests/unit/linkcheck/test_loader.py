"""The search of the dynamic loader, by its documented order."""

from __future__ import annotations

import pytest
from linked_trees import elf, layer, system

from envbuild.linkcheck.loader import Loader
from envbuild.linkcheck.model import ElfFacts
from envbuild.linkcheck.tree import Tree


def taken(root: ElfFacts, *places: str, program: ElfFacts | None = None, **environment: str) -> str | None:
    """Which of several files named liba.so the object /app/root.so gets."""
    objects = {"/app/root.so": root, **{f"{place}/liba.so": elf("liba.so") for place in places}}
    if program is not None:
        objects["/app/bin/main"] = program
    loader = Loader(Tree([system(), layer(objects)]), environment)
    process = loader.load("/app/root.so", program="/app/bin/main" if program else None, held={})
    assert process is not None
    found = process.found.get(("/app/root.so", "liba.so"))
    return found.real if found else None


@pytest.mark.parametrize(
    ("root", "environment", "expected"),
    [
        (elf("", "liba.so"), {}, "/usr/lib/liba.so"),
        (elf("", "liba.so", runpath=("$ORIGIN/own",)), {}, "/app/own/liba.so"),
        (elf("", "liba.so", runpath=("${ORIGIN}/own",)), {"LD_LIBRARY_PATH": "/first:/other"}, "/other/liba.so"),
        (elf("", "liba.so", rpath=("$ORIGIN/own",)), {"LD_LIBRARY_PATH": "/other"}, "/app/own/liba.so"),
        (elf("", "liba.so", rpath=("/nowhere",), runpath=("/other",)), {}, "/other/liba.so"),
        (elf("", "liba.so", rpath=("/app/own",), runpath=("/nowhere",)), {}, "/usr/lib/liba.so"),
        (elf("", "liba.so", rpath=("", "own", "../other")), {"LD_LIBRARY_PATH": "other"}, "/usr/lib/liba.so"),
        (elf("", "liba.so", rpath=("app/own", "", ".")), {}, "/usr/lib/liba.so"),  # as in OpenCV 4.5.1
        (elf("", "liba.so", rpath=("//app//own",)), {}, "/app/own/liba.so"),
    ],
)
def test_the_order_of_the_search(root: ElfFacts, environment: dict[str, str], expected: str):
    assert taken(root, "/app/own", "/other", "/usr/lib", **environment) == expected


def test_the_rpath_of_the_program_counts_unless_an_object_has_a_runpath():
    program = elf("", rpath=("$ORIGIN/../own",), interpreter="/lib64/ld-linux-x86-64.so.2")
    assert taken(elf("", "liba.so"), "/app/own", "/usr/lib", program=program) == "/app/own/liba.so"
    assert taken(elf("", "liba.so", runpath=("/nowhere",)), "/app/own", "/usr/lib", program=program) == "/usr/lib/liba.so"


def test_a_library_that_the_program_loaded_wins():
    program = elf("", "liba.so", rpath=("/other",), interpreter="/lib64/ld-linux-x86-64.so.2")
    assert taken(elf("", "liba.so", runpath=("/app/own",)), "/app/own", "/other", program=program) == "/other/liba.so"


def test_an_rpath_is_inherited_from_the_object_that_loaded():
    objects = {
        "/app/root.so": elf("", "libmid.so", rpath=("/app/own",)),
        "/app/own/libmid.so": elf("libmid.so", "liba.so"),
        "/app/own/liba.so": elf("liba.so"),
    }
    process = Loader(Tree([system(), layer(objects)]), {}).load("/app/root.so", program=None, held={})
    assert process is not None and not process.missing


def test_what_was_loaded_before_counts_only_where_the_search_finds_nothing():
    objects = {"/app/root.so": elf("", "liba.so"), "/held/liba.so": elf("liba.so")}
    held = {"liba.so": "/held/liba.so"}
    process = Loader(Tree([layer(objects)]), {}).load("/app/root.so", program=None, held=held)
    assert process is not None and process.names["liba.so"].real == "/held/liba.so"
    objects["/usr/lib/liba.so"] = elf("liba.so")
    process = Loader(Tree([layer(objects)]), {}).load("/app/root.so", program=None, held=held)
    assert process is not None and process.names["liba.so"].real == "/usr/lib/liba.so"


@pytest.mark.parametrize("bad", [{"/bad/liba.so": ElfFacts(damage="is cut off")}, None])
def test_the_search_ends_at_a_file_that_is_no_library(bad: dict[str, ElfFacts] | None):
    objects = {"/app/root.so": elf("", "liba.so", runpath=("/bad", "/good")), "/good/liba.so": elf("liba.so")}
    tree = Tree([layer(objects | (bad or {}), files=[] if bad else ["/bad/liba.so"])])
    process = Loader(tree, {}).load("/app/root.so", program=None, held={})
    assert process is not None and "liba.so" not in process.names
    assert [each.refused for each in process.missing] == ["/bad/liba.so"]
    other = layer(files=["/bad/liba.so"], other_processors=["/bad/liba.so"])
    process = Loader(Tree([layer(objects), other]), {}).load("/app/root.so", program=None, held={})
    assert process is not None and process.names["liba.so"].real == "/good/liba.so"


def test_the_loader_of_the_image_says_which_folders_it_searches_last():
    loader = elf("ld-linux-x86-64.so.2", default_folders=("/lib64", "/usr/lib64"))
    objects = {
        "/app/root.so": elf("", "liba.so", "libb.so", runpath=("/own/$LIB",)),
        "/usr/lib/liba.so": elf("liba.so"),
        "/own/lib64/libb.so": elf("libb.so"),
    }
    process = Loader(Tree([layer(objects)]), {}).load("/app/root.so", program=None, held={})
    assert process is not None and [each.name for each in process.missing] == ["libb.so"]
    fedora = layer({"/lib64/ld-linux-x86-64.so.2": loader})
    process = Loader(Tree([layer(objects), fedora]), {}).load("/app/root.so", program=None, held={})
    assert process is not None and [each.name for each in process.missing] == ["liba.so"]


def test_the_list_of_preloads_may_have_comments_and_colons():
    objects = {"/app/main": elf("", interpreter="/lib64/ld-linux-x86-64.so.2"), "/x/a.so": elf(), "/x/b.so": elf()}
    texts = {"/etc/ld.so.preload": "# /x/c.so\n/x/a.so:/x/b.so # more\n"}
    process = Loader(Tree([layer(objects, texts=texts)]), {}).load("/app/main", program=None, held={})
    assert process is not None and [each.real for each in process.order] == ["/app/main", "/x/a.so", "/x/b.so"]


def test_an_absent_preload_is_ignored():
    objects = {"/app/main": elf("", interpreter="/lib64/ld-linux-x86-64.so.2"), "/app/root.so": elf("root.so")}
    loader = Loader(Tree([layer(objects, files=["/x/text"])]), {"LD_PRELOAD": "/x/gone.so /x/text"})
    alone, imported = (loader.load("/app/root.so", program=each, held={}) for each in (None, "/app/main"))
    for process, by in ((alone, "/app/root.so"), (imported, "/app/main")):
        assert process is not None and not process.missing
        ignored = [(each.by.real, each.name, each.refused) for each in process.ignored]
        assert ignored == [(by, "/x/gone.so", ""), (by, "/x/text", "/x/text")]


@pytest.mark.parametrize("program", ["/opt/own/ld.so", ""])
def test_the_loader_is_in_the_process_before_any_search(program: str):
    real = {"/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2"), "/opt/own/ld.so": elf("ld-linux-x86-64.so.2")}
    objects = {
        "/app/root": elf("", "libc.so.6", interpreter=program),
        "/usr/lib/libc.so.6": elf("libc.so.6", "ld-linux-x86-64.so.2"),
    }
    process = Loader(Tree([layer(objects | real)]), {}).load("/app/root", program=None, held={})
    assert process is not None and not process.missing
    assert process.names["ld-linux-x86-64.so.2"].real == (program or "/lib64/ld-linux-x86-64.so.2")


def test_without_default_folders_the_cache_counts_only_for_other_folders():
    objects = {
        "/app/root.so": elf("", "liba.so", "libb.so", has_no_default_folders=True),
        "/usr/lib/x/liba.so": elf("liba.so"),
        "/own/libb.so": elf("libb.so"),
    }
    loader = Loader(Tree([layer(objects)]), {})
    loader.cache = {"liba.so": "/usr/lib/x/liba.so", "libb.so": "/own/libb.so"}
    process = loader.load("/app/root.so", program=None, held={})
    assert process is not None and [each.name for each in process.missing] == ["liba.so"]
