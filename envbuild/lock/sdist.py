"""Read the metadata that a source archive declares. Its code is not run, so the result is the same everywhere."""

from __future__ import annotations

import ast
import configparser
import email.message
import email.parser
import lzma
import re
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from envbuild.lock import archives

# The requirements for a build with setuptools, which apply if an archive declares none (PEP 517).
_DEFAULT_BUILD = ("setuptools", "wheel")
_SEARCHED = 2**18  # characters of a setup.py that are searched for setup_requires
_WANTED = ("PKG-INFO", "pyproject.toml", "setup.cfg", "setup.py")
_INNER = ("requires.txt", "SOURCES.txt")  # names of files that setuptools writes into the folder *.egg-info


class UnreadableSdistError(Exception):
    """The archive is damaged, or its dependencies can be found only by running its code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sdist:
    """The metadata that the archive declares. Requirements are texts as in PEP 508."""

    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str
    build_requires: tuple[str, ...]


def read(path: Path) -> Sdist:
    """Return what the archive at ``path`` declares. Raises :class:`UnreadableSdistError` if this cannot be read."""
    try:
        return _read(archives.texts(path, _declaring))
    except UnreadableSdistError:
        raise
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, archives.TooLargeError) as error:
        raise UnreadableSdistError(f"it cannot be unpacked ({error})") from error
    except OSError as error:
        if error.filename is not None:
            raise  # an error of the disk; an error about the content of the archive has no file name
        raise UnreadableSdistError(f"it cannot be unpacked ({error})") from error
    except Exception as error:  # the file is untrusted: parsers may raise any error
        raise UnreadableSdistError(f"it is malformed ({_said(error)})") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")


def _read(files: dict[str, str]) -> Sdist:
    if "PKG-INFO" not in files:
        raise UnreadableSdistError("it has no PKG-INFO")
    message = email.parser.Parser().parsestr(files["PKG-INFO"], headersonly=True)
    try:
        project = tomllib.loads(files.get("pyproject.toml", ""))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableSdistError(f"its pyproject.toml cannot be read ({error})") from error
    return Sdist(
        name=message.get("Name", ""),
        version=message.get("Version", ""),
        requires=_requires(message, files, project),
        requires_python=message.get("Requires-Python") or "",
        build_requires=_build_requires(files, project),
    )


def _declaring(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda n: (n.count("/"), n)):
        place = PurePosixPath(name)
        inner = place.name in _INNER and place.parent.name.endswith(".egg-info") and len(place.parts) <= 4
        if place.name not in found and (inner or (place.name in _WANTED and len(place.parts) == 2)):
            found[place.name] = name
    return found


def _texts(value: object, what: str) -> tuple[str, ...]:
    """Return ``value`` as a tuple of texts, after a check of its type. Without this check, a single text would be taken for the
    list of its letters."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple | set) or not all(isinstance(each, str) for each in value):
        raise UnreadableSdistError(f"its {what} is not a list of texts")
    return tuple(sorted(value) if isinstance(value, set) else value)


def _requires(message: email.message.Message, files: dict[str, str], project: dict[str, object]) -> tuple[str, ...]:
    dynamic = {value.lower() for value in message.get_all("Dynamic") or ()}
    version = tuple(int(part) for part in re.findall(r"\d+", message.get("Metadata-Version", "1.0"))[:2])
    if version >= (2, 2) and "requires-dist" not in dynamic:
        return tuple(message.get_all("Requires-Dist") or ())
    if "requires.txt" in files:
        return tuple(_egg_requires(files["requires.txt"]))
    table = project.get("project")
    if isinstance(table, dict) and "dependencies" not in _texts(table.get("dynamic"), "list of dynamic fields"):
        return _texts(table.get("dependencies"), "list of dependencies")
    if message.get_all("Requires-Dist"):
        return tuple(message.get_all("Requires-Dist") or ())
    declared = _setup_cfg(files).get("options", "install_requires", fallback="")
    if declared:
        return tuple(line.strip() for line in declared.splitlines() if line.strip())
    if "SOURCES.txt" in files:  # setuptools wrote *.egg-info without requires.txt, so there are no requirements
        return ()
    return tuple(_setup_py_requires(files.get("setup.py", "")))


def _setup_py_requires(text: str) -> list[str]:
    """Return the requirements that are literal arguments of the ``setup`` call.

    The list is empty if the call has no such argument, for example with distutils.
    """
    if "install_requires" not in text and "extras_require" not in text:
        return []
    unknown = UnreadableSdistError("its requirements are known only by running its setup.py, which envbuild does not do")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unknown from None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func).split(".")[-1] == "setup"]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        raise unknown
    said = {keyword.arg: keyword.value for keyword in calls[0].keywords if keyword.arg is not None}
    try:
        always = ast.literal_eval(said["install_requires"]) if "install_requires" in said else []
        sections = ast.literal_eval(said["extras_require"]) if "extras_require" in said else {}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise unknown from None
    lines = always.splitlines() if isinstance(always, str) else list(_texts(always, "install_requires"))
    if sections is not None and not isinstance(sections, dict):
        raise UnreadableSdistError("its extras_require is not a table")
    for section, wanted in (sections or {}).items():
        lines += [f"[{section}]", *([wanted] if isinstance(wanted, str) else _texts(wanted, "extras_require"))]
    return list(_egg_requires("\n".join(lines)))


def _egg_requires(text: str) -> Iterator[str]:
    """Yield the requirements in a requires.txt of setuptools, with its sections ``[extra]``, ``[:marker]`` and
    ``[extra:marker]``."""
    extra = marker = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            continue
        requirement, _, own = line.partition(";")
        conditions = [f"({part.strip()})" for part in (own, marker) if part.strip()]
        conditions += [f'extra == "{extra}"'] if extra else []
        yield f"{requirement.strip()} ; {' and '.join(conditions)}" if conditions else requirement.strip()


def _build_requires(files: dict[str, str], project: dict[str, object]) -> tuple[str, ...]:
    table = project.get("build-system")
    wanted = list(_texts(table.get("requires"), "list of build requirements")) if isinstance(table, dict) else []
    wanted += _DEFAULT_BUILD
    # The searched text is limited, because a search in a file with ten thousand unclosed lists would take hours.
    listed = re.search(r"setup_requires\s{0,20}=\s{0,20}\[([^\]]{0,2000})\]", files.get("setup.py", "")[:_SEARCHED])
    if listed:
        wanted += re.findall(r"""["']([A-Za-z0-9][^"']*)["']""", listed.group(1))
    configured = _setup_cfg(files).get("options", "setup_requires", fallback="")
    wanted += [line.strip() for line in configured.splitlines() if line.strip()]
    return tuple(dict.fromkeys(wanted))


def _setup_cfg(files: dict[str, str]) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(files.get("setup.cfg", ""))
    except configparser.Error:
        return configparser.ConfigParser()
    return parser
