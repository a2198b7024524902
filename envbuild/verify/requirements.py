"""Checks that the installed packages meet each other's requirements, as ``pip check`` does. The functions are pure (no network,
files or clock).

Markers are evaluated with the values of the image's own Python. The requirements are read from the image, not from the lock: a
package that is built from source may have other requirements after its build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.lock.target import read_specifiers
from envbuild.model.lock import Lock, Prefix
from envbuild.verify.findings import Findings
from envbuild.verify.rules import ImportRules

_SECTION = re.compile(r"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]*))?\]")
# Old packages write versions in Requires-Dist in parentheses, or use versions that PEP 440 does not allow.
_UNREADABLE = (InvalidRequirement, InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, InvalidVersion)


def compare_requirements(lock: Lock, prefix: Prefix, told: Mapping[str, Any], rules: ImportRules, found: Findings) -> None:
    """Check every requirement of every installed package: the required package must be installed in an allowed version. Also
    check that the version of Python is allowed."""
    installed = {str(each["name"]): each for each in told["distributions"]}
    markers = {key: str(value) for key, value in told["markers"].items()}
    extras = _extras_asked_for(lock, prefix)
    checked: set[str] = set()
    waiting = [*installed]
    while waiting:  # a package is checked again if another package requires it with a further extra
        name = waiting.pop(0)
        for requirement in _requirements(installed[name], markers, extras.get(name, set()), found, first=name not in checked):
            project = str(canonicalize_name(requirement.name))
            wanted = {str(canonicalize_name(extra)) for extra in requirement.extras} - extras.get(project, set())
            if wanted and project in installed:
                extras.setdefault(project, set()).update(wanted)
                waiting.append(project)
        checked.add(name)
    for name in sorted(installed):
        _compare_python(prefix, installed[name], markers["python_full_version"], found)
        for requirement in _requirements(installed[name], markers, extras.get(name, set()), found, first=False):
            _compare(prefix, requirement, installed[name], installed, rules=rules, found=found)
            found.count("requirements", 1)


def _compare_python(prefix: Prefix, of: Mapping[str, Any], python: str, found: Findings) -> None:
    """Compare a package's Requires-Python with the image's Python, because uv installs pinned wheels without this check."""
    wanted = str(of["python"])
    try:
        is_met = read_specifiers(wanted).contains(python, prereleases=True)
    except InvalidSpecifier:
        found.notes.append(f"not checked: {of['name']} requires Python {wanted!r}, which cannot be read")
        return
    if not is_met:
        found.wrong(f"{prefix.path}: {of['name']} {of['version']}", f"requires Python {wanted}, and {python} is installed")


def _extras_asked_for(lock: Lock, prefix: Prefix) -> dict[str, set[str]]:
    """The extras that are requested explicitly, as a mapping from projects to extras. The requests are in the requirements of
    the frameworks, and under ``pip:``."""
    environment = lock.environment
    texts = [text for each in environment.frameworks if each.name in prefix.frameworks for text in each.requirements]
    texts += environment.custom.requirements() if environment.custom and prefix == lock.prefixes[0] else ()
    found: dict[str, set[str]] = {}
    for requirement in map(Requirement, texts):
        asked = {str(canonicalize_name(extra)) for extra in requirement.extras}
        found.setdefault(str(canonicalize_name(requirement.name)), set()).update(asked)
    return found


def _requirements(
    distribution: Mapping[str, Any], markers: Mapping[str, str], extras: set[str], found: Findings, *, first: bool
) -> Iterator[Requirement]:
    """Yield the requirements that apply in the image, with the requested ``extras``. If ``first`` is true, add a note about
    each requirement that cannot be parsed."""
    for text in [*distribution["requires"], *_of_sections(str(distribution["sections"]))]:
        try:
            requirement = Requirement(text)
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({**markers, "extra": extra}) for extra in ("", *sorted(extras)))
        except _UNREADABLE as error:
            if first:
                why = " ".join(str(error).split()[:12])
                found.notes.append(f"not checked: {distribution['name']} requires {text!r}, which cannot be read ({why})")
            continue
        if applies:
            yield requirement


def _of_sections(text: str) -> Iterator[str]:
    """Yield the requirements in a requires.txt. Its sections (``[extra:marker]``) become markers."""
    condition = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        section = _SECTION.fullmatch(line)
        if section is None:
            yield f"{line}; {condition}" if condition else line
            continue
        parts = [f"({section['marker']})"] if section["marker"] else []
        parts += [f'extra == "{canonicalize_name(section["extra"])}"'] if section["extra"] else []
        condition = " and ".join(parts)


def _compare(
    prefix: Prefix,
    requirement: Requirement,
    of: Mapping[str, Any],
    installed: Mapping[str, Any],
    *,
    rules: ImportRules,
    found: Findings,
) -> None:
    name, project = str(of["name"]), str(canonicalize_name(requirement.name))
    asked = f"{requirement.name}{requirement.specifier}"
    known = next((each for each in rules.contradictions if (each.package, each.requires) == (name, asked)), None)
    there = installed.get(project)
    if there is None:
        message = f"requires {asked}, which is not installed"
    else:
        try:
            if requirement.url or requirement.specifier.contains(Version(str(there["version"])), prereleases=True):
                return
        except InvalidVersion:
            found.notes.append(
                f"not checked: {name} requires {asked}; the installed version {there['version']!r} cannot be read"
            )
            return
        message = f"requires {asked}, and {there['version']} is installed"
    if known is not None:
        found.notes.append(f"{name} {message}, on purpose: {known.reason} [{known.source}]")
    elif there is None and project in rules.ignored:
        found.notes.append(f"{name} {message}, on purpose: the recipe leaves it out")
    else:
        found.wrong(f"{prefix.path}: {name} {of['version']}", message)
