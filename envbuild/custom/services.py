"""Read the services that images can start. Each service is a YAML file, and a script of the same name."""

from __future__ import annotations

from envbuild import files, yaml_reader
from envbuild.errors import Problem
from envbuild.model.custom import Service
from envbuild.workspace import Workspace

SCHEMA = 1
_NAME = r"[a-z][a-z0-9-]*"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*([<>=!~][A-Za-z0-9.*+!<>=~, ]*)?(; python_version [<>=]+ '[0-9.]+')?"
_APT = r"[a-z0-9][a-z0-9+.-]+"


def load_services(workspace: Workspace) -> dict[str, Service]:
    """Return every service by name. :class:`InvalidInputError` lists the problems of all services."""
    problems: list[Problem] = []
    found: dict[str, Service] = {}
    for path in sorted(workspace.services.glob("*.yaml")):
        where = str(path.relative_to(workspace.root))
        table = yaml_reader.load(files.read_bytes(path), where, problems)
        if table is None:
            continue
        if not path.with_suffix(".sh").is_file():
            table.problem(f"{path.stem}.sh, which starts it, is missing")
        service = _service(table, path.stem)
        found[service.name] = service
    yaml_reader.raise_for(problems, "The services", is_plural=True)
    return found


def _service(table: yaml_reader.Table, stem: str) -> Service:
    table.schema(SCHEMA)
    name = table.own_name("service", pattern=_NAME, of=stem, place="file")
    service = Service(
        name=name,
        pip=table.texts("pip", pattern=_REQUIREMENT),
        apt=table.texts("apt", pattern=_APT),
        ports=table.integers("ports", least=1, most=65535),
    )
    table.finish()
    return service
