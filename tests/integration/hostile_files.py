# ruff: noqa: E501, RUF001 - bytes and texts of attackers, one a line
"""Malformed wheels, source archives and index pages, generated from a number. The same number gives the same bytes."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

GOOD = "alpha-1.0-py3-none-any.whl"
DEEP = 20_000

# Wrong values to replace a text, a list or a number.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**400, "", " ", "\0", "\n", "x\ny", "\x1b[31m", "../../x", "/etc/passwd",
    "$(id)", "`id`", ";id", "a" * 10_000, "\ud800", "\u202e", "é", "😀", [], [[]], {}, {"a": 1}, [None], ["x"], "NaN", "12", "1e9",
    "http://[", "http://[::1", "file:///etc/passwd", "javascript:x", "//", "http://", "http://a:99999/x.whl", "data:,x", "ftp://a/b",
)  # fmt: skip
REQUIREMENTS = (
    "x", "", " ", ";", "x;", "x ; y", "x==", "x>=1,", "x>=2011k", "x>dev", "x (>=1.*)", "x[", "x[]", "x[a", "x @", "x @ file:///etc/passwd",
    "x @ git+https://a.example/x", "x==" + "1" * 5000, "x==1." * 500, "x" * 5000, "\0", "x\0y", "x; " + "(" * DEEP, "x; " + "(" * 300 +
    "os_name=='a'" + ")" * 300, 'x; os_name >= "3"', 'x; python_version ~= "a"', 'x; python_version in "3"', "x; extra == 'y'",
    'x; platform_release < "1"', "x; implementation_version < 'x'", 'x; sys_platform > "é"', "x; os_name == os_name", "x===../../y", "é>=1", "-x", "x-", ".", "..",
    "nobody-has-this", "nobody-has-this>=1", "alpha", "alpha>2", "alpha[extra]", "x>=1 ," + " " * 50_000 + "y", "1" + " " * 50_000, "x" + "[a]" * 2000,
    "x<1" * 3000, "x!=1,!=2,!=3.*", "x~=1", "x=>1", "x;python_version<'3'and('a'in'b')", "\ufeffx", "x\u2028y", "https://a.example/x.whl", "x @ http://[",
)  # fmt: skip
VERSIONS = (
    "1.0",
    "2.0",
    "",
    " ",
    "2.0\0",
    "two",
    "1" * 5000,
    "2.0+../../x",
    "2!0",
    "-1",
    "2.0.dev" + "9" * 4000,
    "2.0\n3",
    "٢.٠",
)
SETUPS = (
    "setup(install_requires=None)", "setup(install_requires=7)", "setup(install_requires='x')", "setup(install_requires=[None])",
    "setup(install_requires={'x'})", "setup(install_requires={'x': 1})", "setup(install_requires=[['x']])", "setup(install_requires=open('/etc/passwd'))",
    "setup(extras_require=None)", "setup(extras_require=[])", "setup(extras_require={'a': None})", "setup(extras_require={1: ['x']})", "setup(extras_require={'a': 3})",
    "setup(**x, install_requires=[])", "setup(install_requires=[" + "(" * 500 + ")" * 500 + "])", "setup(install_requires=" + "[" * DEEP + "]" * DEEP + ")",
    "setup(install_requires=" + "-" * DEEP + "1)", "setup(install_requires=x" + ".a" * DEEP + ")", "setup(install_requires=" + "1+" * DEEP + "1)",
    "install_requires\0", "setup(install_requires=['\\ud800'])", "setup(install_requires=['x'] * 10**9)", "setup_requires=[" * 60_000, "setup_requires" + " " * 100_000,
    "\tsetup(install_requires=[])", "setup(install_requires=['x'", "x = '''install_requires", "setup(install_requires=[])\nsetup(install_requires=['x'])",
    "# -*- coding: nonsense -*-\nsetup(install_requires=[])", "setup(install_requires=" + "lambda: " * 5000 + "1)", "setup(install_requires=['" + "x" * 10**6 + "'])",
    "setup(install_requires=[f'{" * 100 + "1" + "}']" * 100, "é" * 1000 + " install_requires",
)  # fmt: skip
TABLES = (
    "[project]\ndependencies = 'x'", "[project]\ndependencies = [1]", "[project]\ndependencies = {a=1}", "[project]\ndynamic = 3", "[project]\ndynamic = 'dependencies'",
    "project = 3", "[build-system]\nrequires = 'x'", "[build-system]\nrequires = [[1]]", "build-system = []", "[[project]]", "[project", "\0", "a=" + "[" * DEEP,
    "a." * DEEP + "b=1", "x = " + "9" * 5000, "[project]\ndependencies = ['x']\ndependencies = []", "é = 1", "[build-system]\nrequires = ['x @ file:///']", "a = 1e999",
    "a = 9999-99-99", "[a]\n" * 5000,
)  # fmt: skip


def wheel_of(text: str | bytes, *, name: str = "alpha-2.0.dist-info/METADATA", kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        archive.writestr("alpha/__init__.py", "")
        archive.writestr(name, text)
    return out.getvalue()


def metadata(*lines: str, name: str = "alpha", version: str = "2.0") -> str:
    return "\n".join((f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *lines)) + "\n\n"


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def sdist_of(files: dict[str, str], *, mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for inner, text in files.items():
            content = as_bytes(text)
            info = tarfile.TarInfo(f"alpha-2.0/{inner}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def flipped(content: bytes, chance: random.Random) -> bytes:
    """Change, remove or double some bytes, or cut off the end."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 2, 8, 64))):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randrange(1, 40)]
            case 2:
                data[place:place] = data[place : place + 40]
            case _:
                data[place : place + 4] = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\x01\0\0\0"))
        if not data:
            break
    return bytes(data[: chance.randrange(len(data) + 1)]) if chance.random() < 0.15 else bytes(data)


