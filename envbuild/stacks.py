"""Reads the files of stacks. Each file names several frameworks for one image. Invalid files are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, yaml_reader
from envbuild.errors import InvalidInputError, Problem
from envbuild.workspace import Workspace

SCHEMA = 1

_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
_CLAUSE = r"(==|~=|!=|>=|<=|>|<)[0-9][A-Za-z0-9.]*"
_REQUEST = rf"[a-z][a-z0-9_-]*({_CLAUSE}(,{_CLAUSE})*)?"
_SHORT = r"\d+\.\d+"
_LONG = r"\d+(\.\d+)*"
_SOURCE = r"(https?://|pkg:)\S+"


@dataclass(frozen=True, kw_only=True, slots=True)
class Apart:
    """A framework that cannot share a prefix with a member of a stack, although the matrix has no reason against it.

    The file of the stack states the reason.
    """

    framework: str
    because: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StackMember:
    """One framework of a stack. ``request`` names the framework. ``pythons`` are the versions of Python that the framework can
    use, best first.

    ``source`` is the document that states these versions. ``source`` is empty if the member uses the versions of the whole
    stack.
    """

    request: str
    pythons: tuple[str, ...]
    source: str
    apart: tuple[Apart, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A named set of frameworks in one image, in the order in which they are put into prefixes.

    ``cuda`` (X.Y) is empty for a stack that runs only on CPUs. ``cudnn``, ``nccl``, ``driver`` and ``source`` are empty if the
    file does not set them. The stack must run on ``driver`` and ``gpus``.
    """

    name: str
    title: str
    note: str
    source: str
    system: str
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    nccl: str
    driver: str
    gpus: tuple[str, ...]
    members: tuple[StackMember, ...]


def load(workspace: Workspace) -> dict[str, Stack]:
    """Return every stack of the workspace, by name. Raises :class:`InvalidInputError` with the problems of all stacks."""
    problems: list[Problem] = []
    found = [_read(path, workspace.root, problems) for path in sorted(workspace.stacks.glob("*.yaml"))]
    yaml_reader.raise_for(problems, "The stacks", is_plural=True)
    return {stack.name: stack for stack in found if stack is not None}


def read(workspace: Workspace, name: str) -> Stack | None:
    """Return the stack of that name, or None if there is no such stack. Raises :class:`InvalidInputError` if its file has
    problems."""
    path = workspace.stack_file(name)
    if not path.is_file():
        return None
    problems: list[Problem] = []
    stack = _read(path, workspace.root, problems)
    yaml_reader.raise_for(problems, f"The stack {name}")
    return stack


def _read(path: Path, root: Path, problems: list[Problem]) -> Stack | None:
    where = str(path.relative_to(root))
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise InvalidInputError(f"Cannot read the stack {path}: {error.strerror}.", hint="Restore the file.") from error
    table = yaml_reader.load(content, where, problems)
    return None if table is None else _stack(table, path.stem)


def _stack(table: yaml_reader.Table, stem: str) -> Stack:
    table.schema(SCHEMA)
    name = table.own_name("stack", pattern=_NAME, of=stem, place="file")
    pythons = table.texts("python", required=True, pattern=_SHORT)
    stack = Stack(
        name=name,
        title=table.text("title"),
        note=table.text("note", ""),
        source=table.text("source", "", pattern=_SOURCE),
        system=table.text("system"),
        pythons=pythons,
        cuda=table.text("cuda", "", pattern=_SHORT),
        cudnn=table.text("cudnn", "", pattern=_LONG),
        nccl=table.text("nccl", "", pattern=_LONG),
        driver=table.text("driver", "", pattern=_LONG),
        gpus=table.texts("gpus"),
        members=table.mixed(
            "frameworks",
            lambda text: StackMember(request=_request(table, text), pythons=pythons, source="", apart=()),
            lambda member: _member(member, pythons),
        ),
    )
    if not stack.members:
        table.problem("the list is empty; it needs at least one entry", "frameworks")
    if not stack.cuda:
        for key in ("cudnn", "nccl", "driver", "gpus"):
            if key in table:
                table.problem("a stack without `cuda` is only for CPUs, so it cannot have this key", key)
    table.finish()
    return stack


def _request(table: yaml_reader.Table, text: str) -> str:
    if not re.fullmatch(_REQUEST, text):
        table.problem(f"{text!r} is not a framework with conditions on its version, such as name==1.12.0", "frameworks")
    return text


def _member(table: yaml_reader.Table, pythons: tuple[str, ...]) -> StackMember:
    own = table.texts("python", pattern=_SHORT)
    member = StackMember(
        request=table.text("request", pattern=_REQUEST),
        pythons=own or pythons,
        source=table.text("source", None if own else "", pattern=_SOURCE),
        apart=tuple(_apart(each) for each in table.tables("apart")),
    )
    table.finish()
    return member


def _apart(table: yaml_reader.Table) -> Apart:
    apart = Apart(framework=table.text("from"), because=table.text("because"), source=table.text("source", pattern=_SOURCE))
    table.finish()
    return apart
