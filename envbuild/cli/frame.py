"""The top-level command group of envbuild. This module turns all errors into text, JSON and exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType

import click

from envbuild.cli import options
from envbuild.cli.session import Session, describe, discard, refusal
from envbuild.cli.verbs import VERBS
from envbuild.errors import EngineError, EnvbuildError, InterruptedByUserError, UsageError

# Exceptions of these packages come from the engine's SDK. The index client also uses requests, but handles its own errors.
_OF_THE_ENGINE = ("docker", "requests", "urllib3")
_OF_THE_MACHINE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EFBIG,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
)


class Verbs(click.Group):
    """A group that imports the module of a verb only when the verb is used. The help of the group imports no verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the verbs in the order in which a new user needs them, not alphabetically."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the verb's module and return its ``command``."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"envbuild.cli.{VERBS[cmd_name][0]}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does, but suggest the most similar verb for a misspelt one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise unknown_verb(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the verbs from the table, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])


def unknown_verb(word: str) -> UsageError:
    """Return the error for an unknown verb. If the word looks like a request, the error suggests `envbuild make`."""
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=1, cutoff=0.5)
    if near:
        hint = f"Did you mean `envbuild {near[0]}`?"
    elif "-" in word and any(c.isdigit() for c in word):
        hint = f"Did you mean `envbuild make {word}`?"
    else:
        hint = "`envbuild --help` lists the commands."
    return UsageError(f"envbuild has no command {word!r}.", code="unknown-command", hint=hint)


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "obj": None},
    epilog="Exit codes: 0 done, 2 usage, 3 impossible, 4 unknown name, 5 invalid or stale input, 6 no engine, 7 build failed, "
    "8 contents differ, 9 smoke test failed, 10 inconclusive, 11 a registry or service failed, 12 the policy or audit "
    "--strict is not met, 124 timed out, 130 interrupted.",
)
@click.option("--version", is_flag=True, help="Print the version and stop.")
@options.common
@click.pass_context
def app(ctx: click.Context, version: bool) -> None:
    """Build containerized deep-learning environments from one compatibility matrix.

    `envbuild list` shows the names; `envbuild make NAME` does everything for one of them.
    """
    if version:
        import envbuild

        ctx.obj.out(f"envbuild {envbuild.__version__}")
        ctx.obj.document({"schema": 1, "version": envbuild.__version__})
    elif ctx.invoked_subcommand is None:
        ctx.obj.raw(ctx.get_help() + "\n")


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. This function prints every failure once, and raises no errors."""
    session = Session(json=_asks_json(argv), verbose=int(bool({"-v", "--verbose"} & set(argv))))
    error: EnvbuildError
    with signals_as_interrupts():
        try:
            return _invoke(list(argv), session)
        except EnvbuildError as expected:
            error = expected
        except BrokenPipeError:  # the reader of click's help text has ended, as in `envbuild --help | head`
            discard(sys.stdout)
            return 0
        except KeyboardInterrupt:
            error = InterruptedByUserError(
                "Stopped because you interrupted the command; no file was left half-written.",
                hint="Run the same command again to continue.",
            )
        except Exception as trouble:  # for all other errors, print a sentence and not a traceback
            told = _of_the_surroundings(trouble)
            if told is None:
                return _bug(trouble, session)
            error = told
    with contextlib.suppress(KeyboardInterrupt, EnvbuildError):
        session.document(refusal(error))
        session.failure(describe(error, session.options))
    return error.exit_code


def _invoke(argv: list[str], session: Session) -> int:
    if "_ENVBUILD_COMPLETE" in os.environ:  # the completion script called envbuild
        app.main(args=argv, prog_name="envbuild", obj=session)
    try:
        # Do not use app.main() of click: it prints a line of its own on Ctrl-C, and hides errors of standard output.
        with app.make_context("envbuild", argv, obj=session) as context:
            answer = app.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as wrong:
        raise _usage(wrong) from wrong
    except click.ClickException as wrong:
        raise UsageError(wrong.format_message()) from wrong
    return answer if isinstance(answer, int) else 0


def _of_the_surroundings(trouble: Exception) -> EnvbuildError | None:
    """Return an EnvbuildError if the engine ended or the machine has a fault (full disk, missing permissions), else None."""
    from envbuild.files import explain_os_error

    if type(trouble).__module__.partition(".")[0] in _OF_THE_ENGINE:
        return EngineError.gone(str(trouble).strip() or type(trouble).__name__)
    if not isinstance(trouble, OSError):
        return None
    if trouble.errno == errno.ENAMETOOLONG:
        return UsageError(
            "An argument is used as the name of a file or folder, and is too long for this.",
            hint="Name an existing file or folder.",
        )
    if trouble.errno == errno.ENOENT and trouble.filename is None:  # only getcwd() raises this without a file name
        return UsageError(
            "The working folder no longer exists.",
            code="no-working-folder",
            hint="Change to a folder that exists, and repeat the command.",
        )
    if trouble.errno not in _OF_THE_MACHINE:
        return None
    return explain_os_error(trouble, Path(str(trouble.filename or "a file")))


def _usage(wrong: click.UsageError) -> UsageError:
    path = wrong.ctx.command_path if wrong.ctx is not None else "envbuild"
    hint = f"`{path} --help` lists the options."
    near: Sequence[str] = getattr(wrong, "possibilities", None) or ()
    if wrong.ctx is not None and _lacks_command(wrong):
        return UsageError(_needed_command(wrong.ctx), code="missing-command", hint=f"`{path} --help` describes each command.")
    if isinstance(wrong, click.NoSuchOption):
        message = f"{path} has no option {wrong.option_name}."
        if near:
            hint = f"Did you mean {' or '.join(sorted(near)[:3])}? {hint}"
        return UsageError(message, code="unknown-option", hint=hint)
    if isinstance(wrong, click.MissingParameter) and isinstance(wrong.param, click.Argument):
        return UsageError(f"{path} needs {wrong.param.human_readable_name}.", code="missing-argument", hint=hint)
    if isinstance(wrong, click.MissingParameter) and isinstance(wrong.param, click.Option) and wrong.ctx is not None:
        message = f"{path} needs {wrong.param.opts[0]} {wrong.param.make_metavar(wrong.ctx)}."
        return UsageError(message, code="missing-option", hint=f"{wrong.param.help} {hint}")
    if "extra argument" in wrong.message:
        hint = f"Write a request of several words as one argument, in quotes. {hint}"
    return UsageError(wrong.format_message(), hint=hint)


def _lacks_command(wrong: click.UsageError) -> bool:
    """Whether a group of commands was called without naming one of its commands.

    Click has no error class for this case if options were given, so the message is compared.
    """
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        return True
    return type(wrong) is click.UsageError and wrong.message == "Missing command."


def _needed_command(context: click.Context) -> str:
    group = context.command
    commands = f": {', '.join(group.list_commands(context))}" if isinstance(group, click.Group) else ""
    return f"`{context.command_path}` needs a command{commands}."


def _asks_json(argv: Sequence[str]) -> bool:
    """Whether ``--json`` was given. It must be known before parsing, so that usage errors are JSON too."""
    return "--json" in (argv[: argv.index("--")] if "--" in argv else argv)


def _bug(bug: Exception, session: Session) -> int:
    kind = type(bug).__name__
    text = str(bug).strip().splitlines()
    error = EnvbuildError(
        f"This is a bug in envbuild: {kind}{': ' + text[0] if text else ''}.",
        code="bug",
        hint="Please report it, with the command and the output of the same command with -v.",
    )
    if session.verbose:
        import traceback

        session.failure("".join(traceback.format_exception(bug)).rstrip())
    with contextlib.suppress(KeyboardInterrupt, EnvbuildError):
        session.document(refusal(error))
        session.failure(describe(error, session.options))
    return error.exit_code


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a closed terminal into KeyboardInterrupt, so that the clean-up stops the started processes.

    A shell without job control makes background jobs ignore SIGINT. SIGINT is handled nevertheless, because CI systems stop
    background jobs with it.
    """

    def unwind(_number: int, _frame: FrameType | None) -> None:
        # Ignore further signals: a second one must not interrupt the clean-up.
        for number in watched:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    watched = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        watched.append(signal.SIGHUP)
    before: dict[signal.Signals, object] = {}
    try:
        for number in watched:
            before[number] = signal.signal(number, unwind)
    except ValueError:  # this is not the main thread, so the caller handles signals
        before.clear()
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)  # type: ignore[arg-type]
