"""Reads package names in a request. The name of a framework's package stands for the framework. Other packages belong in an
envbuild.yaml."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envbuild.errors import Alternative, EnvbuildError, UnknownNameError, UsageError
from envbuild.matrix.types import FrameworkTable, Matrix, Variant
from envbuild.matrix.versions import newest_first

NAME = re.compile(r"[a-z][a-z0-9]*([._-][a-z0-9]+)*")  # the form of package names
# Words that may follow a framework's name in a condition: a version, a device, or a version of CUDA, a library or Python.
_PART = re.compile(r"v?\d.*|cpu|gpu|cuda.*|cu\d.*|cudnn.*|nccl.*|(py|cp)\d.*|python.*")
_EXTRA_OF_CUDA = re.compile(r"cu(?:da)?-?(\d{2})(?![0-9])")
# Characters that other tools write between a name and a version, for example in image tags, in npm packages and in file names.
_SEPARATOR = r"[@:_=]?v?"


class Distribution(NamedTuple):
    """What the name of a framework's package implies: the framework, the device, and clauses on CUDA. A *distribution* is a
    package of the package index here, not an operating system."""

    framework: FrameworkTable
    device: str
    cuda: str


def canonical(name: str) -> str:
    """A project's name in the normalized form in which indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_distribution(table: FrameworkTable, word: str) -> tuple[Distribution, str] | None:
    """Find the longest name of a package of ``table`` with which ``word`` begins. Return what this name implies, and the rest
    of the word after the dash. Return None if there is no such name.

    The result is also None if ``word`` begins with a name of the framework itself that is at least as long. Such a name implies
    no device.
    """
    wanted, own = canonical(word), {table.name, table.short, *table.aliases}
    names = {canonical(variant.package) for variant in _builds(table)} - own
    best = max((name for name in names if f"{wanted}-".startswith(f"{name}-")), key=len, default="")
    if len(best) <= max((len(name) for name in own if f"{wanted}-".startswith(f"{canonical(name)}-")), default=0):
        return None
    found = [variant for variant in _builds(table) if canonical(variant.package) == best]
    return _said_by(table, found), word[len(best) + 1 :]


def is_another(table: FrameworkTable, word: str, rest: str) -> bool:
    """Whether ``word``, which begins with a name of the framework, is the name of a different package."""
    return bool(rest) and not _PART.match(rest) and read_distribution(table, word) is None


def read_extras(table: FrameworkTable, word: str, extras: str) -> Distribution:
    """Return what extras such as ``[cuda12]`` imply for a framework. Raises :class:`UsageError` for extras that no build
    has."""
    said = canonical(extras)
    named = [variant for variant in _builds(table) if canonical(variant.requirement.partition("[")[2].rstrip("]")) == said]
    if named:
        return _said_by(table, named)
    if said == "cpu":
        return Distribution(framework=table, device="cpu", cuda="")
    if match := _EXTRA_OF_CUDA.match(said):
        return Distribution(framework=table, device="gpu", cuda=f"=={match[1]}")
    raise UsageError(
        f"{word}[{extras}]: {table.title} has no build with the extra [{extras}].",
        hint=f"Leave out [{extras}]: an environment contains the CUDA libraries that its framework needs.",
    )


def _builds(table: FrameworkTable) -> list[Variant]:
    return [
        variant
        for release in table.releases
        for variant in release.variants
        if not variant.repository and not variant.distribution
    ]


def _said_by(table: FrameworkTable, builds: Sequence[Variant]) -> Distribution:
    """Return what ``builds`` have in common: the framework, the device if all have the same device, and a clause on CUDA if all
    have the same major version of CUDA."""
    all_cudas = {variant.cuda for variant in builds}
    if "" in all_cudas:
        return Distribution(framework=table, device="cpu" if all_cudas == {""} else "", cuda="")
    cudas = sorted(all_cudas, key=newest_first)
    clause = ""
    if len(cudas) == 1:
        clause = f"=={cudas[0]}"
    elif len({cuda.partition(".")[0] for cuda in cudas}) == 1:
        clause = f">={cudas[-1]},<={cudas[0]}"
    return Distribution(framework=table, device="gpu", cuda=clause)


def own_environment(
    conditions: Sequence[str], words: Sequence[str], options: Mapping[str, str | Sequence[str] | None]
) -> UnknownNameError:
    """The error for conditions on packages that are not frameworks. The hint shows how to put these conditions into an
    envbuild.yaml.

    An environment's name contains only its frameworks, so two sets of packages with the same name could not be distinguished.
    ``options`` maps keys of an envbuild.yaml to the values of the matching command-line options. The value of an option that
    was not given is None or empty.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for text in conditions:
        try:
            Requirement(text)
        except InvalidRequirement as error:
            raise UsageError(
                f"{text!r} is not a condition on a package: {str(error).splitlines()[0]}.",
                hint="Write it as numpy==1.26 or 'numpy>=1.26,<2'.",
            ) from error
    given = {key: value if isinstance(value, str) else ", ".join(value) for key, value in options.items() if value}
    command = init_command(conditions, words)
    if python := given.pop("python", ""):
        command += f" --python {shlex.quote(python)}"
    lines = " and ".join(f"`{key}: {json.dumps(value)}`" for key, value in given.items())
    this, it = ("this is a package", "it") if len(conditions) == 1 else ("these are packages", "them")
    return UnknownNameError(
        f"{', '.join(conditions)}: {this}, but a request can only name frameworks; the lock of such a name would not "
        f"contain {it}. Put {it} under `pip:` in an envbuild.yaml of your own; its lock will contain {it}.",
        code="package",
        hint=f"`{command}`, then add {lines} to my-env/envbuild.yaml, then `envbuild make my-env/envbuild.yaml`"
        if lines
        else f"`{command} && envbuild make my-env/envbuild.yaml`",
    )


def init_command(packages: Sequence[str], words: Sequence[str]) -> str:
    """The command that creates an envbuild.yaml for the request ``words`` with additional ``packages``."""
    frameworks = [f"--framework {shlex.quote(' '.join(words))}" if words else "--framework FRAMEWORK"]
    return " ".join(["envbuild init my-env", *frameworks, *(f"--pip {shlex.quote(text)}" for text in packages)])


def with_pip(error: UnknownNameError, word: str, words: Sequence[str]) -> UnknownNameError:
    """Return ``error``. If ``word`` can be a package name, the hint also shows the command for an environment with it."""
    if not NAME.fullmatch(word):
        return error
    command = init_command([word], words)
    return UnknownNameError(
        error.message,
        code=error.code,
        hint=(
            f"{error.hint} If {word} is a package of the package index, put it under `pip:` of an environment of your "
            f"own: {command}"
        ),
        conflicts=error.conflicts,
        alternatives=error.alternatives,
    )


def misspelt(matrix: Matrix, word: str) -> EnvbuildError | None:
    """The error for a framework and a version that are joined as in other tools (``name1.12``, ``name:1.12``); None for any
    other word."""
    bare = word.rpartition("/")[2]
    names = {name: table for table in matrix.frameworks for name in (table.name, table.short, *table.aliases)}
    for name in sorted(names, key=len, reverse=True):
        if match := re.fullmatch(rf"{re.escape(name)}{_SEPARATOR}(\d[0-9a-z.]*)((?:[-+].*)?)", bare):
            right = f"{names[name].short}-{match[1]}{match[2]}"
            return UnknownNameError(
                f"{word!r} is not written like a request.",
                code="spelling",
                hint=f"Write {right} (a dash between the name and the version).",
                alternatives=[Alternative(name=right, changes="the usual form of a request")],
            )
    return None
