"""``export``: makes files with which other programs start the image of an environment."""

from __future__ import annotations

from dataclasses import dataclass

from envbuild.pipeline import running
from envbuild.pipeline.plan import Buildable
from envbuild.pipeline.running import Found, RunOptions
from envbuild.pipeline.tools import Tools
from envbuild.run_commands import files
from envbuild.run_commands.model import Port


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The result: the text of the file, its usual path, and the image that the file names."""

    text: str
    path: str
    found: Found


def export(tools: Tools, each: Buildable, options: RunOptions, form: str) -> Written:
    """Return the file in the format ``form``, which is ``compose`` or ``devcontainer``. Raises :class:`PublishError`."""
    environment = each.lock.environment
    found = running.published(tools, each, options) or running.local(tools, each, options)
    custom = environment.custom
    services = custom.services if custom else ()
    ports = dict.fromkeys((*custom.ports, *(port for service in services for port in service.ports))) if custom else {}
    what = files.Exported(
        name=tools.cli_name(each.name),
        image=found.reference,
        title=each.name,
        gpu=environment.cuda is not None,
        shm_size=options.shm_size,
        ports=tuple(Port(host=port, container=port) for port in ports),
        services=tuple(service.name for service in services),
        python=f"{each.lock.prefixes[0].path}/bin/python" if each.lock.prefixes else "",
        user=custom.user if custom else "",
    )
    if form == "compose":
        return Written(text=files.compose(what), path=files.COMPOSE, found=found)
    return Written(text=files.devcontainer(what), path=files.DEVCONTAINER, found=found)
