"""Run one verb for several environments: add the options to the verb, run the verb, and print the summary."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from envbuild import errors
from envbuild.cli import wording
from envbuild.cli.batch_summary import Conclusion, Summary, tell
from envbuild.cli.options import chosen, naming
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session, refusal

if TYPE_CHECKING:
    from envbuild.pipeline.batch import Job, Outcome
    from envbuild.pipeline.batch_selection import Resolve, Selection
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.disk_need import DiskNeed
    from envbuild.pipeline.tools import Tools
    from envbuild.pipeline.unchanged_renderings import RenderingWatch

F = TypeVar("F", bound=Callable[..., Any])
# A function that runs the verb for one job with the given tools, and returns the verb's JSON document and exit code. If these
# tools are not enough for the work, the function raises an error.
Attempt = Callable[["Tools", "Job", "RenderingWatch"], tuple[Mapping[str, Any], int]]

_OWN = ("names", "every", "pattern", "revision", "jobs", "keep_going", "junit", "release")
_DEFAULT_JOBS = 2
_CONDITION = re.compile("[<>=!~]")
# A word such as `package==1.12` is a whole request, not a condition that narrows another request.
_PIN = re.compile("[^<>=!~, ]+==[^<>=!~, ]+")
_ALSO = "--also"
_CHECKED = "--space-checked"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOptions:
    """The values of the options that :func:`options` adds to a verb. The verb's own options are not included."""

    selection: Selection
    jobs: int
    keep_going: bool
    junit: Path | None


def options(function: F) -> F:
    """Add the argument ``NAME…`` and the options for several environments to a verb."""
    for option in (
        click.option(
            "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the results as JUnit XML."
        ),
        click.option(
            "--keep-going", is_flag=True, help="Continue after a failure. Without it, no further environment is started."
        ),
        click.option(
            "--jobs",
            type=click.IntRange(min=1),
            metavar="N",
            help=(
                f"Work on N environments at once (default: {_DEFAULT_JOBS}). Smoke tests on the same devices run one "
                "after the other."
            ),
        ),
        click.option(
            "--changed-since",
            "revision",
            default="",
            metavar="REV",
            help=(
                "All environments for which a lock, a rendering, a recipe or a shared file in images/ changed since "
                "the git revision REV."
            ),
        ),
        click.option(
            "--match",
            "pattern",
            default="",
            metavar="GLOB",
            help="All environments whose canonical name matches the pattern, such as '*-cpu-*'.",
        ),
        click.option("--all", "every", is_flag=True, help="All environments that have a folder in images/environments/."),
        naming("names", several=True, metavar="NAME…"),
    ):
        function = option(function)
    return function


def also(function: F) -> F:
    """Add the hidden options with which a batch tells a child process the other requests for the same environment
    (``--also``), and that it has compared the free space with the need of all builds (``--space-checked``)."""

    def note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            context.find_object(Session).space_is_checked = True  # type: ignore[union-attr]

    checked = click.option(_CHECKED, is_flag=True, hidden=True, expose_value=False, callback=note, help="The disk is checked.")
    more = click.option(_ALSO, multiple=True, hidden=True, help="More requests. The image also gets their tags.")
    return checked(more(function))


def asked(names: tuple[str, ...], values: dict[str, Any], *, always: bool = False) -> BatchOptions | None:
    """Remove the options for several environments from ``values`` and return them.

    Return None if the command is not a batch: it has exactly one NAME and none of these options. With ``always``, a command
    with one NAME is a batch, too.
    """
    every, pattern, revision, jobs, keep_going, junit = (values.pop(name) for name in _OWN[1:7])
    if len(set(names)) == 1 and not (every or pattern or revision or jobs or keep_going or junit or always):
        return None
    conditions = [name for name in names if _CONDITION.search(name) and " " not in name and not _PIN.fullmatch(name)]
    if conditions and len(names) > 1:
        raise errors.UsageError(
            f"{conditions[0]} is a condition, but each argument must name an environment.",
            hint="Write a request of several words as one argument, in quotes.",
        )
    from envbuild.pipeline.batch_selection import Selection

    selection = Selection(texts=names, every=every, pattern=pattern, revision=revision, has_changed_since=True)
    return BatchOptions(selection=selection, jobs=jobs or _DEFAULT_JOBS, keep_going=keep_going, junit=junit)


