"""Read ``envbuild.yaml`` strictly, and report all problems at once, each with its line."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, yaml_reader
from envbuild.custom.copying import copied_file, inside
from envbuild.custom.paths import FILE
from envbuild.custom.requirements import NoRequirementError, read_file, read_requirement
from envbuild.errors import InvalidInputError, Problem
from envbuild.model.custom import Custom, Service

SCHEMA = 1
NAME = r"[a-z0-9]+([._-][a-z0-9]+)*"
# Keys of envbuild.yaml that constrain the request → the fields of Constraints that have the same meaning.
INSISTS = {"python": "python", "python_from": "python_from", "os": "system", "base": "base", "driver": "driver"}
_APT = r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?"
_PROJECT = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_USER = r"[a-z_][a-z0-9_-]{0,31}"


@dataclass(frozen=True, kw_only=True, slots=True)
class UserRecipe:
    """A user's recipe. ``request`` lists the frameworks as on a command line.

    ``insists`` maps fields of Constraints to the values that the recipe forces, such as a Python version.
    ``requirements`` is the path of the recipe's requirements file, relative to the recipe's folder; it is empty if there is no
    such file.
    """

    path: Path
    name: str
    request: tuple[str, ...]
    insists: Mapping[str, str]
    custom: Custom
    requirements: str = ""


def load(path: Path, services: Mapping[str, Service]) -> UserRecipe:
    """Return the recipe at ``path``. :class:`InvalidInputError` lists all problems of the recipe and of the files that it
    names."""
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror}.", hint="Name a file that you may read.") from error
    return read(content, path, services)


def read(content: bytes | str, path: Path, services: Mapping[str, Service]) -> UserRecipe:
    """Return the recipe with the text ``content`` at ``path``; raises the same errors as :func:`load`."""
    problems: list[Problem] = []
    table = yaml_reader.load(content, str(path), problems)
    recipe = None if table is None else _recipe(table, path, services, problems)
    yaml_reader.raise_for(problems, str(path))
    assert recipe is not None
    return recipe


def default_name(path: Path) -> str:
    """Return the name of a recipe that has no key `name`: the name of its folder, or of the file if the file is not called
    ``envbuild.yaml``."""
    return path.absolute().parent.name if path.name == FILE else path.stem


def _recipe(table: yaml_reader.Table, path: Path, services: Mapping[str, Service], problems: list[Problem]) -> UserRecipe:
    table.schema(SCHEMA)
    request = table.texts("frameworks", required=True)
    insists = {ours: text for key, ours in INSISTS.items() if (text := table.text(key, ""))}
    if gpus := table.texts("gpu", one=True):
        insists["gpu"] = ",".join(gpus)
    custom = Custom(
        request=(*request, *(f"--{_option(key)}={text}" for key, text in insists.items())),
        pip=_pip(table, path, problems),
        newer=tuple(sorted({_canonical(name) for name in table.texts("newer", pattern=_PROJECT)})),
        apt=table.texts("apt", pattern=_APT),
        apt_build=table.texts("apt_build", pattern=_APT),
        files=tuple(filter(None, (copied_file(each, path.parent) for each in table.tables("files")))),
        user=_user(table),
        ports=table.integers("ports", least=1, most=65535),
        services=_services(table, services),
    )
    listed = table.text("requirements", "")
    recipe = UserRecipe(
        path=path,
        name=_name(table, path),
        request=request,
        insists=insists,
        custom=custom,
        requirements=posixpath.normpath(listed) if listed else "",
    )
    table.finish()
    return recipe


def _option(key: str) -> str:
    return {"system": "os"}.get(key, key.replace("_", "-"))


def _name(table: yaml_reader.Table, path: Path) -> str:
    if "name" in table:
        return table.text("name", pattern=NAME)
    table.allow("name")
    name = default_name(path)
    if not re.fullmatch(NAME, name):
        table.problem(f"name is missing, and the folder name {name!r} cannot name an image: add a name, such as my-lab")
    return name


def _user(table: yaml_reader.Table) -> str:
    user = table.text("user", "", pattern=_USER)
    if user == "root":
        table.problem("images run as an unprivileged user; to run one as root, use `docker run --user 0`", "user")
    return user


def _pip(table: yaml_reader.Table, path: Path, problems: list[Problem]) -> tuple[str, ...]:
    found = []
    for text in table.texts("pip"):
        try:
            found.append(read_requirement(text))
        except NoRequirementError as error:
            table.problem(str(error), "pip")
    if listed := table.text("requirements", ""):
        file = inside(table, "requirements", listed, path.parent)
        if file is not None and not file.is_file():
            table.problem(f"{listed} is not a file", "requirements")
        elif file is not None:
            found += read_file(file, str(path.parent / listed), problems)
    return tuple(dict.fromkeys(found))


def _services(table: yaml_reader.Table, known: Mapping[str, Service]) -> tuple[Service, ...]:
    found = []
    for name in table.texts("services"):
        if name in known:
            found.append(known[name])
            continue
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        table.problem(f"{name!r} is not a service; {meant}", "services")
    return tuple(found)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