def odd_metadata(chance: random.Random) -> str:
    lines = [f"Requires-Dist: {chance.choice(REQUIREMENTS)}" for _ in range(chance.choice((0, 1, 1, 3)))]
    if chance.random() < 0.3:
        lines.append(
            f"Requires-Python: {chance.choice(('>=3', '<3', 'x', '>=3.*', '', '>=' + '9' * 5000, '3', '>=3;', chr(0)))}"
        )
    if chance.random() < 0.2:
        lines.append(
            chance.choice(
                ("Version: 2.0", "Name: beta", "x", ": y", "\0", "Requires-Dist", "Requires-Dist:", " folded", "é: é")
            )
        )
    version = chance.choice(VERSIONS) if chance.random() < 0.2 else "2.0"
    name = chance.choice(("alpha", "Alpha", "beta", "", "../x", "a\0b", "é")) if chance.random() < 0.2 else "alpha"
    return metadata(*lines, name=name, version=version)


def odd_wheel(chance: random.Random) -> bytes:
    match chance.randrange(12):
        case 0 | 1 | 2 | 3:
            return wheel_of(as_bytes(odd_metadata(chance)))
        case 4 | 5 | 6:
            return flipped(wheel_of(metadata("Requires-Dist: alpha")), chance)
        case 7:
            kind = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            return flipped(wheel_of(metadata(), kind=kind), chance)
        case 8:
            names = (
                "METADATA",
                "a/METADATA",
                "x.dist-info/METADATA/",
                "../a.dist-info/METADATA",
                ".dist-info/METADATA",
            )
            return wheel_of(metadata(), name=chance.choice(names))
        case 9:
            return chance.choice(
                (
                    b"",
                    b"PK",
                    b"\0" * 5000,
                    b"<html>login</html>",
                    wheel_of(metadata()) * 2,
                    wheel_of(metadata()) + b"x" * 70_000,
                )
            )
        case 10:
            return bytes(chance.randrange(256) for _ in range(chance.choice((10, 22, 1000))))
        case _:
            # An end-of-central-directory record with random numbers.
            claims = [chance.choice((0, 1, 0xFFFF, 2000)) for _ in range(4)] + [
                chance.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF)) for _ in range(2)
            ]
            return wheel_of(metadata())[:-22] + struct.pack("<4s4H2LH", b"PK\5\6", *claims, 0)


