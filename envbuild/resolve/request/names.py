"""Finds frameworks, systems and drivers by the names that people use; errors for unknown names suggest the most similar known
names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envbuild.errors import Alternative, Conflict, ConflictError, UnknownNameError, UsageError
from envbuild.matrix.package_pins import packages_of
from envbuild.matrix.similar_names import did_you_mean, nearest, nearest_versions
from envbuild.matrix.skipped_releases import PRERELEASES, why_left_out
from envbuild.matrix.types import FrameworkTable, LeftOut, Matrix
from envbuild.matrix.versions import around, version_matches, version_parts
from envbuild.resolve.request.draft import Draft
from envbuild.resolve.request.packages import init_command, with_pip

_SHOWN = 12
_SHOWN_LINES = 8


def known_names(framework: FrameworkTable) -> set[str]:
    """All names of a framework, in lower case."""
    return {framework.name, framework.short, *framework.aliases}


def all_names(matrix: Matrix) -> set[str]:
    """The names of all frameworks, in lower case."""
    return set().union(*map(known_names, matrix.frameworks))


def is_package(matrix: Matrix, word: str) -> bool:
    """Whether ``word`` begins with the name of a package that a framework of the matrix requires."""
    return bool(_library(matrix, word))


def find_framework(matrix: Matrix, word: str) -> tuple[FrameworkTable, str] | None:
    """Return the framework with whose name ``word`` begins, and the rest of the word after the dash. If several names fit, the
    longest counts."""
    best: tuple[FrameworkTable, str] | None = None
    longest = 0
    for framework in matrix.frameworks:
        for name in known_names(framework):
            if len(name) > longest and (word == name or word.startswith(name + "-")):
                best, longest = (framework, word[len(name) + 1 :]), len(name)
    return best


def example(matrix: Matrix) -> str:
    """Return a hint that shows an example of a request, with a framework of this matrix."""
    for framework in matrix.frameworks:
        for release in framework.releases:
            series = ".".join(release.version.split(".")[:2])
            cuda = release.variants[0].cuda
            return f"For example: {framework.short}-{series}-{f'cuda{cuda}' if cuda else 'cpu'}."
    return "The matrix has no framework."


def refuse_hinted(matrix: Matrix, word: str) -> None:
    """Raise for a name that, according to a hint in the matrix, people use by mistake for another framework."""
    for framework in matrix.frameworks:
        for hint in framework.hints:
            if re.match(re.escape(hint.says) + r"(?![0-9a-z.])", word):
                because = f" {hint.because}" if hint.because else ""
                rest = word[len(hint.says) :]
                raise UnknownNameError(
                    f"{hint.says} is not a release of {framework.title}.{because}",
                    hint=f"{hint.means} is a different framework: ask for {hint.means}{rest}.",
                    alternatives=[Alternative(name=hint.means + rest, changes=f"{hint.means} instead of {hint.says}")],
                )


def unknown_framework(matrix: Matrix, draft: Draft, head: str, rest: str) -> UnknownNameError:
    """The error for a word of the request ``draft`` that begins with no framework of the matrix. The word is ``head`` +
    ``rest``."""
    if library := _library(matrix, head + rest):
        return UnknownNameError(
            f"{library!r} is a library, not a framework of the matrix. Locking chooses the libraries that a framework needs.",
            code="library",
            hint=f"Leave {library} out of the request; the lock will say which version is used. To choose the version "
            f"yourself, put it under `pip:` of an environment of your own: {init_command([library], [])}",
        )
    names = {name: framework for framework in matrix.frameworks for name in known_names(framework)}
    found = nearest(head, names)
    fixed = {
        name: draft.text.lower().replace(head + rest, name + rest, 1)
        for place, name in enumerate(found)
        if names[name] not in [names[better] for better in found[:place]]
    }
    near = sorted(fixed, key=lambda name: not draft.resolves(fixed[name]))
    known = ", ".join(sorted({framework.name for framework in matrix.frameworks}))
    error = UnknownNameError(
        f"The matrix has no framework {head!r}.",
        hint=f"Did you mean {near[0]}?" if near else f"The frameworks are: {known}.",
        alternatives=[Alternative(name=fixed[name], changes=f"{name} instead of {head}") for name in near],
    )
    return error if near else with_pip(error, head + rest, [])


def _library(matrix: Matrix, word: str) -> str:
    """Return the name of a required package with which ``word`` begins; empty if there is no such package."""
    builds = (variant for table in matrix.frameworks for release in table.releases for variant in release.variants)
    known = set().union(*map(packages_of, builds))
    return max((name for name in known if f"{word}-".startswith(f"{name}-")), key=len, default="")


def unknown_version(what: str, wanted: str, known: Sequence[str], make: Iterable[Alternative] = ()) -> UnknownNameError:
    """The error for a version that the matrix does not have. ``known`` are the versions that have a row, newest first.

    If there are many known versions, the hint shows the nearest series (X.Y). The details then list all versions, with one line
    for each major version.
    """
    lines = list(dict.fromkeys(".".join(version.split(".")[:2]) for version in known))
    few = len(known) <= _SHOWN
    shown = list(known) if few else nearest_versions(lines, wanted)[:_SHOWN_LINES]
    majors: dict[str, list[str]] = {}
    for version in () if few else known:
        majors.setdefault(version.split(".")[0], []).append(version)
    return UnknownNameError(
        f"The matrix has no {what} {wanted}.",
        code="unknown-version",
        hint=f"Ask for one of {'these' if few else 'the nearest'}: {', '.join(shown)}."
        if known
        else f"The matrix has no {what} at all.",
        alternatives=tuple(make),
        details=[f"{what} {major}: {', '.join(versions)}" for major, versions in majors.items()],
    )


def rule_that_leaves_out(framework: FrameworkTable, clauses: str) -> LeftOut | None:
    """The rule of the matrix that explains why the requested version has no row. If such rules leave out several versions that
    satisfy ``clauses``, return the rule for the newest of these versions."""
    rules = framework.left_out
    if re.fullmatch("=+[^,]+", clauses):
        return why_left_out(rules, clauses.lstrip("="))
    said = [text for rule in rules for text in rule.releases if text != PRERELEASES]
    asked = {version for version in around(",".join((clauses, *said))) if version_matches(version, clauses)}
    found = (why_left_out(rules, version) for version in sorted(asked, key=version_parts, reverse=True))
    return next(filter(None, found), None)


def left_out(framework: FrameworkTable, wanted: str, rule: LeftOut, instead: Sequence[Alternative]) -> ConflictError:
    """The error for a version that upstream published and that has no row on purpose."""
    return ConflictError(
        f"The matrix leaves out {framework.title} {wanted}: {rule.origin.note}.",
        code="left-out",
        hint=f"Ask for another version: {', '.join(each.name for each in instead)}.",
        conflicts=[Conflict(row=f"{framework.name} {wanted}", reason=rule.origin.note, source=rule.origin.source)],
        alternatives=instead,
    )


def find_systems(matrix: Matrix, text: str) -> tuple[str, ...]:
    """The systems that ``text`` names: ``text`` may be a name, a codename, a family, or a name without its last part. The
    result is empty if no system has this name."""
    word = text.lower().replace(":", "").replace("_", "")
    exact = tuple(row.name for row in matrix.systems if word in (row.name, row.codename.lower(), row.image.lower()))
    if exact:
        return exact
    return tuple(row.name for row in matrix.systems if word == row.family or row.name.startswith(word + "."))


def unknown_system(matrix: Matrix, text: str) -> UnknownNameError:
    """The error for a system that the matrix does not have."""
    names = [row.name for row in matrix.systems]
    near = nearest(text, [*names, *(row.codename for row in matrix.systems)])
    return UnknownNameError(
        f"The matrix has no operating system {text!r}.",
        hint=did_you_mean(near) + f"The systems are: {', '.join(sorted(names))}.",
    )


def find_driver(matrix: Matrix, text: str) -> tuple[str, list[str]]:
    """Read a driver version. If no row has the driver's branch, the second value has a warning that says what cannot be
    checked."""
    word = text.strip().lower().lstrip("rv")
    if not re.fullmatch(r"\d{1,5}(\.\d{1,5}){0,3}", word):
        raise UsageError(
            f"{text!r} is not a driver version.",
            code="bad-driver",
            hint="Write it as nvidia-smi prints it, for example 384.130.",
        )
    branch = word.partition(".")[0]
    if branch in {row.branch for row in matrix.drivers}:
        return word, []
    return word, [
        f"Driver {word}: the matrix has no branch {branch}. Only the minimum driver of CUDA was compared; whether this "
        "driver still supports the GPU's architecture was not checked."
    ]
