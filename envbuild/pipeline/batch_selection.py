"""Selects the environments of a batch: named ones, all, those that match a pattern, or those changed since a git revision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from envbuild.errors import EnvbuildError, UnknownNameError, UsageError
from envbuild.pipeline import changed_since, committed, resolving
from envbuild.pipeline.batch import Job
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unchanged_renderings import RenderingWatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The environments that the command line asks for. ``pattern`` and ``revision`` are empty if they were not given.

    ``texts`` are requests, and ``every`` is true for the option `--all`. ``has_changed_since`` says whether the command has
    an option `--changed-since`.
    """

    texts: tuple[str, ...] = ()
    every: bool = False
    pattern: str = ""
    revision: str = ""
    has_changed_since: bool = False


# Returns the name of the environment that a request means. The tools are those for this request.
Resolve = Callable[[Tools, str, Constraints], str]


def name_to_build(tools: Tools, text: str, constraints: Constraints) -> str:
    """Return the name of the environment that a build of the request ``text`` makes."""
    return tools.cli_name(resolving.resolve_buildable(tools, [text], constraints).environment.name)


def select(tools: Tools, selection: Selection, constraints: Constraints, resolve: Resolve = name_to_build) -> list[Job]:
    """Return a job for each selected environment. With a bundle, "all" means all environments of the bundle.

    ``resolve`` returns the name of the environment that a request means.

    Raises :class:`UsageError` if the selection has both names and an option such as `--all`, or neither. Raises the error of
    the first name that cannot be resolved. Raises :class:`UnknownNameError` (``nothing-matches``) for a pattern that matches no
    environment.
    """
    chooses = selection.every or bool(selection.pattern) or bool(selection.revision)
    if bool(selection.texts) == chooses:
        ways = "--all, --match or --changed-since" if selection.has_changed_since else "--all or --match"
        raise UsageError(f"Name environments, or use {ways}.", hint="`envbuild list` shows the names.")
    if selection.texts:
        return _named(tools, selection.texts, constraints, resolve)
    if selection.revision and tools.offline is not None:
        raise UsageError(
            "--changed-since compares the locks of a checkout, but --offline uses the locks of the bundle.",
            hint="Name environments of the bundle, or use --all or --match.",
        )
    known = committed.names(tools) if tools.offline is None else tools.offline.names()
    names = [name for name in known if not selection.pattern or fnmatchcase(name, selection.pattern)]
    if not names and selection.pattern:
        raise UnknownNameError(
            f"No environment matches {selection.pattern!r}.",
            code="nothing-matches",
            hint="Put the pattern in quotes. `envbuild evidence --all` lists the names.",
        )
    if selection.revision:
        names = changed_since.changed(tools, names, selection.revision)
    return [Job(name=name, request=name) for name in names]


def _named(tools: Tools, texts: Sequence[str], constraints: Constraints, resolve: Resolve) -> list[Job]:
    """Resolve all requests in ``texts``, before any work starts. Requests that mean the same environment become one job."""
    watch = RenderingWatch(tools)
    requests: dict[str, list[str]] = {}
    refused: list[EnvbuildError] = []
    for text in dict.fromkeys(texts):
        known = None if constraints.any() else watch.recall(text)
        try:
            name = known.name if known else resolve(tools.at([text]), text, constraints)
            requests.setdefault(name, []).append(text)
        except EnvbuildError as error:
            refused.append(error)
    if refused:
        raise _joined(refused)
    return [Job(name=name, request=first, also=tuple(more)) for name, (first, *more) in requests.items()]


def _joined(refused: Sequence[EnvbuildError]) -> EnvbuildError:
    """Return the first error, with the messages of all other errors as details."""
    first = refused[0]
    first.details = (*first.details, *(error.message for error in refused[1:]))
    return first
