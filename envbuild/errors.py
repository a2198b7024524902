"""The errors that users can meet, one class per exit code.

An error says, in this order: *what* happened, *where*, *why*, and what to do *next* (the hint). Any exception other than
:class:`EnvbuildError` is a bug in envbuild; the program then exits with 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

FREE_SPACE = "Free some space where the engine keeps its data (`docker system prune`)."


class Conflict(NamedTuple):
    """One fact that contradicts a request: the matrix row, its reason, and the public document with the fact.

    If the row comes from a user's overlay, ``overlaid`` is its file and line; otherwise it is empty.
    """

    row: str
    reason: str
    source: str
    overlaid: str = ""

    @property
    def cited(self) -> str:
        """The reason, with its source."""
        document = f" [{self.source}]" if self.source else ""
        return f"{self.reason}{document}" + (f" (from your overlay: {self.overlaid})" if self.overlaid else "")


class Alternative(NamedTuple):
    """A request that would work, and how it differs from the user's request. In lists, the smallest change comes first."""

    name: str
    changes: str


class Problem(NamedTuple):
    """One problem in an input file. ``line`` is 1-based, or 0 if the problem has no single line."""

    where: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        return f"{place}: {self.message}"


class EnvbuildError(Exception):
    """The base class of all expected errors.

    ``code`` is a stable word for scripts (``error.code`` in JSON); each class has a default.
    """

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str = "",
        conflicts: Sequence[Conflict] = (),
        alternatives: Sequence[Alternative] = (),
        problems: Sequence[Problem] = (),
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code
        self.conflicts = tuple(conflicts)
        self.alternatives = tuple(alternatives)
        self.problems = tuple(problems)
        self.details = tuple(details)

    def to_json(self) -> dict[str, Any]:
        """Return the ``error`` object of the refusal schema (``schemas/refusal.json``)."""
        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "message": self.message,
            "hint": self.hint,
            "conflicts": [c._asdict() for c in self.conflicts],
            "alternatives": [a._asdict() for a in self.alternatives],
            "problems": [p._asdict() for p in self.problems],
            "details": list(self.details),
        }


class UsageError(EnvbuildError):
    """An argument, an option or a setting is wrong, or a file, folder or branch that it names cannot be used."""

    exit_code = 2
    default_code = "usage"


class ConflictError(EnvbuildError):
    """No combination of versions satisfies the request. The error lists the conflicting rows of the matrix and the nearest
    alternatives."""

    exit_code = 3
    default_code = "conflict"


class UnknownNameError(EnvbuildError):
    """The matrix does not have a name or version of the request. The hint gives the nearest names or versions."""

    exit_code = 4
    default_code = "unknown-name"


class InvalidInputError(EnvbuildError):
    """An input file, such as the matrix, a recipe, a lock or a rendering, is invalid, missing or stale. ``problems`` lists
    all problems at once."""

    exit_code = 5
    default_code = "invalid"


class EngineError(EnvbuildError):
    """The container engine is missing, refuses the connection, or lacks a required feature."""

    exit_code = 6
    default_code = "engine"

    @classmethod
    def gone(cls, told: str) -> EngineError:
        """Return the error for an engine that answered before, and then ended or refused a request; ``told`` is the reason."""
        if says_disk_full(told):
            return cls(f"The container engine has no space left: {told}.", code="no-space", hint=FREE_SPACE)
        return cls(
            f"The container engine stopped, or refused a request: {told}.",
            code="engine-gone",
            hint="`envbuild engine status` shows which engine is used. Start this engine, and run the same command again.",
        )


class BuildError(EnvbuildError):
    """The build of an image, the making of a lock, or a download failed. ``code`` says what failed, such as
    ``base-unreachable``, ``build-step`` or ``index-unreachable``."""

    exit_code = 7
    default_code = "build-step"


class VerifyError(EnvbuildError):
    """The image differs from its lock, a library in it is missing, or a stored layer is damaged."""

    exit_code = 8
    default_code = "contents-differ"


class SmokeFailedError(EnvbuildError):
    """The smoke test failed: one of its checks failed, or the test hung or crashed."""

    exit_code = 9
    default_code = "smoke-failed"


class SmokeInconclusiveError(EnvbuildError):
    """The smoke test could not judge, for example because there are too few devices, or `matrix measure` or `report` had
    nothing to compare. This never counts as a pass."""

    exit_code = 10
    default_code = "smoke-inconclusive"


class PublishError(EnvbuildError):
    """A registry or another service on the network refused a request, or could not be reached."""

    exit_code = 11
    default_code = "publish"


class PolicyError(EnvbuildError):
    """An environment violates the policy of the site, or has vulnerabilities under `audit --strict`, or could not be
    checked completely."""

    exit_code = 12
    default_code = "policy"


class TimedOutError(EnvbuildError):
    """The time limit that the user set (--timeout) has passed."""

    exit_code = 124
    default_code = "timed-out"


class InterruptedByUserError(EnvbuildError):
    """The user pressed Ctrl-C, sent SIGTERM or closed the terminal. All processes that envbuild started were stopped."""

    exit_code = 130
    default_code = "interrupted"


def says_disk_full(words: str) -> bool:
    """Whether the words of an engine say that its disk is full."""
    return "no space left" in words.lower()
