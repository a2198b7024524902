"""The files that installing a wheel makes, as the installers do it.

tests/integration/test_composed_wheels.py compares with the real installers.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from wheel_files import FILE, FOLDER, Part, make_wheel, metadata, record_of, unpack, zip_file

from envbuild.compose import wheel_layer
from envbuild.compose.model import InstallPlace
from envbuild.errors import BuildError
from envbuild.wrong_records import WrongRecord

UV = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
PIP = InstallPlace(prefix="/opt/env", python="3.5", installer="pip")
BOTH = pytest.mark.parametrize("place", [UV, PIP], ids=["uv", "pip"])
ENTRY_POINTS = "[console_scripts]\ntool = toy.cli:main.run [all]\n[gui_scripts]\nshow = toy:show\n[plugins]\nother = toy\n"


def site(place: InstallPlace) -> str:
    return f"opt/env/lib/python{place.python}/site-packages"


def install(
    place: InstallPlace, *files: Path, bytecode: Mapping[str, bytes | Path] | None = None
) -> dict[str, tuple[int, bytes | None]]:
    stream = io.BytesIO()
    wheel_layer.write(stream, [(file, True) for file in files], place, bytecode or {})
    return unpack(stream.getvalue())


def refused(place: InstallPlace, file: Path) -> str:
    with pytest.raises(BuildError) as caught:
        install(place, file)
    assert caught.value.code == "bad-wheel"
    return caught.value.message


def data(path: str, content: bytes = b"x", mode: int = FILE | 0o644) -> Part:
    return Part(name=f"toy-1.0.data/{path}", content=content, mode=mode)


@BOTH
def test_all_folders_above_are_there(place: InstallPlace, tmp_path: Path) -> None:
    found = install(place, make_wheel(tmp_path, [Part(name="toy/deep/er/a.py")]))
    above = [path for path, (_, content) in found.items() if content is None]
    assert above == [
        "opt", "opt/env", "opt/env/lib", f"opt/env/lib/python{place.python}", site(place), f"{site(place)}/toy",
        f"{site(place)}/toy-1.0.dist-info", f"{site(place)}/toy/deep", f"{site(place)}/toy/deep/er",
    ]  # fmt: skip
    assert {mode for mode, content in found.values() if content is None} == {0o755}


@pytest.mark.parametrize(
    ("mode", "by_uv", "by_pip"),
    [
        (FILE | 0o644, 0o644, 0o644), (FILE | 0o755, 0o755, 0o755), (FILE | 0o744, 0o755, 0o755), (FILE | 0o4755, 0o755, 0o755),
        (FILE | 0o400, 0o644, 0o644), (0o755, 0o755, 0o644), (0, 0o644, 0o644),
    ],
)  # fmt: skip
@pytest.mark.parametrize("system", [0, 3])
def test_of_a_mode_only_whether_it_is_a_program_stays(mode: int, by_uv: int, by_pip: int, system: int, tmp_path: Path) -> None:
    file = make_wheel(tmp_path, [Part(name="toy/a", mode=mode, system=system)])
    assert install(UV, file)[f"{site(UV)}/toy/a"][0] == by_uv
    assert install(PIP, file)[f"{site(PIP)}/toy/a"][0] == by_pip


@BOTH
def test_data_goes_where_its_folder_says(place: InstallPlace, tmp_path: Path) -> None:
    parts = [
        data("data/share/a"),
        data("data/bin/b"),
        data("purelib/c/d"),
        data("platlib/e"),
        data("headers/f.h"),
    ]
    found = install(place, make_wheel(tmp_path, parts))
    headers = f"opt/env/include/site/python{place.python}/toy/f.h"
    wanted = ["opt/env/share/a", "opt/env/bin/b", f"{site(place)}/c/d", f"{site(place)}/e", headers]
    assert [found[path] for path in wanted] == [(0o644, b"x")] * 5
    assert not any(".data" in path for path in found)
    rows = found[f"{site(place)}/toy-1.0.dist-info/RECORD"][1].decode().splitlines()
    for path in ("../../../share/a", "../../../bin/b", "c/d", "e", f"../../../include/site/python{place.python}/toy/f.h"):
        assert any(row.startswith(f"{path},sha256=") for row in rows)


def test_a_link_of_the_virtual_environment_stays_one(tmp_path: Path) -> None:
    """The venv module makes lib64 a link to lib. A folder lib64 in a layer would replace the link."""
    file = make_wheel(tmp_path, [data("data/lib64/a/b")])
    found = install(UV, file)
    assert found["opt/env/lib/a/b"] == (0o644, b"x")
    assert not any("lib64" in path for path in found)
    assert "/opt/env/lib64, which may be a link" in refused(PIP, file)


def test_empty_folders_stay_with_uv_and_go_with_pip(tmp_path: Path) -> None:
    names = ["toy/empty/", "toy-1.0.data/", "toy-1.0.data/data/", "toy-1.0.data/data/e/", "toy-1.0.data/scripts/"]
    file = make_wheel(tmp_path, [Part(name=name, method=0, mode=FOLDER | 0o700) for name in names])
    found = install(UV, file)
    assert found[f"{site(UV)}/toy/empty"] == found["opt/env/e"] == (0o755, None)
    assert "opt/env/bin" not in found
    found = install(PIP, file)
    assert f"{site(PIP)}/toy" not in found
    assert "opt/env/e" not in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"#!python\nx", b"#!/opt/env/bin/python\nx"), (b"#!pythonw -u\r\nx\r\n", b"#!/opt/env/bin/python\nx\r\n"),
        (b"#!python", b"#!/opt/env/bin/python\n"), (b"#!/bin/sh\nx", b"#!/bin/sh\nx"), (b"", b""), (b"\x7fELF\0", b"\x7fELF\0"),
    ],
)  # fmt: skip
def test_scripts_get_the_interpreter(before: bytes, after: bytes, tmp_path: Path) -> None:
    file = make_wheel(tmp_path, [data("scripts/run", before), data("scripts/program", before, FILE | 0o755)])
    found = install(UV, file)
    assert found["opt/env/bin/run"] == found["opt/env/bin/program"] == (0o755, after)
    found = install(PIP, file)
    assert (found["opt/env/bin/run"], found["opt/env/bin/program"]) == ((0o644, after), (0o755, after))


@BOTH
def test_entry_points_become_programs(place: InstallPlace, tmp_path: Path) -> None:
    parts = [data("scripts/tool", b"old"), data("scripts/tool-script.py", b"old"), data("scripts/other", b"own")]
    found = install(place, make_wheel(tmp_path, parts, entry_points=ENTRY_POINTS))
    programs = {path for path in found if path.startswith("opt/env/bin/")}
    assert programs == {"opt/env/bin/tool", "opt/env/bin/show", "opt/env/bin/other"}
    mode, text = found["opt/env/bin/tool"]
    assert mode == 0o755
    assert text.startswith(b"#!/opt/env/bin/python\n")
    assert b"\nfrom toy.cli import main\n" in text
    assert text.endswith(b"    sys.exit(main.run())\n")


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        (UV, {"pip", "pip3", "pip3.11", "easy_install", "easy_install-3.2"}),
        (PIP, {"pip", "pip3", "pip3.5", "easy_install", "easy_install-3.5"}),
    ],
)
def test_pip_and_setuptools_get_programs_for_this_python(place: InstallPlace, wanted: set[str], tmp_path: Path) -> None:
    names = ("pip", "pip3", "pip3.9", "easy_install", "easy_install-3.2")
    text = "[console_scripts]\n" + "".join(f"{name} = toy:main\n" for name in names)
    found = install(place, make_wheel(tmp_path, entry_points=text))
    assert {path.rpartition("/")[2] for path in found if path.startswith("opt/env/bin/")} == wanted


@BOTH
def test_the_installer_says_who_it_was(place: InstallPlace, tmp_path: Path) -> None:
    file = make_wheel(tmp_path)
    folder = f"{site(place)}/toy-1.0.dist-info"
    found = install(place, file)
    assert found[f"{folder}/INSTALLER"] == (0o644, b"uv" if place is UV else b"pip\n")
    assert found[f"{folder}/REQUESTED"] == (0o644, b"")
    stream = io.BytesIO()
    wheel_layer.write(stream, [(file, False)], place, {})
    assert f"{folder}/REQUESTED" not in unpack(stream.getvalue())


def test_a_record_that_is_a_program(tmp_path: Path) -> None:
    """In selenium 4.50, RECORD is marked executable. uv keeps the mode, pip does not."""
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of(own)
    record.mode = FILE | 0o755
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([*own, record]))
    assert install(UV, file)[f"{site(UV)}/{record.name}"][0] == 0o755
    assert install(PIP, file)[f"{site(PIP)}/{record.name}"][0] == 0o644


@BOTH
def test_bytecode_that_a_wheel_brings_stays(place: InstallPlace, tmp_path: Path) -> None:
    parts = [Part(name="toy/__pycache__/a.cpython-36.pyc", content=b"1"), data("purelib/b/__pycache__/c.pyc", b"2")]
    found = install(place, make_wheel(tmp_path, parts))
    assert found[f"{site(place)}/toy/__pycache__/a.cpython-36.pyc"] == (0o644, b"1")
    assert found[f"{site(place)}/b/__pycache__/c.pyc"] == (0o644, b"2")


def test_bytecode_is_added(tmp_path: Path) -> None:
    file = make_wheel(tmp_path, [Part(name="a.py"), Part(name="__pycache__/a.cpython-311.pyc", content=b"old")])
    compiled = tmp_path / "compiled"
    compiled.write_bytes(b"from a file")
    cache = f"/{site(UV)}/__pycache__"
    found = install(UV, file, bytecode={f"{cache}/a.cpython-311.pyc": b"new", f"{cache}/b.cpython-311.pyc": compiled})
    assert found[f"{cache[1:]}/a.cpython-311.pyc"] == (0o644, b"new")
    assert found[f"{cache[1:]}/b.cpython-311.pyc"] == (0o644, b"from a file")


def test_what_is_compiled(tmp_path: Path) -> None:
    parts = [
        Part(name="b.py", content=b"b"),
        Part(name="a.pyi"),
        data("scripts/run.py", b"#!python\n"),
        data("data/c.py", b"c"),
    ]
    assert list(wheel_layer.sources(make_wheel(tmp_path, parts), UV)) == [
        ("/opt/env/bin/run.py", b"#!/opt/env/bin/python\n"), ("/opt/env/c.py", b"c"), (f"/{site(UV)}/b.py", b"b"),
    ]  # fmt: skip


def test_of_several_wheels_the_later_wins(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, [Part(name="same", content=b"1"), Part(name="one")], name="first")
    second = make_wheel(tmp_path, [Part(name="same", content=b"2"), Part(name="two")], name="second")
    found = install(UV, first, second)
    assert found[f"{site(UV)}/same"] == (0o644, b"2")
    assert {f"{site(UV)}/one", f"{site(UV)}/two"} <= found.keys()
    assert install(UV, second, first)[f"{site(UV)}/same"] == (0o644, b"1")


def test_wheels_that_need_a_path_as_file_and_as_folder(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, [Part(name="same")], name="first")
    second = make_wheel(tmp_path, [Part(name="same/file")], name="second")
    with pytest.raises(BuildError, match="would be both a file and a folder") as caught:
        install(UV, first, second)
    assert caught.value.code == "bad-wheel"


def test_the_order_of_members_does_not_matter(tmp_path: Path) -> None:
    parts = [Part(name="toy/a", content=b"a"), Part(name="b", content=b"b"), data("scripts/c", b"#!python")]
    layers = []
    for order in (parts, parts[::-1]):
        file = make_wheel(tmp_path, order)
        layers.append(wheel_layer.write(io.BytesIO(), [(file, True)], UV, {}))
    assert layers[0].digest == layers[1].digest


@BOTH
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([data("scripts/a"), data("data/bin/a")], "two files for /opt/env/bin/a"),
        (
            [data("purelib/a"), data("data/lib/python3.11/site-packages/a"), data("data/lib/python3.5/site-packages/a")],
            "two files for",
        ),
        ([data("nowhere/a")], "invalid"),
        ([data("a")], "invalid"),
    ],
)
def test_files_without_a_place_are_refused(place: InstallPlace, parts: Sequence[Part], reason: str, tmp_path: Path) -> None:
    assert reason in refused(place, make_wheel(tmp_path, parts))


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "[console_scripts]\na = toy\n",
        "[console_scripts]\na = toy:\n",
        "[console_scripts]\na\n",
        "[console_scripts]\na = x y:z\n",
        "[console_scripts]\n../a = toy:main\n",
        "[console_scripts]\npython = toy:main\n",
        "[console_scripts]\npython3.9 = toy:main\n",
        "no section\n",
        "[console_scripts]\na = toy:main\na = toy:main\n",
        "[console_scripts]\na=b:c\n[gui_scripts]\na=d:e\n",
    ],
)
def test_entry_points_that_make_no_sense_are_refused(place: InstallPlace, text: str, tmp_path: Path) -> None:
    refused(place, make_wheel(tmp_path, entry_points=text))


DIGEST = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"  # the hash of an empty file


@BOTH
def test_of_two_wheels_with_the_same_path_the_last_wins(place: InstallPlace, tmp_path: Path) -> None:
    """A step of a build has the same rule (see `install_in_order`). Locks list packages in the order of their names."""
    first, second = (
        make_wheel(tmp_path, [Part(name="shared.py", content=name.encode()), Part(name=f"{name}.py")], name=name)
        for name in ("first", "second")
    )
    found = install(place, first, second)
    assert found[f"{site(place)}/shared.py"][1] == b"second"
    assert {f"{site(place)}/first.py", f"{site(place)}/second.py"} <= set(found)
    assert install(place, second, first)[f"{site(place)}/shared.py"][1] == b"first"


def test_a_record_may_list_folders(tmp_path: Path) -> None:
    """The RECORD of cmake 3.26.4 lists 75 folders. uv leaves these rows out; pip keeps them."""
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of([Part(name="a/b"), *own])
    record.content += b"a/,,\nnowhere/,,\n"
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([Part(name="a/b"), *own, record]))
    for place, folders in ((UV, set()), (PIP, {"a/,,", "nowhere/,,"})):
        rows = install(place, file)[f"{site(place)}/toy-1.0.dist-info/RECORD"][1].decode().splitlines()
        assert {row for row in rows if "/,," in row} == folders


@BOTH
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (f"a,{DIGEST},0\nb,{DIGEST},0\n", "lists 'b', which is not in the wheel"),
        (f"a,{DIGEST},1\n", "bytes, but toy-1.0.dist-info/RECORD says 1"),
        (f"a,{DIGEST[:-1]}Q,0\n", "do not have the sha256 in its RECORD"),
        (f"a,{DIGEST},0\na,{DIGEST[:-1]}Q,0\n", "two hashes"),
        ("a,md4=abc,0\n", "whose kind is unknown"),
        ("a,sha256,0\n", "whose kind is unknown"),
        (f"a,{DIGEST},-1\n", "the size '-1'"),
        (f"a,{DIGEST}\n", "a line of 2 fields"),
        (f"a,{DIGEST},0,\n", "a line of 4 fields"),
        (f"../a,{DIGEST},0\n", "lists '../a'"),
    ],
)
def test_a_record_that_disagrees_is_refused(place: InstallPlace, rows: str, reason: str, tmp_path: Path) -> None:
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of(own)
    record.content += rows.encode()
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([Part(name="a"), *own, record]))
    assert reason in refused(place, file)


def test_a_record_that_lacks_files(tmp_path: Path) -> None:
    """In PyTorch 1.0.0, RECORD lacks 200 files. uv adds rows, except for files that it moves; pip adds rows without sizes."""
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    file.write_bytes(zip_file([Part(name="a", content=b"abc"), *own, record_of(own)]))
    rows = install(UV, file)[f"{site(UV)}/toy-1.0.dist-info/RECORD"][1].decode().splitlines()
    assert "a,,3" in rows
    rows = install(PIP, file)[f"{site(PIP)}/toy-1.0.dist-info/RECORD"][1].decode().splitlines()
    assert "a,," in rows
    file.write_bytes(zip_file([data("data/a"), *own, record_of(own)]))
    assert "does not list 'toy-1.0.data/data/a'" in refused(UV, file)
    assert "opt/env/a" in install(PIP, file)


@BOTH
def test_records_as_some_publishers_make_them(place: InstallPlace, tmp_path: Path) -> None:
    """Hashes in hexadecimal (gmsh 4.15.2) or with padding, and a METADATA that was edited after RECORD was made."""
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of(own)
    own[0].content += b"Summary: added later\n"
    empty = hashlib.sha256(b"").hexdigest()
    record.content += f"a,sha256={empty},0\n./b,{DIGEST}=,\n/c,,\n".encode()
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([Part(name="a"), Part(name="b"), Part(name="c"), *own, record]))
    found = install(place, file)
    assert {f"{site(place)}/{name}" for name in "abc"} <= found.keys()
    assert b"added later" in found[f"{site(place)}/{own[0].name}"][1]


@BOTH
@pytest.mark.parametrize(
    ("name", "missing", "content", "reason"),
    [
        ("toy-1.0.dist-info/RECORD", True, b"", "has no toy-1.0.dist-info/RECORD"),
        ("toy-1.0.dist-info/WHEEL", True, b"", "has no toy-1.0.dist-info/WHEEL"),
        ("toy-1.0.dist-info/METADATA", True, b"", "has no toy-1.0.dist-info/METADATA"),
        ("toy-1.0.dist-info/RECORD", False, b"\xff", "cannot be read"),
        ("toy-1.0.dist-info/WHEEL", False, b"Wheel-Version: 2.0\n", "Wheel-Version 2.0"),
        ("toy-1.0.dist-info/METADATA", False, b"Name: other\nVersion: 1.0\n", "its metadata names 'other'"),
        ("toy-1.0.dist-info/METADATA", False, b"Name: toy\nVersion: 1.1\n", "its metadata names version 1.1"),
        ("toy-1.0.dist-info/METADATA", False, b"Name: toy\n", "version"),
        ("more-1.0.dist-info/METADATA", False, b"", "2 folders of metadata"),
    ],
)
def test_metadata_that_is_wrong_is_refused(
    place: InstallPlace, name: str, missing: bool, content: bytes, reason: str, tmp_path: Path
) -> None:
    parts = {path: Part(name=path, content=content) for path, content in metadata().items()}
    record = record_of(list(parts.values()))
    parts[record.name] = record
    parts.pop(name, None)
    if not missing:
        parts[name] = Part(name=name, content=content)
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    if name != record.name:
        parts[record.name] = record_of([part for part in parts.values() if part is not record])
    file.write_bytes(zip_file(list(parts.values())))
    assert reason in refused(place, file)


def test_a_record_too_large_to_be_read_is_refused(tmp_path: Path) -> None:
    """RECORD is read into memory, so its size is limited."""
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of(own)
    record.content += b"\n" * 2**24
    file = tmp_path / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([*own, record]))
    assert "more than 16777216" in refused(UV, file)


def hash_of(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


WRONG = WrongRecord(wheel="f" * 64, file="toy/a", recorded=hash_of(b"before"), contained=hash_of(b"real"))


def wheel_with_wrong_record(folder: Path) -> Path:
    """PyTorch 1.9.1: RECORD has the hash and the size of another libtorch_cpu.so."""
    own = [Part(name=path, content=content) for path, content in metadata().items()]
    record = record_of([Part(name="toy/a", content=b"before"), *own])
    file = folder / "toy-1.0-py3-none-any.whl"
    file.write_bytes(zip_file([Part(name="toy/a", content=b"real"), *own, record]))
    return file


def install_knowing(known: WrongRecord, place: InstallPlace, file: Path) -> dict[str, tuple[int, bytes | None]]:
    stream = io.BytesIO()
    with wheel_layer.OpenWheels([known]) as opened:
        wheel_layer.write(stream, [(file, True)], place, {}, opened)
    return unpack(stream.getvalue())


@BOTH
def test_a_known_wrong_record_is_installed_as_it_is(place: InstallPlace, tmp_path: Path) -> None:
    file = wheel_with_wrong_record(tmp_path)
    assert "bytes, but" in refused(place, file)
    found = install_knowing(WRONG, place, file)
    assert found[f"{site(place)}/toy/a"][1] == b"real"
    assert f"toy/a,{hash_of(b'before')},6" in found[f"{site(place)}/toy-1.0.dist-info/RECORD"][1].decode()


@BOTH
def test_a_wheel_with_the_same_record_may_be_right(place: InstallPlace, tmp_path: Path) -> None:
    """CNTK 2.5.1: RECORD has the hash of cntk/__init__.py that is wrong in CNTK 2.5."""
    file = make_wheel(tmp_path, [Part(name="toy/a", content=b"before")])
    assert install_knowing(WRONG, place, file) == install(place, file)


@BOTH
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"contained": hash_of(b"other")}, "do not have the sha256"),
        ({"recorded": hash_of(b"other")}, "bytes, but"),
        ({"file": "toy/b"}, "bytes, but"),
    ],
)
def test_a_known_wrong_record_excuses_nothing_else(
    place: InstallPlace, changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=reason):
        install_knowing(dataclasses.replace(WRONG, **changed), place, wheel_with_wrong_record(tmp_path))
