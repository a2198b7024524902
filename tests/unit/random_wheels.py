"""Random wheels, more varied than those of any publisher: names, sizes, compression, headers, data folders, scripts, RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import random
import zipfile
import zlib
from pathlib import Path

from wheel_files import FILE, FOLDER, Part, metadata, zip_file

_NAMES = (
    "a", "b.py", "c.pyc", "d.so.1", "E", "e", "with space", "comma,quote\"'", "ünïcode.py", "名前", "-dash", "d.py", ".hidden",
    "x" * 90, "y" * 130, "__init__.py", "#hash", "percent%s", "{brace}", "tilde~", "semi;colon", "d.dist-info", "e.data",
)  # fmt: skip
_FOLDERS = ("", "pkg", "pkg/sub", "pkg/__pycache__", "pkg/ö", "other", "pkg/" + "z" * 80, "pkg/sub/sub/sub")
_MODES = (0o644, 0o644, 0o644, 0o755, 0o700, 0o444, 0o4755, 0o600)
_FIRST_LINES = (b"#!python\n", b"#!python -u\n", b"#!pythonw\r\n", b"#!/bin/sh\n", b"#!python", b"", b"#!pytho", b"\x7fELF\0\1")
_ENTRIES = ("run = pkg:main", "show=pkg.sub:App.start", "dash-ed = a.b_c:d [extra,more]", "x.y = a:z", "Under_score=a:b")
_VERSIONED = ("pip = a:b", "pip3 = a:c", "pip3.7 = a:d", "easy_install = a:e", "easy_install-2.7 = a:f")


def random_wheel(folder: Path, number: int, name: str = "toy") -> Path:
    """Make a wheel; the same ``number`` always gives the same wheel."""
    chance = random.Random(number)
    parts = {part.name: part for part in _files(chance, name)}
    for path, content in metadata(name, entry_points=_entry_points(chance, name)).items():
        parts[path] = Part(name=path, content=content)
    every = list(parts.values())
    every.append(_record(chance, every, name))
    if chance.random() < 0.1:
        every.append(Part(name=f"{name}-1.0.dist-info/RECORD.jws", content=b"{}"))
    for part in every:
        if ".dist-info/" in part.name and chance.random() < 0.1:
            part.mode = FILE | 0o755
    chance.shuffle(every)
    for part in every:
        _wrap(chance, part)
    file = folder / f"{name}-1.0-py2.py3-none-any.whl"
    file.write_bytes(zip_file(every, comment=chance.choice([b"", b"", b"a comment"]), is_wide=chance.random() < 0.2))
    return file


def _files(chance: random.Random, name: str) -> list[Part]:
    """Files in folders that contain the wheel's name, because many wheels are installed together."""
    found = []
    for _ in range(chance.choice([0, 1, 3, 8])):
        place, path = chance.choice(_FOLDERS), chance.choice(_NAMES)
        found.append(_part(chance, f"{name}/{place}/{path}".replace("//", "/")))
    for _ in range(chance.choice([0, 0, 1, 4])):
        kind, path = chance.choice(
            [("data", f"share/{name}/"), ("purelib", f"{name}_p/"), ("platlib", f"{name}_l/"), ("headers", "")]
        )
        found.append(
            _part(chance, f"{name}-1.0.data/{kind}/{path}{chance.choice(_FOLDERS)}/{chance.choice(_NAMES)}".replace("//", "/"))
        )
    for script in chance.sample(["run", "run-script.py", "own", "own.py", "Tool.exe", "show.pya"], chance.choice([0, 0, 2, 5])):
        part = _part(chance, f"{name}-1.0.data/scripts/{name}-{script}")
        part.content = chance.choice(_FIRST_LINES) + part.content
        found.append(part)
    for _ in range(chance.choice([0, 0, 2])):
        kind = chance.choice(
            [name, f"{name}-1.0.data/data/share/{name}", f"{name}-1.0.data/headers", f"{name}-1.0.data/purelib/{name}_p"]
        )
        found.append(Part(name=f"{kind}/empty{chance.randrange(3)}/", method=0, mode=FOLDER | chance.choice([0o755, 0o700])))
    return found


