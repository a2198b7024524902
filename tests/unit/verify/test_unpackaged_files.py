"""Lists of files that no package's RECORD names, compared with the layers: every planted fault is found."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest
import verify_locks

from envbuild.engine.model import LayerFile
from envbuild.model.environment import RemoteFile
from envbuild.model.lock import Lock
from envbuild.verify import unpackaged_files
from envbuild.verify.findings import Findings

HOME = "/opt/python/3.11"
LIST = f"{unpackaged_files.FOLDER}/python-3.11"
TREE = {
    f"{HOME}/bin/python3.11": b"an interpreter",
    f"{HOME}/lib/os.py": b"import abc",
    f"{HOME}/lib/large.so": b"0" * (2 << 20),
}
LINK = f"{HOME}/bin/python"


def text_of(files: dict[str, bytes]) -> bytes:
    lines = [f"folder {HOME}", *(f"{hashlib.sha256(data).hexdigest()}  {path}" for path, data in files.items())]
    return "\n".join([*lines, f"link python3.11  {LINK}", ""]).encode()


def entry(layer: str, path: str, content: bytes = b"", *, kind: str = "file", target: str = "") -> LayerFile:
    return LayerFile(
        layer=layer,
        path=path,
        kind=kind,  # type: ignore[arg-type]
        target=target,
        size=len(content),
        open=lambda: io.BytesIO(content),
    )


def first_layer(files: dict[str, bytes] = TREE) -> Iterator[LayerFile]:
    yield entry("1", HOME, kind="folder")
    yield entry("1", LIST, text_of(files))
    for path, data in files.items():
        yield entry("1", path, data)
    yield entry("1", LINK, kind="link", target="python3.11")


def differences(*later: LayerFile, first: list[LayerFile] | None = None) -> dict[str, str]:
    layers = unpackaged_files.Layers({"python-3.11": unpackaged_files.parse(text_of(TREE))})
    for each in [*(list(first_layer()) if first is None else first), *later]:
        layers.see(each)
    found = Findings()
    layers.compare(found)
    return {problem.where: problem.message for problem in found.problems}


def test_what_is_as_listed_is_no_difference() -> None:
    beside = entry("2", "/opt/python/3.110/x", b"of another folder")
    assert differences(beside, entry("2", f"{HOME}/lib/__pycache__/os.cpython-311.pyc", b"compiled when it was run")) == {}
    assert differences(entry("1", f"{HOME}/.wh..wh..opq")) == {}  # the layer that makes the folder may mark it as opaque


LATER = {
    "another interpreter": (entry("2", f"{HOME}/bin/python3.11", b"evil"), "was overwritten", None),
    "the same bytes again, with another mode": (entry("2", f"{HOME}/lib/os.py", b"import abc"), "was overwritten", None),
    "the list forged": (entry("2", LIST, b"folder /opt/python/3.11\n"), "was overwritten", None),
    "a file taken away": (entry("2", f"{HOME}/lib/.wh.os.py"), "missing", f"{HOME}/lib/os.py"),
    "a file beside": (entry("2", f"{HOME}/lib/evil.py", b"import os"), "was not there", None),
    "bytecode without a source": (entry("2", f"{HOME}/lib/__pycache__/evil.cpython-311.pyc", b"x"), "was not there", None),
    "the folder taken away": (entry("2", "/opt/python/.wh.3.11"), "was removed", HOME),
    "a folder above taken away": (entry("2", "/opt/.wh.python"), "was removed", "/opt/python"),
    "the folder replaced": (entry("2", f"{HOME}/.wh..wh..opq"), "was not there", None),
    "another link": (entry("2", LINK, kind="link", target="/tmp/evil"), "was overwritten", None),
}


@pytest.mark.parametrize("fault", LATER)
def test_what_a_later_step_did_is_found(fault: str) -> None:
    planted, message, where = LATER[fault]
    found = differences(planted)
    assert list(found) == [where or planted.path] and message in found[where or planted.path], found


INSTEAD = {
    "other bytes": entry("1", f"{HOME}/lib/os.py", b"import evil"),
    "a link": entry("1", f"{HOME}/lib/os.py", kind="link", target="evil.py"),
    "a folder": entry("1", f"{HOME}/lib/os.py", kind="folder"),
    "another name of another file": entry("1", f"{HOME}/lib/os.py", kind="hardlink", target=f"{HOME}/bin/python3.11"),
}


@pytest.mark.parametrize("fault", INSTEAD)
def test_a_file_that_is_not_as_listed_is_found(fault: str) -> None:
    planted = INSTEAD[fault]
    found = differences(first=[planted if each.path == planted.path else each for each in first_layer()])
    assert found == {planted.path: "modified since it was installed (of python-3.11)"}


def test_another_name_of_the_same_file_is_that_file() -> None:
    files = {**TREE, f"{HOME}/bin/python3": TREE[f"{HOME}/bin/python3.11"]}
    same = entry("1", f"{HOME}/bin/python3", kind="hardlink", target=f"{HOME}/bin/python3.11")
    layers = unpackaged_files.Layers({"python-3.11": unpackaged_files.parse(text_of(files))})
    for each in [*first_layer(), same]:
        layers.see(each)
    found = Findings()
    layers.compare(found)
    assert not found.problems and found.counts == {"listed_files": 5}


def test_large_files_are_compared_by_their_hash_as_small_ones_are() -> None:
    edited = {path: data.replace(b"0", b"1").replace(b"abc", b"evil") for path, data in TREE.items()}
    first = [entry("1", each.path, edited.get(each.path, b"")) if each.path in edited else each for each in first_layer()]
    assert sorted(differences(first=first)) == [f"{HOME}/lib/large.so", f"{HOME}/lib/os.py"]


def lock_of(**options: str) -> Lock:
    lock = verify_locks.lock()
    (prefix,), (framework,) = lock.prefixes, lock.environment.frameworks
    python = replace(prefix.python, provided_by="uv", executable=f"{HOME}/bin/python3.11")
    environment = replace(lock.environment, frameworks=(replace(framework, options=options),))
    return replace(lock, environment=environment, prefixes=(replace(prefix, python=python),))


def test_lists_are_expected_of_what_is_fetched_and_of_what_is_compiled_and_no_package() -> None:
    assert unpackaged_files.expected(verify_locks.lock(), {"/opt/env": []}) == {}
    lock = lock_of(repository="https://git.example/toy")
    assert unpackaged_files.expected(lock, {"/opt/env": ["toy"]}) == {"python-3.11": HOME}
    assert unpackaged_files.expected(lock, {"/opt/env": ["other"]}) == {"python-3.11": HOME, "toy": ""}
    conda = replace(lock.environment.base, files=(RemoteFile(url="https://conda.example/cudatoolkit.conda", sha256="0"),))
    lock = replace(lock, environment=replace(lock.environment, base=conda, cuda="11.8"))
    assert unpackaged_files.expected(lock, {"/opt/env": ["toy"]}) == {"python-3.11": HOME, "cuda": "/usr/local/cuda-11.8"}


def test_an_image_without_its_list_or_with_that_of_another_folder_differs() -> None:
    wanted = {"python-3.11": HOME, "toy": "", "cuda": "/usr/local/cuda-11.8"}
    found = Findings()
    lists = {"toy": b"folder /opt/toy\n", "cuda": b"folder /srv\n0  /srv/x\n"}
    unpackaged_files.compare_presence(wanted, {name: unpackaged_files.parse(text) for name, text in lists.items()}, found)
    assert {problem.where: problem.message for problem in found.problems} == {
        LIST: "missing, so the installed files are not known",
        f"{unpackaged_files.FOLDER}/toy": "lists no files",
        f"{unpackaged_files.FOLDER}/cuda": "is about another folder than /usr/local/cuda-11.8",
    }
