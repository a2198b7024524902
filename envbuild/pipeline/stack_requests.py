"""Handles requests that name a stack. Such a request is one word, and ``images/stacks`` has a file of that name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envbuild.errors import Alternative, Problem, UnknownNameError, UsageError
from envbuild.workspace import can_be_name

if TYPE_CHECKING:
    from envbuild.model.environment import Environment
    from envbuild.pipeline.constraints import Constraints
    from envbuild.pipeline.tools import Tools
    from envbuild.stacks import Stack


def stack_of(tools: Tools, texts: Sequence[str]) -> Stack | None:
    """Return the stack that ``texts`` name, or None if they are another request. Only the file of the stack is looked for."""
    name = texts[0].lower() if len(texts) == 1 else ""
    if not can_be_name(name) or not tools.workspace.stack_file(name).is_file():
        return None
    from envbuild import stacks

    return stacks.read(tools.workspace, name)


def hardware(stack: Stack, constraints: Constraints) -> dict[str, str | None]:
    """Return the constraints about driver and GPU.

    Raises :class:`UsageError` for constraints that only the file of the stack can set.
    """
    said = {
        "--python": constraints.python,
        "--python-from": constraints.python_from,
        "--os": constraints.system,
        "--base": constraints.base,
    }
    fixed = [option for option, value in said.items() if value is not None]
    if fixed:
        raise UsageError(
            f"{' and '.join(fixed)} cannot be combined with the stack {stack.name}, because the file of the stack sets it.",
            code="stack-fixed",
            hint="Copy the file to another name in images/stacks, and change the copy.",
        )
    return {"driver": constraints.driver, "gpu": constraints.gpu}


def departures(tools: Tools, environment: Environment) -> list[Problem]:
    """Return the differences between the lock of a stack and the current file of the stack."""
    stack = stack_of(tools, [environment.name])
    if stack is None:
        return []
    from envbuild.resolve.stacks import departures

    where = str(tools.workspace.stack_file(stack.name))
    found = departures(tools.matrix, stack, environment)
    return [Problem(where=where, line=0, message=f"the stack {each}") for each in found]


def suggested(tools: Tools, texts: Sequence[str], error: UnknownNameError) -> UnknownNameError:
    """Return ``error``. If there is a stack with a similar name, the error names this stack as an alternative."""
    from difflib import get_close_matches

    known = sorted(path.stem for path in tools.workspace.stacks.glob("*.yaml"))
    near = get_close_matches(texts[0].lower(), known, n=1) if len(texts) == 1 else []
    if not near:
        return error
    return UnknownNameError(
        error.message,
        code=error.code,
        hint=f"Did you mean the stack {near[0]}? {error.hint}",
        alternatives=[Alternative(name=near[0], changes="the stack of that name"), *error.alternatives],
        details=error.details,
    )