def _part(chance: random.Random, name: str) -> Part:
    size = chance.choice([0, 1, 7, 8, 100, 511, 512, 513, 5000, 5000, 70_000])
    if chance.random() < 0.003:
        size = chance.choice([2**20, 2**20 + 1, 2**21 + 5])
    word = chance.randbytes(chance.choice([1, 3, 100]))
    content = chance.choice([chance.randbytes(size), (word * (size // len(word) + 1))[:size]])
    kind = chance.choice([FILE, FILE, FILE, 0])
    return Part(name=name, content=content, mode=kind | chance.choice(_MODES), system=chance.choice([3, 3, 0]))


def _entry_points(chance: random.Random, name: str) -> str:
    """Entry points whose programs contain the wheel's name. Only one wheel has those of pip and setuptools."""
    if chance.random() < 0.6:
        return ""
    console = "".join(f"{name}-{entry}\n" for entry in chance.sample(_ENTRIES, chance.randrange(len(_ENTRIES))))
    if name == "toy":
        console += "".join(f"{entry}\n" for entry in chance.sample(_VERSIONED, chance.randrange(len(_VERSIONED))))
    return (
        f"# by hand\n[console_scripts]\n{console}\n[gui_scripts]\n{name}-window = a:show\n\n[plugins]\nanything = goes.here:x\n"
    )


def _record(chance: random.Random, parts: list[Part], name: str) -> Part:
    text = io.StringIO(newline="")
    rows = csv.writer(
        text, lineterminator=chance.choice(["\n", "\r\n"]), quoting=chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    )
    for part in chance.sample(parts, len(parts)):
        if part.name.endswith("/"):
            continue
        algorithm = chance.choice(["sha256", "sha256", "sha256", "sha384", "sha512"])
        digest = base64.urlsafe_b64encode(hashlib.new(algorithm, part.content).digest()).decode().rstrip("=")
        row = [part.name, f"{algorithm}={digest}", str(len(part.content))]
        if name.endswith("8") and ".data/" not in part.name and chance.random() < 0.3:
            continue  # the file is missing in RECORD, as in many wheels of PyTorch
        if name.endswith("7"):  # unusual rows
            row = [
                chance.choice(["", "/", "" if ".data/" in row[0] else "./"]) + row[0],
                chance.choice([row[1], ""]),
                chance.choice([row[2], ""]),
            ]
        for _ in range(chance.choice([1] * 20 + [2])):
            rows.writerow(row)
    if not name.endswith("9"):
        rows.writerow([f"{name}-1.0.dist-info/RECORD", "", ""])
    return Part(name=f"{name}-1.0.dist-info/RECORD", content=text.getvalue().encode())


def _wrap(chance: random.Random, part: Part) -> None:
    """Choose how the archive stores the file."""
    if part.name.endswith("/"):
        return
    part.method = chance.choice([8, 8, 8, 0])
    part.descriptor = chance.choice(["", "", "", "L", "sL", "sQ"])
    part.is_wide = chance.random() < 0.1
    if not part.name.isascii():
        part.system = 3  # for other systems unzip reads such names as those of DOS, whatever their flags say
    part.extra = chance.choice([b"", b"", b"UT\5\0\1\0\0\0\0"])
    if part.method == 8:
        strategy = chance.choice([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE])
        packer = zlib.compressobj(chance.choice([0, 1, 6, 9]), zlib.DEFLATED, -chance.choice([9, 12, 15]), 8, strategy)
        half = len(part.content) // 2
        part.packed = packer.compress(part.content[:half]) + packer.flush(chance.choice([zlib.Z_NO_FLUSH, zlib.Z_FULL_FLUSH]))
        part.packed += packer.compress(part.content[half:]) + packer.flush()


def installed(file: Path, prefix: str, python: str, unpacked: Path | None = None) -> dict[str, tuple[int, bytes | None]]:
    """The files that uv installs from a wheel, as the standard library reads the archive.

    With ``unpacked``, contents are those that another program has unpacked into this folder. RECORD is that of the wheel.
    Scripts of entry points, and parent folders, are left out.
    """
    site = f"{prefix}/lib/python{python}/site-packages"
    folders = {"data": prefix, "purelib": site, "platlib": site, "scripts": f"{prefix}/bin"}
    found: dict[str, tuple[int, bytes | None]] = {}
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        (info,) = {name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")}
        name = info.removesuffix("-1.0.dist-info")
        folders["headers"] = f"{prefix}/include/site/python{python}/{name}"
        text = archive.read(f"{info}/entry_points.txt").decode() if f"{info}/entry_points.txt" in names else ""
        programs = {line.partition("=")[0].strip() for line in text.partition("[plugins]")[0].splitlines() if "=" in line}
        for member in archive.infolist():
            first, _, rest = member.filename.partition("/")
            kind, _, path = rest.partition("/") if first == f"{name}-1.0.data" else ("purelib", "", member.filename)
            content = (unpacked / member.filename).read_bytes() if unpacked and not member.is_dir() else archive.read(member)
            is_program = bool(member.external_attr >> 16 & 0o111)
            if kind == "scripts":
                if path.removesuffix(".exe").removesuffix("-script.py").removesuffix(".pya") in programs:
                    continue
                is_program = True
                if content.startswith(b"#!python"):
                    rest = content.splitlines(keepends=True)[1:]  # bytes split at \n and \r only
                    content = f"#!{prefix}/bin/python\n".encode() + b"".join(rest)
            target = f"{folders[kind]}/{path}".removeprefix("/").rstrip("/")
            found[target] = (0o755, None) if member.is_dir() else (0o755 if is_program else 0o644, content)
    return found
