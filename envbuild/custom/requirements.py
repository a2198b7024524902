"""Read the user's requirements (PEP 508), and refuse other lines that pip accepts but a lock cannot pin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from envbuild import files
from envbuild.errors import Problem

_ELSEWHERE = re.compile(r"//|^[./~]|^(git|hg|svn|bzr)\+|\.(whl|zip|tar\.(gz|bz2))$")
_COMMENT = re.compile(r"(^|\s+)#.*$")


class NoRequirementError(ValueError):
    """A text is not a requirement that can be locked; the message says why."""


def read_requirement(text: str) -> str:
    """Return ``text`` in the normal form of PEP 508. Raises :class:`NoRequirementError`."""
    text = text.strip()
    if text.startswith("-"):
        raise NoRequirementError(f"{text!r} is an option of pip; only requirements are read here")
    if _ELSEWHERE.search(text) or re.match(r"[^;]*@", text):
        raise NoRequirementError(
            f"{text!r} is not from a package index, so it cannot be locked: name a release, or copy the code with `files`"
        )
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        raise NoRequirementError(f"{text!r} is not a requirement: {str(error).splitlines()[0]}") from error


def project_of(requirement: str) -> str:
    """Return the project of ``requirement``, in the normalized form in which indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[(]", requirement.strip(), maxsplit=1)[0]).lower()


def read_file(path: Path, where: str, problems: list[Problem]) -> Iterator[str]:
    """Yield the requirements in a requirements file of pip.

    Comments and empty lines are ignored. For any other line that is not a requirement, a problem is added to ``problems``.
    """
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(where=where, line=0, message=f"cannot be read: {error}"))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _COMMENT.sub("", line).strip()
        if not bare:
            continue
        try:
            yield read_requirement(bare)
        except NoRequirementError as error:
            problems.append(Problem(where=where, line=number, message=str(error)))