def run(
    session: Session,
    wanted: BatchOptions,
    constraints: Mapping[str, str | None],
    *,
    attempt: Attempt | None = None,
    builder: Builder | None = None,
    tools_from: Mapping[str, Any] = MappingProxyType({}),
    remembers: bool = True,
    conclude: Callable[[Sequence[Outcome]], Conclusion] | None = None,
    child_options: Sequence[str] = (),
    resolve: Resolve | None = None,
) -> int:
    """Run the verb of this command line for all environments, print the summary and return the worst exit code.

    ``attempt`` runs in this process, and returns an answer for each environment that needs no work. The answers are stored for
    the next run, unless ``remembers`` is false. ``builder`` is None if the verb builds nothing. ``tools_from`` are options for
    :meth:`Session.tools`. ``conclude`` is called with all outcomes before the summary is printed. ``child_options`` are added
    to the command line of each child process. ``resolve`` finds the name that a request means, in place of
    :func:`name_to_build`.
    """
    from envbuild.pipeline import batch, batch_selection

    context = click.get_current_context()
    told, began = Summary(verb=str(context.info_name), revision=wanted.selection.revision), time.monotonic()
    told.is_dry_run = bool(context.params.get("dry_run"))
    with display(session) as shown:
        tools = session.tools(on_progress=shown.news, **tools_from)
        jobs = batch_selection.select(tools, wanted.selection, chosen(constraints), resolve or batch_selection.name_to_build)
        command = command_line(session, context) if remembers else None
        done = attempted(tools, jobs, attempt, command, wanted) if attempt and jobs else []
        done_names = {outcome.job.name for outcome in done}
        rest = [job for job in jobs if job.name not in done_names]
        stops = not wanted.keep_going and any(outcome.state == "failed" for outcome in done)
        if rest and builder and not stops:
            told.disk = _require_space(tools, rest, builder, anew=bool(context.params.get("no_cache")))
    if rest and not stops:
        words = [*command_line(session, context), *child_options, *([_CHECKED] if told.disk is not None else [])]

        def argv(job: Job) -> list[str]:
            return [sys.executable, *words, *(f"{_ALSO}={text}" for text in job.also if builder), "--", job.request]

        done += _run(session, rest, len(done), wanted, argv, told)
    by_name = {outcome.job.name: outcome for outcome in done}
    told.outcomes = [by_name.get(job.name) or batch.Outcome(job=job, state="not started") for job in jobs]
    told.conclusion = conclude(told.outcomes) if conclude else None
    told.seconds = time.monotonic() - began
    return tell(session, told, wanted.junit)


def attempted(
    tools: Tools, jobs: Sequence[Job], attempt: Attempt, command: Sequence[str] | None, wanted: BatchOptions
) -> list[Outcome]:
    """Return the outcomes of environments that need no work, and of environments that fail before any work begins.

    The answers are stored, and later runs of the same ``command`` use them again. If ``command`` is None, nothing is stored,
    because the answers also depend on another machine, such as a registry.
    """
    from envbuild.pipeline import batch, unchanged
    from envbuild.pipeline.settled import Settled
    from envbuild.pipeline.unchanged_renderings import RenderingWatch

    view = unchanged.view(tools)
    watch, done = RenderingWatch(view), []
    settled = Settled(view, watch, command, _read_by(click.get_current_context())) if command is not None else None
    for job in jobs:
        began = time.monotonic()
        requests = " ".join(job.requests)
        found = settled.recall(job.name, requests) if settled else None
        if found is None:
            try:
                found = unchanged.without_work(view.at([job.request]), job.name, partial(_one, attempt, job, watch))
                if found is not None and settled:
                    settled.keep(job.name, requests, *found)
            except errors.EnvbuildError as error:
                found = refusal(error), error.exit_code
            except Exception:  # the environment's child process will get the same error, and report it in full
                found = None
        if found is not None:
            done.append(batch.outcome_of(job, found[1], found[0], time.monotonic() - began))
            if done[-1].state == "failed" and not wanted.keep_going:
                break
    return done


def _read_by(context: click.Context) -> list[Path]:
    """Return the folder of ``--data``, whose files the smoke test trains on; an empty list without this option."""
    return [Path(context.params["data"])] if context.params.get("data") else []


def _one(attempt: Attempt, job: Job, watch: RenderingWatch, tools: Tools) -> tuple[Mapping[str, Any], int]:
    return attempt(tools, job, watch)


def _require_space(tools: Tools, jobs: Sequence[Job], builder: Builder, *, anew: bool) -> DiskNeed:
    from envbuild.pipeline import building, disk_need

    tools.engine.make_room(tools.on_progress)
    names, is_composed = [job.name for job in jobs], building.composes(tools, builder)
    need = disk_need.need_of(tools, names, is_composed=is_composed, anew=anew)
    disk_need.require_space(disk_need.disks(tools.workspace.home, tools.engine.info, need))
    return need


def command_line(session: Session, context: click.Context) -> list[str]:
    """Return the command line of a child process without its NAME: the verb, with the options that this process got."""
    words = ["-P", "-m", "envbuild", str(context.info_name), "--json", "--progress", "json"]
    words += session.options
    words += ["-v"] * session.verbose
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and parameter.expose_value and given and name not in _OWN:
            flag, value = max(parameter.opts, key=len), context.params[name]
            if parameter.multiple:
                words += [f"{flag}={each}" for each in value]
            else:
                words.append(flag if parameter.is_flag else f"{flag}={value}")
    return words


def _run(  # noqa: PLR0917 - a run needs all these arguments
    session: Session,
    jobs: Sequence[Job],
    done: int,
    wanted: BatchOptions,
    argv: Callable[[Job], list[str]],
    told: Summary,
) -> list[Outcome]:
    from envbuild import procs
    from envbuild.cli.batch_display import display_batch
    from envbuild.pipeline import batch

    disk, total = told.disk, len(jobs) + done
    with display_batch(session, total, done, is_dry_run=told.is_dry_run) as shown, procs.Children() as children:
        if disk is not None and (disk.downloads or disk.images or disk.unknown):
            shown.remark(_disk_line(disk, len(jobs)))
        return batch.run(
            jobs,
            argv,
            limit=wanted.jobs,
            keep_going=wanted.keep_going,
            listener=shown,
            children=children,
        )


def _disk_line(disk: DiskNeed, count: int) -> str:
    text = f"{count} to build: about {wording.size(disk.downloads)} to download, {wording.size(disk.total)} of disk space"
    return text + (
        f"; {disk.unknown} of them may need more, because their locks do not contain all sizes" if disk.unknown else ""
    )
