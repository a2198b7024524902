"""Errors for a host that cannot be used, and for a single file that a host does not give."""

from __future__ import annotations

from envbuild.errors import BuildError
from envbuild.index.settings import host_of


class FileUnavailableError(BuildError):
    """One file cannot be had or is not what the index says, while its host answers: another file may serve."""


def refused(url: str, status: int, reason: str, *, file: str = "") -> BuildError:
    """The error of an answer that is none. A file that is forbidden or gone is the file's fault, all else the host's."""
    why = f"it answered {status} {reason[:100]}".strip()
    if file and 400 <= status < 500 and status not in (401, 407, 408, 429):
        return unfit(url, why, file=file)
    return unreachable(url, why, file=file)


def unreachable(url: str, why: str, *, file: str = "") -> BuildError:
    """A host that gives no page of an index, or not the ``file`` that is named: what lies where need not be an index."""
    return BuildError(
        _message(url, why, file),
        code="index-unreachable",
        hint="Check the network, proxy and certificate settings that pip uses here (`pip config list`), then run it again: "
        "what was fetched already is kept.",
    )


def unfit(url: str, why: str, *, file: str) -> BuildError:
    """An answer that cannot be used: of a file, if one is named, else of the index."""
    if not file:
        return unreachable(url, why)
    return FileUnavailableError(
        _message(url, why, file),
        code="index-unreachable",
        hint="The host answers, and this file cannot be had from it: look there, or use an index that has it.",
    )


def _message(url: str, why: str, file: str) -> str:
    what = f"{file} could not be had from {host_of(url)}" if file else f"The package index at {host_of(url)} could not be used"
    return f"{what}: {why}."
