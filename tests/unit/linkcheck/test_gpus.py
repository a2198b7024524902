"""For which GPUs an image has code, library by library, and for which its compilers compile."""

from __future__ import annotations

import io

from elf_files import NATIVE, Shared, container, entry
from linked_trees import RULES, SITE, elf

from envbuild.linkcheck import elf_facts, gpus
from envbuild.linkcheck.rules import Compiler, LinkRules

WANTED = RULES.wanted()


def test_gpus_run_native_code_of_their_major_version_and_older_ptx():
    code = gpus.gpu_code(
        {
            "/a.so": elf("", native=("7.0", "8.6"), ptx=("8.6",)),
            "/b.so": elf("", native=("9.0a",)),
            "/c.so": elf("", native=("10.0f",), ptx=("9.0a",)),
            "/d.so": elf(""),
        },
        RULES,
    )
    known = {"7.5": ["T4"], "8.0": ["A100"], "8.9": ["L4"], "9.0": ["H100"], "10.3": ["B300"]}
    told = [(each["capability"], each["native"], each["ptx"], each["nothing"]) for each in gpus.gpus(code, known)]
    assert told == [("7.5", 1, 0, 2), ("8.0", 0, 0, 3), ("8.9", 1, 0, 2), ("9.0", 1, 1, 1), ("10.3", 1, 1, 1)]
    assert gpus.gpus([], known) == []


def test_libraries_are_judged_by_all_of_their_objects():
    code = gpus.gpu_code(
        {
            f"{SITE}/paint/lib/libbrush.so.8": elf("libbrush.so.8", native=("8.0",)),
            f"{SITE}/paint/_c.so": elf("", native=("8.0",), ptx=("8.0",)),
            f"{SITE}/paint/_d.so": elf("", native=("9.0",)),
            "/usr/lib/libz.so": elf("libz.so.1", ptx=("7.0",)),
        },
        RULES,
    )
    told = {each["capability"]: each["libraries"] for each in gpus.gpus(code, {"8.6": ["A40"], "9.0": ["H100"]})}
    assert told["8.6"] == {"Brush": "native", "paint": "partly", "libz.so.1": "ptx"}
    assert told["9.0"] == {"Brush": "nothing", "paint": "ptx", "libz.so.1": "ptx"}


def test_a_library_whose_code_is_not_read_is_not_said_to_have_none():
    objects = {"/a/libbrush.so.8": elf("libbrush.so.8", native=("7.5",), hides_code=True)}
    told = gpus.gpus(gpus.gpu_code(objects, RULES), {"7.5": ["T4"], "9.0": ["H100"]})
    assert [each["libraries"]["Brush"] for each in told] == ["native", "unknown"]


def test_code_of_some_kernels_is_a_part():
    objects = {
        f"{SITE}/paint/_c.so": elf("", some_native=("8.0", "9.0a"), some_ptx=("9.0",)),
        f"{SITE}/quill/_q.so": elf("", native=("9.0",)),
    }
    known = {"7.0": ["V100"], "8.6": ["A40"], "9.0": ["H100"], "12.0": ["RTX 5090"]}
    told = {each["capability"]: each for each in gpus.gpus(gpus.gpu_code(objects, RULES), known)}
    assert {name: each["libraries"]["paint"] for name, each in told.items()} == {
        "7.0": "nothing",
        "8.6": "partly",
        "9.0": "partly",
        "12.0": "partly",
    }
    assert [told["9.0"][way] for way in ("native", "ptx", "partly", "nothing")] == [1, 0, 1, 0]


def test_kernels_for_many_lists_of_gpus_are_not_counted_as_missing():
    """Of four containers, none has the GPUs of most others, so it is unclear for which GPUs the file was compiled."""
    lists = ((75,), (80,), (86,), (90, 120))
    code = b"".join(container(*(entry(NATIVE, number) for number in numbers)) for numbers in lists)
    content = Shared(needed=["libc.so.6"], fatbins={".nv_fatbin": code}, is_loadable=True).data()
    found = elf_facts.read(io.BytesIO(content), len(content), WANTED, "_c.so")
    assert found is not None and (found.native, found.ptx) == ((), ())
    told = gpus.gpus(gpus.gpu_code({f"{SITE}/paint/_c.so": found}, RULES), {"7.5": [], "8.9": [], "12.0": [], "7.0": []})
    assert {each["capability"]: each["libraries"]["paint"] for each in told} == {
        "7.0": "nothing",
        "7.5": "partly",
        "8.9": "partly",
        "12.0": "partly",
    }


def test_the_highest_gpu_of_a_compiler_is_told():
    rules = LinkRules(compilers=(Compiler(name="Compiler", files=("libcompile.so*",)),))
    objects = {
        "/a/libcompile.so.12": elf("", architectures=("7.5", "9.0a", "10.0f", "12.1a")),
        "/b/libcompile.so.13": elf(""),
        "/c/libother.so": elf("", architectures=("9.0",)),
    }
    told = gpus.compilers(objects, rules)
    assert [(each["object"], each["highest"]) for each in told] == [
        ("/a/libcompile.so.12", "12.1"),
        ("/b/libcompile.so.13", ""),
    ]
