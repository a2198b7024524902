"""The common options, and all output. :meth:`Session.out` prints results; :meth:`Session.err` prints everything else."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from envbuild.cli.terminal import plain, plain_json
from envbuild.cli.verbs import with_options, with_options_everywhere
from envbuild.errors import EnvbuildError, InterruptedByUserError, SmokeInconclusiveError

if TYPE_CHECKING:
    from envbuild.pipeline.tools import Tools
    from envbuild.workspace import Workspace


@dataclass(kw_only=True, slots=True)
class Session:
    """One run of the command line. An option can be given before or after the verb; the last value counts."""

    json: bool = False
    verbose: int = 0
    quiet: bool = False
    progress: str = "auto"
    root: str | None = None
    overlays: list[str] = field(default_factory=list)
    policy: str | None = None
    space_is_checked: bool = False  # by the batch that started this process
    _workspace: Workspace | None = field(default=None)

    @property
    def workspace(self) -> Workspace:
        """The workspace, found from ``--root``, the environment variable or the current folder. It is looked up once."""
        if self._workspace is None:
            from envbuild import workspace

            self._workspace = workspace.find(self.root, self.overlays, os.environ, self.policy)
        return self._workspace

    def tools(self, texts: Sequence[str] = (), *, offline: Path | None = None, **options: Any) -> Tools:
        """Return the tools that the stages of the pipeline share in this run, for the environment that ``texts`` name.

        ``offline`` is the folder of a bundle that is used in place of the network. ``options`` are passed to :class:`Tools`.
        """
        from envbuild.pipeline.tools import Tools

        options["space_is_checked"] = self.space_is_checked
        if offline is not None:
            from envbuild.pipeline.offline import tools_for

            return tools_for(self.workspace, offline, list(texts), lambda workspace: Tools(workspace, **options))
        return Tools(self.workspace, **options).at(texts)

    @property
    def options(self) -> tuple[str, ...]:
        """The options ``--root``, ``--matrix`` and ``--policy`` of this run, as words of a command line."""
        if not (self.root or self.overlays or self.policy):
            return ()
        from envbuild import workspace

        return workspace.options_of(self.root, self.overlays, self.policy)

    def copyable(self, text: str) -> str:
        """Return the text with the options of this run in each command line of envbuild, so that the user can copy it."""
        return with_options(text, self.options)

    def out(self, text: str, *, is_for_here: bool = True) -> None:
        """Print a line of the result on standard output. With ``--json``, print nothing: the JSON document has the result.

        Commands in the text get the options of this run, unless they are for another machine (``is_for_here`` is false).
        """
        if not self.json:
            _write(sys.stdout, plain(self.copyable(text) if is_for_here else text) + "\n")

    def document(self, value: Any) -> None:
        """Print the JSON document of a ``--json`` run; do nothing without ``--json``."""
        if self.json:
            value = with_options_everywhere(value, self.options)
            _write(sys.stdout, plain_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def raw(self, text: str) -> None:
        """Print a text such as a report or a script on standard output, even with ``--json`` or ``-q``."""
        _write(sys.stdout, plain(text))

    def err(self, text: str) -> None:
        """Print a remark on standard error, unless ``-q`` was given."""
        if not self.quiet:
            _write(sys.stderr, plain(self.copyable(text)) + "\n")

    def event(self, value: Any) -> None:
        """Print a JSON object on standard error as one line, unless ``-q`` was given."""
        if not self.quiet:
            _write(sys.stderr, plain(json.dumps(with_options_everywhere(value, self.options))) + "\n")

    def failure(self, text: str) -> None:
        """Print an error on standard error, even with ``-q``."""
        _write(sys.stderr, plain(text) + "\n")


# The first word of the message. It is "error" for all classes that are not listed here.
_HEADS: dict[type[EnvbuildError], str] = {InterruptedByUserError: "interrupted", SmokeInconclusiveError: "inconclusive"}


def describe(error: EnvbuildError, options: Sequence[str] = ()) -> str:
    """Return the text of an error: the message, each cause, alternatives that would work, and a hint.

    Command lines of envbuild in the message, the details and the hint get the ``options``.
    """
    lines = [f"{_HEADS.get(type(error), 'error')}: {with_options(error.message, options)}"]
    lines += [f"  - {conflict.row}: {conflict.cited}" for conflict in error.conflicts]
    lines += [f"  - {problem}" for problem in error.problems]
    lines += _details([with_options(text, options) for text in error.details])
    if error.alternatives:
        width = max(len(a.name) for a in error.alternatives)
        lines.append("would work:")
        lines += [f"  {a.name.ljust(width)}  {a.changes}".rstrip() for a in error.alternatives]
    if error.hint:
        lines.append(f"hint: {with_options(error.hint, options)}")
    return "\n".join(lines)


def _details(details: Sequence[str]) -> list[str]:
    """Format the details of an error.

    A long list of short items, such as versions, becomes running text. Other details, such as a program's output, get a line
    each.
    """
    if len(details) > 8 and max(map(len, details)) < 32:
        import textwrap

        text = ", ".join(details)
        return textwrap.wrap(text, 110, initial_indent="  | ", subsequent_indent="  | ", max_lines=4, placeholder=" …")
    return [f"  | {line}" for line in details]


def refusal(error: EnvbuildError) -> dict[str, Any]:
    """Return the JSON document of a failed run (``schemas/refusal.json``)."""
    return {"schema": 1, "error": error.to_json()}


def _write(stream: TextIO, text: str) -> None:
    """Write and flush. If the reader of a pipe has ended (as in ``| head``), discard the rest of the output."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except UnicodeEncodeError:  # replace characters that the encoding lacks, for example in the C locale
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        discard(stream)
        from pathlib import Path

        from envbuild.files import explain_os_error

        raise explain_os_error(error, Path("standard output")) from error


def discard(stream: TextIO) -> None:
    """Discard further output to ``stream``, because its reader has ended."""
    # Redirect the file descriptor: at exit, Python flushes the standard streams, and would print an error.
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
