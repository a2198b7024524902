"""Errors for a host that cannot be used, and for a single file that its host does not serve."""

from __future__ import annotations

from envbuild.errors import BuildError
from envbuild.index.settings import host_of


class FileUnavailableError(BuildError):
    """One file is unavailable, or differs from the facts in the index, although its host answers. Another file may be
    usable."""


def refused(url: str, status: int, reason: str, *, file: str = "") -> BuildError:
    """Return the error for a failed request. If a file is forbidden or missing, only this file is affected. Any other failure
    is a problem of the host."""
    why = f"it answered {status} {reason[:100]}".strip()
    if file and 400 <= status < 500 and status not in (401, 407, 408, 429):
        return unfit(url, why, file=file)
    return unreachable(url, why, file=file)


def unreachable(url: str, why: str, *, file: str = "") -> BuildError:
    """Return the error for a host that cannot serve ``file``. If ``file`` is empty, the host cannot serve a page of the
    index."""
    return BuildError(
        _message(url, why, file),
        code="index-unreachable",
        hint="Check the network, proxy and certificate settings that pip uses here (`pip config list`), then run the "
        "command again: fetched files are kept.",
    )


def unfit(url: str, why: str, *, file: str) -> BuildError:
    """Return the error for an unusable answer. The error names ``file``. If ``file`` is empty, the error names the index."""
    if not file:
        return unreachable(url, why)
    return FileUnavailableError(
        _message(url, why, file),
        code="index-unreachable",
        hint="The host responds, but this file is unavailable: check the host, or use an index that has the file.",
    )


def _message(url: str, why: str, file: str) -> str:
    what = (
        f"{file} could not be fetched from {host_of(url)}" if file else f"The package index at {host_of(url)} could not be used"
    )
    return f"{what}: {why}."