def odd_sdist(chance: random.Random) -> bytes:
    files = {"PKG-INFO": odd_metadata(chance) if chance.random() < 0.4 else metadata()}
    files["PKG-INFO"] = files["PKG-INFO"].replace("2.1", chance.choice(("1.0", "1.1", "2.1", "2.2", "x", "9" * 5000, "")))
    if chance.random() < 0.5:
        files["setup.py"] = chance.choice(SETUPS)
    if chance.random() < 0.3:
        files["pyproject.toml"] = chance.choice(TABLES)
    if chance.random() < 0.3:
        lines = [
            chance.choice((*REQUIREMENTS, "[x]", "[:python_version<'3']", "[", "]", "[:" + "(" * 400 + "]", "[x:y]"))
            for _ in range(3)
        ]
        files["alpha.egg-info/requires.txt"] = "\n".join(lines)
    if chance.random() < 0.3:
        files["setup.cfg"] = chance.choice(
            (
                "[options]\ninstall_requires = x",
                "[options",
                "x",
                "[options]\nsetup_requires=\n  é\n \0",
                "%(x)s",
                "[a]\n[a]",
                "=",
                "\0",
            )
        )
    if chance.random() < 0.1:
        files.pop("PKG-INFO")
    content = sdist_of(files, mode=chance.choice(("w:gz", "w:gz", "w", "w:bz2", "w:xz")))
    return flipped(content, chance) if chance.random() < 0.4 else content


def odd_zip_sdist(chance: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("alpha-2.0/PKG-INFO", as_bytes(odd_metadata(chance)))
        archive.writestr("alpha-2.0/setup.py", as_bytes(chance.choice(SETUPS)))
    return flipped(out.getvalue(), chance) if chance.random() < 0.5 else out.getvalue()


def entry(filename: str, content: bytes) -> dict[str, Any]:
    """A file on an index page in JSON."""
    return {
        "filename": filename,
        "url": f"files/{filename}",
        "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
        "requires-python": ">=3",
        "size": len(content),
        "upload-time": "2017-01-01T00:00:00Z",
        "yanked": False,
    }


NAMES = (
    "alpha-2.0-1/../../../x-py3-none-any.whl", "alpha-2.0-1%2F..%2Fx-py3-none-any.whl", "alpha-2.0-py3-none-any.whl\n", "alpha-2.0-$(id)-py3-none-any.whl",
    "alpha-2.0-1`id`-py3-none-any.whl", "../alpha-2.0-py3-none-any.whl", "alpha-2.0-py3-none-any.whl\0", "alpha-2.0-1\n2-py3-none-any.whl", "alpha-" + "9" * 300 + "-py3-none-any.whl",
    "alpha-2.0-" + ".".join(["py3"] * 60) + "-none-any.whl", "alpha-2.0-1 RUN id-py3-none-any.whl", "alpha-2.0;id.tar.gz", "alpha-2.0&id.zip", ".alpha-2.0.tar.gz", "alpha-2.0'.tar.gz",
    "alpha-٢.0-py3-none-any.whl", "alpha-2.0-py3-none-any.WHL", "alpha-2.0", "alpha-.tar.gz", "-2.0.tar.gz", "alpha-2.0.tar.gz/", "alpha-2.0-" + "1" * 100 + "-py3-none-any.whl",
    "alpha-2.0+../x-py3-none-any.whl", "alpha-2!0+a.b-py3-none-any.whl", "ALPHA-2.0-py3-none-any.whl", "alpha--2.0-py3-none-any.whl", "alpha-2.0-py3-none.whl",
)  # fmt: skip


def odd_entry(chance: random.Random, content: bytes) -> Any:
    found = entry("alpha-2.0-py3-none-any.whl", content)
    if chance.random() < 0.4:
        found["filename"] = chance.choice(NAMES)
    for key in list(found):
        if chance.random() < 0.12:
            found[key] = chance.choice(ODD)
        elif chance.random() < 0.04:
            del found[key]
    if chance.random() < 0.2:
        found["hashes"] = {"sha256": chance.choice((*ODD, "A" * 64, "0" * 63, "0" * 64))}
    if chance.random() < 0.2:
        found["core-metadata"] = chance.choice((*ODD, {"sha256": None}, {"sha256": "x"}))
    if chance.random() < 0.3:
        times = (
            "2017",
            "2017-13-45T99:99:99Z",
            "0000-00-00T00:00:00Z",
            "2017-01-01",
            "2017-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "\n2017-01-01T00:00:00Z",
            " 2017",
        )
        found["upload-time"] = chance.choice(times)
    return chance.choice(ODD) if chance.random() < 0.05 else found


def page(entries: list[Any]) -> tuple[str, bytes]:
    return "application/vnd.pypi.simple.v1+json", json.dumps({"files": entries}).encode()


def html_page(good: dict[str, Any], chance: random.Random, content: bytes) -> tuple[str, bytes]:
    """An index page in HTML, with one malformed link beside the good one."""
    odd = odd_entry(chance, content)
    odd = odd if isinstance(odd, dict) else {"filename": str(odd)}
    attributes = (
        f'href="files/{odd.get("filename")}#sha256={odd.get("hashes")}" data-requires-python="{odd.get("requires-python")}"'
    )
    tags = (
        f"<a {attributes}>x</a>",
        f"<a {attributes}",
        "<a href='http://['>x.whl</a>",
        "<base href='http://['>",
        "<a href=>",
        "<!--",
        "<![CDATA[",
        "<a " * 5000,
        "<" * 5000,
        "<a a=" * 5000,
    )
    hashed = good["hashes"]["sha256"]
    text = f'<a href="files/{GOOD}#sha256={hashed}" data-upload-time="2017-01-01T00:00:00Z">x</a>\n{chance.choice(tags)}'
    return "text/html", text.encode("utf-8", "surrogatepass")


KINDS: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
    ("alpha-2.0-py3-none-any.whl", odd_wheel),
    ("alpha-2.0.tar.gz", odd_sdist),
    ("alpha-2.0.zip", odd_zip_sdist),
)


