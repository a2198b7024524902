"""``ci``: writes the pipeline of a CI system that plans, builds, tests and publishes the images of a checkout."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from envbuild.errors import UsageError
from envbuild.jinja_settings import jinja_environment
from envbuild.workspace import Workspace

_BRANCH = re.compile(r"(?!.*(\.\.|//|/$|\.lock$))[A-Za-z0-9_][A-Za-z0-9._/+-]*")
# The path at which each CI system looks for its pipeline file.
PATHS = {"github": ".github/workflows/images.yml", "gitlab": ".gitlab-ci.yml"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """The values for the template of a pipeline file. ``repository`` is ``HOST/REPOSITORY``.

    ``shards`` is the number of jobs that share the work. ``disk`` is the free disk space of the machine of each job. A push to
    ``branch`` publishes the images. ``install`` is the shell command that installs envbuild. ``keys`` are the public keys, as
    PEM, with which the catalogue checks the signatures of the images; without keys, it checks none.
    """

    repository: str
    branch: str
    shards: int
    disk: str
    install: str
    keys: tuple[str, ...] = ()


def text(workspace: Workspace, system: str, pipeline: Pipeline) -> str:
    """Return the text of the pipeline file for ``system``, which is a key of :data:`PATHS`.

    Raises :class:`UsageError` for values that YAML would misread.
    """
    for value in (pipeline.repository, pipeline.branch):
        if set(value) & set("\"'\\{}#$` ") or not value.isprintable():
            raise UsageError(f"{value!r} cannot be written into a pipeline.", hint="Leave out quotes, braces, spaces, # and $.")
    if not _BRANCH.fullmatch(pipeline.branch):  # in GitLab, an empty name would match merge requests
        raise UsageError(f"{pipeline.branch!r} is not the name of a branch.", hint="Name the branch whose pushes publish.")
    if set(pipeline.install) & set("\"'\\{}#") or not pipeline.install.isprintable() or not _is_plain(pipeline.install):
        raise UsageError(
            f"{pipeline.install!r} cannot be written into a pipeline.",
            hint="Leave out quotes, braces, # and line breaks, or write a script and name the script.",
        )
    # The usual delimiters of Jinja would conflict with GitHub's expressions, ${{ … }}, and with ${#array[@]} of bash.
    environment = jinja_environment(
        workspace.pipelines,
        autoescape=False,  # the text is YAML, not HTML, and the values were checked above
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[##",
        comment_end_string="##]",
    )
    return environment.get_template(f"{system}.yml.j2").render(
        repository=pipeline.repository,
        branch=pipeline.branch,
        shards=pipeline.shards,
        disk=pipeline.disk,
        install=pipeline.install,
        keys=[key.splitlines() for key in pipeline.keys],
        is_github=pipeline.repository.partition("/")[0] == "ghcr.io",  # only this registry gets GitHub's token
    )


def _is_plain(text: str) -> bool:
    """Whether ``text`` can be a list item and a value in YAML without quotes: YAML must read back the same text."""
    try:
        return bool(yaml.safe_load(f"- {text}") == [text] and yaml.safe_load(f"- run: {text}") == [{"run": text}])
    except yaml.YAMLError:
        return False


def install_command(workspace: Workspace) -> str:
    """Return the command with which a job installs envbuild.

    If the checkout contains envbuild, the job installs envbuild from the checkout. Otherwise the job installs the version of
    envbuild that writes the pipeline.
    """
    import envbuild

    if (workspace.root / "pyproject.toml").is_file() and (workspace.root / "envbuild").is_dir():
        return "python -m pip install -q -e .[sign]"
    return f"python -m pip install -q envbuild[sign]=={envbuild.__version__}"
