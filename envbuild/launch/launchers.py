"""Read launchers. Each launcher is a folder, with a template for every kind of start. To add a launcher, no Python code is
needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, yaml_reader
from envbuild.errors import Problem, UnknownNameError
from envbuild.launch.settings import OPTIONS
from envbuild.workspace import Workspace

SCHEMA = 1
_NAME = r"[a-z][a-z0-9-]*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One way in which a launcher starts the smoke test.

    ``run`` is the command that envbuild runs; it reads the rendered text from its standard input. ``by_hand`` is the command
    that a user can run instead; its last word is the name of a file with the rendered text. ``rehearse`` is a command that
    reads the rendered text, starts nothing, and checks whether the batch system would accept the text.

    ``programs`` are the programs that this machine needs. ``needs`` are the programs that the image must have. ``on_hosts`` are
    the programs that every host must have. ``named`` is true if the hosts must have names. ``equal`` is true if all hosts must
    have the same number of devices. ``report`` is true if the report can be written into a folder on rank 0's host. ``pulls``
    is true if the hosts pull the image by its name. ``options`` are the names of the batch-system settings that the template
    uses.
    """

    name: str
    title: str
    run: tuple[str, ...]
    programs: tuple[str, ...]
    named: bool
    equal: bool
    report: bool
    template: str
    by_hand: str = ""
    pulls: bool = False
    needs: tuple[str, ...] = ()
    on_hosts: tuple[str, ...] = ()
    rehearse: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A launcher and its kinds of start, the default first."""

    name: str
    title: str
    kinds: tuple[Kind, ...]


def load_launchers(workspace: Workspace) -> dict[str, Launcher]:
    """Read all launchers. Return a map from the name of each launcher to the launcher.

    Raises :class:`InvalidInputError` with the problems of all launchers.
    """
    problems: list[Problem] = []
    found: dict[str, Launcher] = {}
    for path in sorted(workspace.launchers.glob("*/launcher.yaml")):
        table = yaml_reader.load(files.read_bytes(path), str(path.relative_to(workspace.root)), problems)
        if table is not None:
            launcher = _launcher(table, path.parent)
            found[launcher.name] = launcher
    yaml_reader.raise_for(problems, "The launchers", is_plural=True)
    return found


def choose(launchers: Mapping[str, Launcher], name: str, kind: str) -> tuple[Launcher, Kind]:
    """Return the launcher ``name`` and its kind ``kind``. An empty ``kind`` selects the default kind.

    Raises :class:`UnknownNameError`, which lists the existing names.
    """
    if name not in launchers:
        raise UnknownNameError(
            f"There is no launcher {name!r}.", code="unknown-launcher", hint=f"The launchers are: {', '.join(launchers)}."
        )
    launcher = launchers[name]
    for each in launcher.kinds:
        if kind in ("", each.name):
            return launcher, each
    raise UnknownNameError(
        f"The launcher {name} has no kind {kind!r}.",
        code="unknown-kind",
        hint="Its kinds are: " + "; ".join(f"{each.name} ({each.title})" for each in launcher.kinds) + ".",
    )


def _launcher(table: yaml_reader.Table, folder: Path) -> Launcher:
    table.schema(SCHEMA)
    launcher = Launcher(
        name=table.own_name("launcher", pattern=_NAME, of=folder.name, place="folder"),
        title=table.text("title"),
        kinds=tuple(_kind(each, folder) for each in table.tables("kinds", required=True)),
    )
    table.finish()
    return launcher


def _options(table: yaml_reader.Table) -> tuple[str, ...]:
    names = table.texts("options")
    for name in names:
        if name not in OPTIONS:
            table.problem(f"{name!r} is not an option of `launch`; there are {', '.join(OPTIONS)}", "options")
    return names


def _kind(table: yaml_reader.Table, folder: Path) -> Kind:
    name = table.text("kind", pattern=_NAME)
    file = folder / f"{name}.j2"
    if name and not file.is_file():
        table.problem(f"{file.name}, its template, is missing", "kind")
    kind = Kind(
        name=name,
        title=table.text("title"),
        run=table.texts("run", required=True),
        by_hand=table.text("by_hand", ""),
        programs=table.texts("programs"),
        named=table.boolean("named"),
        equal=table.boolean("equal"),
        report=table.boolean("report"),
        template=f"{folder.name}/{name}.j2",
        pulls=table.boolean("pulls"),
        needs=table.texts("needs"),
        on_hosts=table.texts("on_hosts"),
        rehearse=table.texts("rehearse"),
        options=_options(table),
    )
    table.finish()
    return kind
