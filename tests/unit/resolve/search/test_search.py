"""Properties of all requests, tested on the toy matrix and compared with a second resolver that shares no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import brute_joint
from brute_force import Judge, Place, Wish, number
from brute_world import Build, World
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from envbuild.errors import ConflictError, EnvbuildError
from envbuild.matrix.reading.loader import load_files
from envbuild.resolve.explanation import explain
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TOY_ENTRY = Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml"
TOY = load_files(TOY_ENTRY)
JUDGE = Judge(World.read(TOY_ENTRY))

VERSIONS = {
    "wd": ["", "1", "1.4", "1.12", "1.12.0", "1.12.2", "1.12.4", "2.0", "2.0.0", "2.5"],
    "gizmo": ["", "3", "3.0", "3.1", "3.2"],
}
DEVICES = ["", "cpu", "gpu", "cuda8", "cuda9.0", "cuda11", "cuda12", "cuda12.8"]
PYTHONS = ["", "2.7", "3.4", "3.5", "3.6", "3.11", "3.12"]
SYSTEMS = ["", "marble12", "marble10", "granite16.04"]
BASES = ["", "apt", "tag", "conda", "wheels", "distribution"]
DRIVERS = [
    "",
    "375.26",
    "384.69",
    "384.130",
    "450.51.05",
    "450.80.02",
    "470.42.01",
    "525.53",
    "525.60.13",
    "550.54.14",
    "580.65",
]
GPUS = ["", "3.7", "6.0", "6.1", "7.5", "8.6", "12.0"]


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, str]:
    """A request in parts. An empty part is free."""
    framework = draw(st.sampled_from(sorted(VERSIONS)))
    parts = {"version": VERSIONS[framework], "device": DEVICES, "python": PYTHONS, "system": SYSTEMS}
    parts |= {"base": BASES, "driver": DRIVERS, "gpu": GPUS}
    found = {"framework": framework}
    for name, values in parts.items():
        # Most parts are free, because with every part set hardly any request could be resolved.
        found[name] = draw(st.sampled_from(values)) if draw(st.integers(0, 2)) == 0 else ""
    return found


def ask(wish: dict[str, str]) -> Request:
    text = "-".join(filter(None, (wish["framework"], wish["version"], wish["device"])))
    options = {name: wish[name] or None for name in ("python", "system", "base", "driver", "gpu")}
    return parse([text], matrix=TOY, **options)


def answer(wish: dict[str, str]) -> Any:
    try:
        return resolve(TOY, ask(wish))
    except ConflictError:
        return None


def chosen_from(wish: dict[str, str]) -> list[tuple[Build, Place]]:
    """Every build and place that satisfies a wish, found by a second reader of the plain YAML."""
    framework = next(name for name, head in JUDGE.world.heads.items() if head["short"] == wish["framework"])
    version, device = wish["version"], wish["device"]
    whole = version.count(".") == 2 and any(build.version == version for build in JUDGE.world.builds[framework])
    clauses = f"==={version}" if whole else f"=={version}" if version else ""
    cuda = f"=={device[4:]}" if device.startswith("cuda") else ""
    free = not device and not wish["driver"] and not wish["gpu"]
    asked = Wish(
        frameworks=((framework, clauses, ""),),
        device="cpu" if device == "cpu" else "" if free else "gpu",
        cuda=cuda,
        python=f"=={wish['python']}" if wish["python"] else "",
        systems=(wish["system"],) if wish["system"] else (),
        base=wish["base"],
        driver=wish["driver"],
        gpus=(wish["gpu"],) if wish["gpu"] else (),
    )
    return [(build, place) for (build,), place in brute_joint.solutions(JUDGE, asked)]


def solutions(wish: dict[str, str]) -> set[tuple[str, str, str, str, str]]:
    """Every (version, cuda, python, system, provider) that satisfies a wish."""
    found = chosen_from(wish)
    return {(build.version, build.cuda, place.python, place.system, place.provider) for build, place in found}


def code_is_native(build: Build, gpu: str) -> bool:
    """Whether a build has native code for the GPU: for its capability or a lower one of the same major version."""
    sass = (build.row.get("capabilities") or {}).get("sass", [])
    return any(number(entry)[0] == number(gpu)[0] and number(entry) <= number(gpu) for entry in sass)


def is_narrowed(build: Build) -> bool:
    """Whether a release has native code for fewer than half of the capabilities of an earlier patch release."""
    builds = JUDGE.world.builds[build.framework]
    ours = [other for other in builds if other.version == build.version and other.cuda]
    minor = build.version.split(".")[:2]
    patches = [other for other in builds if other.version.split(".")[:2] == minor]
    earlier = [other for other in patches if Version(other.version) < Version(build.version)]
    for one, other in ((one, other) for one in ours for other in earlier if (one.name, one.cuda) == (other.name, other.cuda)):
        theirs = (other.row.get("capabilities") or {}).get("sass", [])
        known = (one.row.get("capabilities") or {}).get("sass", [])
        if known and sum(code_is_native(one, entry) for entry in theirs) < len(theirs) / 2:
            return True
    return False


def rank(build: Build, wish: dict[str, str]) -> tuple[object, ...]:
    """The rank of a build; the highest is chosen.

    If the request names a GPU, builds with native code for it come first, and of these the builds for a CUDA that supports the
    GPU. Then come the newest minor version, its patches that are not narrowed, and the newest patch.
    """
    gpu = wish["gpu"] if build.cuda else ""
    rows = [row for row in JUDGE.world.tables["architectures"].values() if gpu in row["capabilities"]]
    native = bool(gpu) and code_is_native(build, gpu)
    knows = native and not any(number(build.cuda) < number(row["first_cuda"]) for row in rows)
    narrowed = wish["device"] != "cpu" and is_narrowed(build)
    version = Version(build.version)
    return native, knows, version.release[:2], not narrowed, version


def short(resolution: Any) -> tuple[str, str, str, str, str]:
    environment = resolution.environment
    return (
        environment.frameworks[0].version,
        environment.cuda or "",
        environment.python.version,
        environment.system.name,
        environment.base.provider,
    )


common = settings(max_examples=300, deadline=None, derandomize=True)


@common
@given(wishes())
def test_it_finds_a_solution_exactly_where_one_exists(wish: dict[str, str]) -> None:
    found, every = answer(wish), solutions(wish)
    assert (short(found) in every) if found else (not every), (wish, every)


@common
@given(wishes())
def test_no_solution_is_better_than_the_chosen_one(wish: dict[str, str]) -> None:
    found, every = answer(wish), [build for build, _ in chosen_from(wish)]
    if found:
        version, cuda, *_ = short(found)
        best = max(every, key=lambda build: rank(build, wish))
        assert version == best.version
        same = [build for build in every if build.version == version and rank(build, wish) == rank(best, wish)]
        assert bool(cuda) == any(build.cuda for build in same)
        defaults = [build for build in same if build.row.get("default")]
        assert cuda == max((build.cuda for build in defaults or same), key=lambda text: number(text or "0"))


@common
@given(wishes())
def test_same_question_same_answer(wish: dict[str, str]) -> None:
    request = ask(wish)
    assert request == ask(wish)
    assert explain(TOY, request).resolution == answer(wish) == answer(wish)


@common
@given(wishes(), st.sampled_from(["version", "device", "python", "system", "base", "driver", "gpu"]))
def test_asking_for_less_never_loses_a_solution(wish: dict[str, str], part: str) -> None:
    # With a driver or GPU, `cpu` is no narrower request: without it the request asks for a GPU build.
    unasked = part == "device" and wish["device"] == "cpu" and (wish["driver"] or wish["gpu"])
    if answer(wish) and not unasked:
        assert answer({**wish, part: ""}), (wish, part)


@common
@given(wishes())
def test_the_name_says_it_all(wish: dict[str, str]) -> None:
    """A request with the canonical name gives the same environment, and the recheck accepts the decision."""
    if found := answer(wish):
        again = resolve(TOY, parse([found.environment.name], matrix=TOY))
        assert again.environment == found.environment
        assert recheck(TOY, found.environment) == []


@common
@given(wishes())
def test_a_refusal_names_rows_and_requests_that_work(wish: dict[str, str]) -> None:
    try:
        resolve(TOY, ask(wish))
    except ConflictError as error:
        assert error.conflicts
        assert all(conflict.row and conflict.reason and conflict.source for conflict in error.conflicts)
        assert len({alternative.name for alternative in error.alternatives}) == len(error.alternatives)
        for alternative in error.alternatives:
            hardware = {name: wish[name] or None for name in ("driver", "gpu")}
            if "needs driver" in alternative.changes:
                hardware["driver"] = None
            if "on the GPU " in alternative.changes or "on another GPU" in alternative.changes:
                hardware["gpu"] = None
            request = parse([alternative.name], matrix=TOY, **hardware)
            assert resolve(TOY, request).environment.name == alternative.name
            assert alternative.changes


WORDS = [
    "wd",
    "widget",
    "gizmo",
    "1.12",
    "1",
    "cuda",
    "cuda9",
    "cu118",
    "cpu",
    "gpu",
    "py35",
    "py",
    "marble12",
    "tag",
    "local",
    "+",
]
WORDS += [
    "==",
    ">=",
    "~=",
    "!=",
    ",",
    "<",
    "=",
    "-",
    "--",
    " ",
    ".",
    "*",
    "cuda>=9",
    "python",
    "v1.12",
    "sm_61",
    "1.12.*",
    "é",
    "\0",
]


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=9).map("".join),
    st.dictionaries(
        st.sampled_from(["driver", "gpu", "python", "system", "base"]),
        st.one_of(st.sampled_from(WORDS), st.text(max_size=8), st.sampled_from(["3.5", "384.130", "sm_61", "my/image:1"])),
        max_size=2,
    ),
)
def test_any_text_is_answered_or_refused(text: str, options: dict[str, str]) -> None:
    try:
        request = parse([text], matrix=TOY, **options)
        resolve(TOY, request)
    except EnvbuildError as error:
        assert error.message


def test_the_second_resolver_is_not_blind() -> None:
    """It finds the known solutions of the toy matrix, so that its agreement means something."""
    free = dict.fromkeys(("version", "device", "python", "system", "base", "driver", "gpu"), "")
    every = solutions({**free, "framework": "wd"})
    assert ("1.12.3", "9.0", "3.5", "granite16.04", "apt") in every
    assert ("1.12.4", "9.0", "3.5", "granite16.04", "apt") not in every
    assert {solution[4] for solution in every} == {"apt", "distribution", "tag", "conda"}
