"""Ten thousand damaged matrices.

Each is refused with file and line, or a second reader reads the same from it and confirms the answers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from brute_force import Judge
from brute_joint import lies, solutions, wish_of
from brute_world import World
from fuzz_matrices import Seed, Sources, Spoilt, cut_out, garbled, misvalued
from fuzzing import fuzz
from hypothesis import strategies as st

from envbuild.errors import ConflictError, EnvbuildError, InvalidInputError, Problem
from envbuild.matrix import checks
from envbuild.matrix.pairs import other_builds
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Matrix, Release, Variant
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

ROOT = Path(__file__).parents[4]
TOY = read_sources(ROOT / "tests" / "golden" / "toy" / "matrix.yaml")
OVERLAYS = {
    f"/site/{path.name}": path.read_bytes()
    for path in sorted((Path(__file__).parents[2] / "data/overlays").glob("*"), reverse=True)
}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("wd-1.12", {}),
    ("wd", {"driver": "384.130"}),
    ("wd", {"gpu": "sm_61"}),
    ("wd-1.12-cpu-py27", {}),
    ("wd-1.4", {"base": "tag"}),
    ("wd-2.0 cudnn>=8", {"system": "marble10"}),
    ("gizmo", {}),
    ("gizmo-3.1-cuda12", {"gpu": "Moon M100 40GB", "driver": "525.60.13"}),
    ("gz-3.0", {"python": "3.11"}),
    ("tf-1.12-cuda9", {"driver": "384.130", "gpu": "gtx1080ti"}),
    ("tf", {"python": "3.9"}),
    ("keras", {}),
    ("keras-2.2", {"driver": "390.46"}),
    ("keras cudnn>=7", {"base": "apt"}),
    ("keras-2.2+tf", {"gpu": "gtx1080ti"}),
    ("horovod-0.16+tf-1.12.3", {}),
    ("horovod-0.16.4+keras-2.2.5+tf-1.12.2-cuda9", {}),
    ("gd", {}),
]


@functools.cache
def toy() -> Seed:
    return Seed(TOY)


@functools.cache
def cut() -> Seed:
    """A part of the real matrix: two add-ons to a third framework, with tested and allowed pairs."""
    return Seed(cut_out(read_sources(ROOT / "matrix.yaml"), {"tensorflow": ["1.12"], "keras": ["2.2"], "horovod": ["0.16"]}))


@functools.cache
def site() -> Seed:
    return Seed({**TOY, **OVERLAYS}, list(OVERLAYS))


def is_told(problems: Collection[Problem], sources: Sources) -> bool:
    """Whether every problem names a file and an existing line of it, with lines as YAML counts them."""
    lines = {name: len(re.split(rb"\r\n|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9]", content)) for name, content in sources.items()}
    return bool(problems) and all(item.message and 1 <= item.line <= lines[item.where] for item in problems)


def judge(sources: Sources, overlays: Collection[str], asked: int) -> None:
    try:
        found = compile_matrix(sources, list(overlays))
    except InvalidInputError as error:
        assert is_told(error.problems, sources), error.problems
        return
    problems = checks.check(found)
    assert not problems or is_told(problems, sources), problems
    world = World(sources, overlays)
    assert same(found, world)
    for text, options in (ASKED[(asked + step) % len(ASKED)] for step in (0, 4, 9)):
        answered(found, Judge(world), text, options)


def same(found: Matrix, world: World) -> bool:
    """Check that both readers have the same builds, the same pairs, and the same builds of each pair."""
    ours = {
        (
            (table.name, release.version, variant.name, variant.origin.status, variant.cuda, variant.cuda_libraries),
            (variant.python, variant.package, variant.glibc, tuple(map(tuple, variant.upon))),
        )
        for table in found.frameworks
        for release in table.releases
        for variant in (*release.variants, *elsewhere(found, release))
    }
    theirs = {
        (
            (build.framework, build.version, build.name, build.status, build.cuda, build.libraries),
            (tuple(build.row["python"]), build.row["package"], build.row["glibc"], build.holds),
        )
        for builds in (*world.builds.values(), *world.elsewhere.values())
        for build in builds
    }
    assert ours == theirs, ours ^ theirs
    pairs = {
        (table.name, release.version, each.framework): (
            *((each.taken, each.taken_cuda), frozenset(each.tested), frozenset(each.allowed)),
            frozenset(version for bad in each.bad for version in bad.releases),
            *(frozenset(each.cpu_only), frozenset(each.cuda_only)),
        )
        for table in found.frameworks
        for release in table.releases
        for each in release.pairs
    }
    said = {(*key, other): tuple(each) for key, others in world.pairs.items() for other, each in others.items()}
    assert pairs == said, (pairs, said)
    return True


def elsewhere(found: Matrix, release: Release) -> Iterator[Variant]:
    """The builds upon releases of the base framework that are not the default."""
    for pairs in release.pairs:
        base = next(table for table in found.frameworks if table.name == pairs.framework)
        yield from other_builds(release, base, lambda _: True)


def answered(found: Matrix, against: Judge, text: str, options: dict[str, Any]) -> None:
    """Check one request: an accepted answer is right, and a refused request really has no solution."""
    wish = None
    try:
        request = parse([text], matrix=found, **options)
        wish = wish_of(request)
        resolution = resolve(found, request)
    except EnvbuildError as error:
        assert error.message
        if isinstance(error, InvalidInputError):  # a row names a missing row, which `matrix check` reports, too
            assert error.code == "invalid-matrix"
            assert checks.check(found)
        elif wish is not None:
            assert isinstance(error, ConflictError)
            assert error.conflicts
            better = next(solutions(against, wish), None)
            assert better is None, (text, options, error, better)
        return
    assert wish is not None
    assert not lies(against, wish, resolution.environment, resolution.warnings)
    assert recheck(found, resolution.environment) == []


NUMBER = st.integers(0, len(ASKED) - 1)


@fuzz(4500, st.deferred(lambda: misvalued(toy())), NUMBER)
def test_values_and_keys_out_of_place(spoilt: Spoilt, asked: int) -> None:
    judge(spoilt.sources, (), asked)


@fuzz(1500, st.deferred(lambda: misvalued(cut())), NUMBER)
def test_values_and_keys_out_of_place_in_real_rows(spoilt: Spoilt, asked: int) -> None:
    judge(spoilt.sources, (), asked)


@fuzz(2500, st.deferred(lambda: garbled(toy())), NUMBER)
def test_bytes_out_of_place(spoilt: Spoilt, asked: int) -> None:
    judge(spoilt.sources, (), asked)


@fuzz(1000, st.deferred(lambda: misvalued(site())), NUMBER)
def test_overlays_with_values_out_of_place(spoilt: Spoilt, asked: int) -> None:
    judge(spoilt.sources, OVERLAYS, asked)


@fuzz(500, st.deferred(lambda: garbled(site())), NUMBER)
def test_overlays_with_bytes_out_of_place(spoilt: Spoilt, asked: int) -> None:
    judge(spoilt.sources, OVERLAYS, asked)


def test_what_is_spoilt_was_sound() -> None:
    """The undamaged matrices are valid. Otherwise the refusals would prove nothing."""
    for seed, overlays in ((toy(), ()), (cut(), ()), (site(), OVERLAYS)):
        found = compile_matrix(seed.sources, list(overlays))
        assert seed is cut() or checks.check(found) == []
        assert same(found, World(seed.sources, overlays))
        assert sum(map(len, seed.sources.values())) < 32_000
