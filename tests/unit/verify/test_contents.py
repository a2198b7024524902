"""The script that reports the contents of an image, with a prefix made by hand."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import envbuild

EMPTY = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"  # the sha256 of an empty file, as RECORD writes it


@pytest.fixture(scope="module")
def contents() -> ModuleType:
    path = Path(envbuild.__file__).parent / "smoke" / "contents.py"
    spec = importlib.util.spec_from_file_location("contents_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """/opt/env with a package of a module, a script, and a file whose name has a comma and a non-ASCII letter."""
    prefix = tmp_path / "env"
    site = prefix / "lib" / "python3.11" / "site-packages"
    info = site / "Good_Package-1.0.dist-info"
    info.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "lib64").symlink_to("lib")
    files = {
        site / "good.py": b"answer = 42\n",
        site / "odd, näme.txt": b"odd",
        site / "only.pyc": b"a package that ships without its source",
        site / "large.bin": b"\0" * (2 << 20),
        prefix / "bin" / "good": b"#!/opt/env/bin/python\n",
        info / "METADATA": b"Metadata-Version: 2.1\nName: Good.Package\nVersion: 1.0\n\nName: not this one\n",
    }
    rows = []
    for path, data in files.items():
        path.write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        relative = path.relative_to(site).as_posix() if path.is_relative_to(site) else "../../../bin/good"
        rows.append(f'"{relative}",sha256={digest},{len(data)}')
    rows += ["Good_Package-1.0.dist-info/RECORD,,", "__pycache__/odd.cpython-311.pyc,,"]
    rows += [f"odd.py,sha256={EMPTY},0", "Good_Package-1.0.dist-info/METADATA.bak,,"]
    rows += [f"__pycache__/good.cpython-311.pyc,sha256={'A' * 43},7"]  # was compiled again later
    (site / "odd.py").write_text("")
    (info / "METADATA.bak").write_text("")
    (info / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (site / "__pycache__").mkdir()
    (site / "__pycache__" / "good.cpython-311.pyc").write_bytes(b"compiled")
    for name in ("python", "python3.11", "activate"):
        (prefix / "bin" / name).write_text("")
    return prefix


def differences(told: dict[str, Any]) -> dict[str, list[str]]:
    found = {key: [Path(item["path"]).name for item in told[key]] for key in ("missing", "modified", "unreadable", "unhashed")}
    found["unrecorded"] = [Path(path).name for path in told["unrecorded"]]
    return {key: names for key, names in found.items() if names}


def test_an_untouched_prefix_has_no_difference(contents: ModuleType, prefix: Path) -> None:
    told = contents.examine(str(prefix), False)
    assert differences(told) == {}
    (one,) = told["distributions"]
    assert (one["name"], one["version"], one["kind"]) == ("Good.Package", "1.0", "wheel")
    assert one["hashed"] == 7
    assert told["bytes"] > 2 << 20


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda p: (p / "good.py").write_text("answer = 43\n"), {"modified": ["good.py"]}),
        (lambda p: (p / "good.py").write_text("longer than it was\n"), {"modified": ["good.py"]}),
        (lambda p: (p / "odd, näme.txt").unlink(), {"missing": ["odd, näme.txt"]}),
        (lambda p: (p / "sitecustomize.py").write_text("evil()"), {"unrecorded": ["sitecustomize.py"]}),
        (lambda p: (p / "evil.pth").write_text("import evil"), {"unrecorded": ["evil.pth"]}),
        (
            lambda p: (p / "__pycache__" / "orphan.cpython-311.pyc").write_bytes(b""),
            {"unrecorded": ["orphan.cpython-311.pyc"]},
        ),
        (lambda p: (p / "only.pyc").write_bytes(b"other"), {"modified": ["only.pyc"]}),
        (lambda p: (p.parents[2] / "bin" / "extra").write_text(""), {"unrecorded": ["extra"]}),
        (lambda p: (p.parents[2] / "bin" / "good").write_text("#!/bin/evil\n"), {"modified": ["good"]}),
    ],
)
def test_each_planted_fault_is_found(contents: ModuleType, prefix: Path, fault: Any, expected: dict[str, list[str]]) -> None:
    fault(prefix / "lib" / "python3.11" / "site-packages")
    assert differences(contents.examine(str(prefix), False)) == expected


def test_a_script_of_the_wheel_may_be_pointed_at_the_python_of_its_prefix_and_not_otherwise_changed(
    contents: ModuleType, prefix: Path
) -> None:
    """pip 20.3 changes the first line of scripts without changing RECORD."""
    shipped = b"#!python\nrun()\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(shipped).digest()).rstrip(b"=").decode()
    with (prefix / "lib/python3.11/site-packages/Good_Package-1.0.dist-info/RECORD").open("a", encoding="utf-8") as record:
        record.write(f"../../../bin/tool,sha256={digest},{len(shipped)}\n")
    script = prefix / "bin" / "tool"
    script.write_text(f"#!{prefix}/bin/python\nrun()\n")
    assert differences(contents.examine(str(prefix), False)) == {}
    for text in (f"#!{prefix}/bin/python\nevil()\n", "#!/usr/bin/python\nrun()\n"):
        script.write_text(text)
        assert differences(contents.examine(str(prefix), False)) == {"modified": ["tool"]}


@pytest.mark.parametrize("digest", ["", "md5=1B2M2Y8AsgTpgAmY7PhCfg"])
def test_a_file_without_a_strong_hash_is_found(contents: ModuleType, prefix: Path, digest: str) -> None:
    """Installers add such a line for a file that the wheel's own RECORD does not list."""
    site = prefix / "lib/python3.11/site-packages"
    (site / "concealed.py").write_text("")
    with (site / "Good_Package-1.0.dist-info/RECORD").open("a", encoding="utf-8") as record:
        record.write(f"concealed.py,{digest},\n")
    assert differences(contents.examine(str(prefix), False)) == {"unhashed": ["concealed.py"]}