def bomb_in_a_wheel() -> bytes:
    """A small wheel whose METADATA unpacks to 256 MB."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("alpha-2.0.dist-info/METADATA", "w", force_zip64=True) as stream,
    ):
        stream.write(metadata().encode())
        for _ in range(256):
            stream.write(b"x" * 2**20)
    return out.getvalue()


def bomb_in_a_directory() -> bytes:
    """A wheel whose end record claims a central directory of 2 GB."""
    content = wheel_of(metadata())
    return content[:-22] + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFE, 0xFFFE, 2**31 - 1, 0, 0)


def _header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def bomb_in_a_member() -> bytes:
    return gzip.compress(_header("alpha-2.0/PKG-INFO", 2**30, tarfile.REGTYPE) + b"\0" * 2**27, 1)


def bomb_in_a_long_name() -> bytes:
    return gzip.compress(_header("././@LongLink", 2**30, tarfile.GNUTYPE_LONGNAME) + b"a" * 2**27, 1)


def bomb_in_a_pax_header() -> bytes:
    return bz2.compress(_header("pax", 2**30, tarfile.XHDTYPE) + b"9" * 2**27)


def bomb_of_members() -> bytes:
    return gzip.compress(_header("alpha-2.0/x", 0, tarfile.REGTYPE) * 150_000, 1)


def bomb_to_skip() -> bytes:
    """A source archive with the header of a member of 8 TB that readers skip; the member itself is missing."""
    return gzip.compress(_header("alpha-2.0/x", 2**43, tarfile.REGTYPE) + b"\0" * 2**27, 1)


BOMBS: tuple[tuple[str, Callable[[], bytes]], ...] = (
    ("alpha-2.0-py3-none-any.whl", bomb_in_a_wheel),
    ("alpha-2.0-py3-none-any.whl", bomb_in_a_directory),
    ("alpha-2.0.tar.gz", bomb_in_a_member),
    ("alpha-2.0.tar.gz", bomb_in_a_long_name),
    ("alpha-2.0.tar.bz2", bomb_in_a_pax_header),
    ("alpha-2.0.tar.gz", bomb_of_members),
    ("alpha-2.0.tar.gz", bomb_to_skip),
)
