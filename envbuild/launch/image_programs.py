"""Check whether an image has the programs that a launcher starts inside the image. If not, name the packages that provide them.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from envbuild import files, yaml_reader
from envbuild.errors import InvalidInputError, Problem, UsageError
from envbuild.launch.launchers import Kind, Launcher
from envbuild.workspace import Workspace

_FILE = "programs.yaml"
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One program, and the packages that provide it. One of these packages is enough.

    ``packages`` are requirements for Python packages, such as ``name>=1.10``; ``apt`` are Debian packages. ``brought_with`` are
    Debian packages that depend on a package in ``apt``: apt installs that package together with them.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    apt: tuple[str, ...]
    brought_with: tuple[str, ...]

    def is_in(self, contents: Contents) -> bool:
        """Whether ``contents`` has a package that provides the program."""
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        if contents.apt & {*self.apt, *self.brought_with}:
            return True
        wanted = map(Requirement, self.packages)
        return any(
            each.specifier.contains(version, prereleases=True)
            for each in wanted
            for version in contents.packages.get(canonicalize_name(each.name), ())
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The contents of an image. ``packages`` maps the canonical name of each Python package to its versions. ``apt`` has the
    names of Debian packages.

    The contents come from the lock. Without a lock, ``is_locked`` is false, and only the packages that frameworks and recipes
    name are known.
    """

    packages: Mapping[str, Collection[str]]
    apt: frozenset[str]
    is_locked: bool = True


def load_programs(workspace: Workspace) -> dict[str, Program]:
    """Read images/launchers/programs.yaml. Return a map from the name of each program to the program.

    Raises :class:`InvalidInputError` with all problems of the file.
    """
    problems: list[Problem] = []
    path = workspace.launchers / _FILE
    found: dict[str, Program] = {}
    table = (
        yaml_reader.load(files.read_bytes(path), str(path.relative_to(workspace.root)), problems) if path.is_file() else None
    )
    if table is not None:
        table.schema(_SCHEMA)
        for each in table.tables("programs", required=True):
            program = _program(each)
            found[program.name] = program
        table.finish()
    yaml_reader.raise_for(problems, "The launchers", is_plural=True)
    return found


def require_programs(
    launchers: Mapping[str, Launcher],
    programs: Mapping[str, Program],
    chosen: tuple[Launcher, Kind],
    contents: Contents,
    *,
    name: str,
    vouched: Collection[str] = (),
) -> None:
    """Refuse a kind of start that needs a program which the image lacks.

    ``name`` is the environment's name; ``vouched`` are programs that the user states to be in the image. Raises
    :class:`UsageError` (``program-not-in-image``). The error names the package to add, and the launchers that work without the
    program.
    """
    launcher, kind = chosen
    for word in vouched:
        if word not in programs:
            raise UsageError(f"--has: no launcher needs {word!r}.", hint=f"Possible programs: {', '.join(programs)}.")
    lacking = _lacking(kind, programs, contents, vouched)
    if not lacking:
        return
    what = ", ".join(f"{each.name} ({each.title})" for each in lacking)
    it = "it" if len(lacking) == 1 else "them"
    serving = "; ".join(
        f"--via {other.name} ({', '.join(kinds)})"
        for other in launchers.values()
        if (kinds := [each.name for each in other.kinds if not _lacking(each, programs, contents, vouched)])
    )
    apt = ", ".join(each.apt[0] for each in lacking if each.apt)
    ways = [f"To add {it}, write `apt: [{apt}]` in an envbuild.yaml of your own (`envbuild init` writes one)."] if apt else []
    ways += [f"{each.name} is part of {' or '.join(each.packages)}." for each in lacking if not each.apt]
    unlocked = "" if contents.is_locked else f"{name} is not locked yet: the answer may change after `envbuild lock {name}`. "
    raise UsageError(
        f"{launcher.name} ({kind.name}) needs {what} in the image, and the image of {name} does not contain it.",
        code="program-not-in-image",
        hint=f"{unlocked}These launchers need no such program: {serving}. {' '.join(ways)} "
        f"If the image has it anyway, add {' '.join(f'--has {each.name}' for each in lacking)}.",
    )


def _lacking(kind: Kind, programs: Mapping[str, Program], contents: Contents, vouched: Collection[str]) -> list[Program]:
    for word in kind.needs:
        if word not in programs:
            raise InvalidInputError(f"images/launchers/{_FILE} does not list {word}.", code="unknown-program")
    return [programs[word] for word in kind.needs if word not in vouched and not programs[word].is_in(contents)]


def _program(table: yaml_reader.Table) -> Program:
    program = Program(
        name=table.text("program", pattern=r"[a-z][a-z0-9_-]*"),
        title=table.text("title"),
        packages=table.texts("packages"),
        apt=table.texts("apt"),
        brought_with=table.texts("with"),
    )
    table.text("source")
    table.finish()
    return program