def test_a_file_that_two_packages_bring_is_as_one_of_them_recorded_it(contents: ModuleType, prefix: Path) -> None:
    site = prefix / "lib/python3.11/site-packages"
    info = site / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: other\nVersion: 1.0\n")
    (info / "RECORD").write_text(
        f"good.py,sha256={'A' * 43},99\nother-1.0.dist-info/METADATA,,\nother-1.0.dist-info/RECORD,,\n"
    )
    told = contents.examine(str(prefix), False)
    assert differences(told) == {}
    assert told["replaced"] == [{"path": str(site / "good.py"), "of": "other", "by": "Good.Package"}]
    (site / "good.py").write_text("answer = 43\n")
    assert set(differences(contents.examine(str(prefix), False))["modified"]) == {"good.py"}


def test_a_place_inside_the_wheel_that_an_installer_left_in_the_record_is_nothing_to_look_for(
    contents: ModuleType, prefix: Path
) -> None:
    with (prefix / "lib/python3.11/site-packages/Good_Package-1.0.dist-info/RECORD").open("a", encoding="utf-8") as record:
        record.write(f"Good_Package-1.0.data/scripts/good,sha256={'A' * 43},21\n")
    assert differences(contents.examine(str(prefix), False)) == {}


SECRETS = {
    "root/.netrc": b"machine x login y password z",
    "home/envbuild/.docker/config.json": b"{}",
    "opt/tool/server.key": b"-----BEGIN RSA PRIVATE KEY-----\n",
    "home/envbuild/.bash_history": b"export TOKEN=1",
}


@pytest.mark.parametrize("path", SECRETS)
def test_what_programs_keep_credentials_in_is_found(contents: ModuleType, tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert not contents.secret_in(str(file))
    file.write_bytes(SECRETS[path])
    assert contents.secret_in(str(file))


def test_what_only_looks_like_credentials_is_not(contents: ModuleType, tmp_path: Path) -> None:
    for name, data in (("ca.pem", b"-----BEGIN CERTIFICATE-----"), ("netrc.py", b"password"), (".npmrc", b"color=true")):
        (tmp_path / name).write_bytes(data)
        assert not contents.secret_in(str(tmp_path / name))
    (tmp_path / ".npmrc").write_bytes(b"registry=https://me:secret@npm.example/")
    assert contents.secret_in(str(tmp_path / ".npmrc"))


def test_quick_compares_large_files_by_size_only(contents: ModuleType, prefix: Path) -> None:
    large = prefix / "lib" / "python3.11" / "site-packages" / "large.bin"
    large.write_bytes(b"\1" * (2 << 20))
    assert differences(contents.examine(str(prefix), True)) == {}
    assert differences(contents.examine(str(prefix), False)) == {"modified": ["large.bin"]}
    large.write_bytes(b"\1")
    assert differences(contents.examine(str(prefix), True)) == {"modified": ["large.bin"]}


def test_an_installation_without_a_record_is_told_apart(contents: ModuleType, prefix: Path) -> None:
    site = prefix / "lib" / "python3.11" / "site-packages"
    (site / "Good_Package-1.0.dist-info" / "RECORD").unlink()
    old = site / "old-2.0-py3.11.egg-info"
    old.mkdir()
    (old / "PKG-INFO").write_text("Name: old\nVersion: 2.0\n")
    (old / "installed-files.txt").write_text("../old.py\nPKG-INFO\n")
    kinds = {one["name"]: (one["kind"], one["version"]) for one in contents.examine(str(prefix), False)["distributions"]}
    assert kinds == {"Good.Package": ("no-record", "1.0"), "old": ("egg-info", "2.0")}


def test_progress_counts_what_is_hashed_up_to_its_total(
    contents: ModuleType, prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = contents.examine(str(prefix), False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"progress {told['bytes']} {told['bytes']}"


def test_an_empty_prefix_is_told_as_such(contents: ModuleType, tmp_path: Path) -> None:
    told = contents.examine(str(tmp_path / "absent"), False)
    assert told["sites"] == [] and told["distributions"] == []
    json.dumps(told)


@pytest.mark.parametrize("python", [2, 3])
def test_a_right_that_is_no_mode_is_seen_by_every_python(
    contents: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: int
) -> None:
    plain, ping = tmp_path / "plain", tmp_path / "ping"
    plain.write_text("")
    ping.write_text("")
    try:  # cap_net_raw, in the kernel's binary format
        os.setxattr(ping, "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
    except OSError:
        pytest.skip("only root may give such rights, on a disk that keeps them")
    if python == 2:
        monkeypatch.delattr(os, "getxattr")
    assert contents.has_capability(str(ping))
    assert not contents.has_capability(str(plain))
    assert not contents.has_capability(str(tmp_path / "nothing"))
