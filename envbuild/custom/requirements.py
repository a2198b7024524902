"""What a user wants from the package index: PEP 508 lines, told from what pip would also take and no lock could hold."""

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
    """This text is not a requirement that can be locked; the message says why."""


def read_requirement(text: str) -> str:
    """``text`` in PEP 508's normal spelling. Raises :class:`NoRequirementError`."""
    text = text.strip()
    if text.startswith("-"):
        raise NoRequirementError(f"{text!r} is an option of pip; only requirements are read here")
    if _ELSEWHERE.search(text) or re.match(r"[^;]*@", text):
        raise NoRequirementError(
            f"{text!r} is not from a package index, so no date bounds it: name a release, or copy the code with `files`"
        )
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        raise NoRequirementError(f"{text!r} is not a requirement: {str(error).splitlines()[0]}") from error


def project_of(requirement: str) -> str:
    """The project that ``requirement`` is about, as indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[(]", requirement.strip(), maxsplit=1)[0]).lower()


def read_file(path: Path, where: str, problems: list[Problem]) -> Iterator[str]:
    """The requirements in a file of pip's form; what is none is a problem with its line."""
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
