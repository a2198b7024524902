"""Lists every build of the matrix, with the canonical name that a request for the build would get (``envbuild list``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from envbuild.errors import EnvbuildError, UsageError
from envbuild.matrix.types import Matrix
from envbuild.matrix.versions import NUMBERS, SPECIFIER
from envbuild.model.words import Status
from envbuild.resolve.choice import choose
from envbuild.resolve.environment import environment_of
from envbuild.resolve.explain.unsupported_addons import refuse_unsupported
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.parser import parse
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate, build_objections, mismatches
from envbuild.resolve.search.lookup import Lookup, lookup_of
from envbuild.resolve.search.placement import places
from envbuild.resolve.search.search import Search

STATES = (*get_args(Status), "unserved")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """The filters of the list. An empty field lets every build pass. Values are written as in a request."""

    framework: str = ""
    cuda: str = ""
    python: str = ""
    python_from: str = ""
    system: str = ""
    driver: str = ""
    gpu: str = ""
    base: str = ""
    status: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRow:
    """One build. ``name`` is the canonical name of the build's default environment among those that pass the filters; ``name``
    is empty if no environment passes. ``base_cuda`` is the CUDA version of the base's libraries if that version is newer than
    ``cuda``, else empty."""

    name: str
    framework: str
    version: str
    variant: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    python: str
    pythons: tuple[str, ...]
    system: str
    provider: str
    base_cuda: str
    driver_min: str | None
    status: str
    released: str


def list_builds(matrix: Matrix, filters: Filters | None = None) -> list[BuildRow]:
    """The rows of all builds that pass the filters. The rows of a framework are together, newest version first. Raises
    :class:`UnknownNameError` for a filter value that is not in the matrix, and :class:`UsageError` for a filter value that
    cannot be read."""
    wanted = filters or Filters()
    lookup = lookup_of(matrix)
    return [row for request in _requests(matrix, wanted) for row in _rows(lookup, request, wanted)]


def newest_environments(matrix: Matrix, **options: Any) -> dict[str, str]:
    """Map each framework to the name of its newest environment that satisfies ``options``, the options of a request.
    Frameworks without such an environment are left out."""
    lookup = lookup_of(matrix)
    found = {}
    for table in matrix.frameworks:
        try:
            request = parse([table.name], matrix=matrix, **options)
        except EnvbuildError:
            continue
        chosen = choose(Search(lookup, request))
        if chosen is not None:
            found[table.name] = environment_of(lookup, request, chosen).name
    return found


def doubts(matrix: Matrix, filters: Filters) -> list[str]:
    """The warnings about filters that could not be checked. They have the same wording as the warnings of a request."""
    found = (text for request in _requests(matrix, filters) for text in request.warnings)
    return list(dict.fromkeys(found))


def _requests(matrix: Matrix, filters: Filters) -> Iterator[Request]:
    """Yield one request for each framework that the filter names. If the filter names none, yield one for each framework of the
    matrix."""
    cuda = _cuda_word(filters.cuda)
    for name in [filters.framework] if filters.framework else [table.name for table in matrix.frameworks]:
        request = parse(
            [name, cuda],
            matrix=matrix,
            driver=filters.driver or None,
            gpu=filters.gpu or None,
            python=filters.python or None,
            python_from=filters.python_from or None,
            system=filters.system or None,
            base=filters.base or None,
        )
        refuse_unsupported(matrix, request)
        yield from (request._replace(wanted=(wanted,)) for wanted in request.wanted)


def _cuda_word(text: str) -> str:
    """Return the filter for CUDA as it is written in a request, such as ``cuda12``. The result is empty if there is no filter.

    Raises :class:`UsageError` (``bad-cuda``).
    """
    word = text.strip().lower()
    if word in ("", "cpu", "gpu", "cuda"):
        return word
    if re.search("[<>=]", word):
        word = "".join(word.split())
    if not re.fullmatch(rf"cu{NUMBERS}|(?:cuda)?(?:{NUMBERS}|{SPECIFIER})", word):
        raise UsageError(
            f"--cuda must be a CUDA version, a series or 'cpu', not {text!r}.",
            code="bad-cuda",
            hint="For example: --cuda 12.4, --cuda 12 or --cuda cpu",
        )
    return word if word.startswith("cu") else f"cuda{word}"


def _rows(lookup: Lookup, request: Request, filters: Filters) -> Iterator[BuildRow]:
    filtered = any(
        (filters.cuda, filters.python, filters.python_from, filters.system, filters.driver, filters.gpu, filters.base)
    )
    (wanted,) = request.wanted
    for release in wanted.framework.releases:
        if not wanted.accepts(release):
            continue
        for variant in release.variants:
            row = _row(lookup, request, Build(framework=wanted.framework, release=release, variant=variant))
            if (row.name or not filtered) and (not filters.status or row.status in filters.status):
                yield row


def _row(lookup: Lookup, request: Request, build: Build) -> BuildRow:
    release, variant = build.release, build.variant
    place = environment = None
    if not build_objections(lookup, request, build):
        possible = places(lookup, variant, request.image, supply=request.python_from, gpus=request.capabilities)
        place = next((place for place in possible if not mismatches(request, place)), None)
    if place is not None:
        environment = environment_of(lookup, request, Candidate(builds=(build,), place=place))
    return BuildRow(
        name=environment.name if environment else "",
        framework=build.framework.name,
        version=release.version,
        variant=variant.name,
        cuda=variant.cuda or None,
        cudnn=environment.cudnn if environment else None,
        nccl=environment.nccl if environment else None,
        python=environment.python.version if environment else "",
        pythons=variant.python,
        system=environment.system.name if environment else "",
        provider=environment.base.provider if environment else "",
        base_cuda=environment.base.libraries_cuda if environment else "",
        driver_min=(environment.driver_min if environment else lookup.driver_min(variant.cuda)) or None,
        status=variant.origin.status if environment or variant.origin.status != "ok" else "unserved",
        released=release.released,
    )
