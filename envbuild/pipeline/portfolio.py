"""The environments that are kept committed, as a list that people write: each with the reason why it was chosen."""

from __future__ import annotations

from envbuild import files, strictyaml
from envbuild.errors import InvalidInputError, Problem
from envbuild.workspace import Workspace, can_be_name

SCHEMA = 1
FILE = "environments.yaml"


def listed(workspace: Workspace) -> dict[str, str]:
    """The canonical names, in the order of the file, each with its reason; none where a workspace keeps no such list.

    :class:`InvalidInputError` lists all problems of the file.
    """
    path = workspace.images / FILE
    where = str(path.relative_to(workspace.root))
    problems: list[Problem] = []
    try:
        table = strictyaml.load(files.read_bytes(path), where, problems)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInputError(f"Cannot read {where}: {error.strerror}.", hint="Restore the file.") from error
    found: dict[str, str] = {}
    if table is not None:
        table.schema(SCHEMA)
        found = table.text_map("environments")
        for name in found:
            if not can_be_name(name):
                table.problem(f"{name!r} is not the name of an environment", "environments")
        table.finish()
    strictyaml.raise_for(problems, "The list of environments")
    return found
