"""What holds for every request, searched on the toy matrix and compared with a second resolver that shares no code."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild import matrix, resolve
from envbuild.errors import ConflictError, EnvbuildError, InvalidInputError
from envbuild.matrix.loader import compile_matrix, read_sources

TOY_ENTRY = Path(__file__).parent.parent / "golden" / "toy" / "matrix.yaml"
TOY = matrix.load_files(TOY_ENTRY)
RAW: dict[str, Any] = {}
for _file in [TOY_ENTRY, *sorted(TOY_ENTRY.parent.glob("matrix/*.yaml"))]:
    RAW.update(yaml.safe_load(_file.read_text()))
FRAMEWORKS = [yaml.safe_load(file.read_text()) for file in sorted(TOY_ENTRY.parent.glob("matrix/frameworks/*.yaml"))]

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
    """A request in parts; an empty part is free."""
    framework = draw(st.sampled_from(sorted(VERSIONS)))
    parts = {"version": VERSIONS[framework], "device": DEVICES, "python": PYTHONS, "system": SYSTEMS}
    parts |= {"base": BASES, "driver": DRIVERS, "gpu": GPUS}
    found = {"framework": framework}
    for name, values in parts.items():
        # Mostly free: with every part set hardly anything would resolve.
        found[name] = draw(st.sampled_from(values)) if draw(st.integers(0, 2)) == 0 else ""
    return found


def ask(wish: dict[str, str]) -> resolve.Request:
    text = "-".join(filter(None, (wish["framework"], wish["version"], wish["device"])))
    options = {name: wish[name] or None for name in ("python", "system", "base", "driver", "gpu")}
    return resolve.parse([text], matrix=TOY, **options)


def answer(wish: dict[str, str]) -> Any:
    try:
        return resolve.resolve(TOY, ask(wish))
    except ConflictError:
        return None


# --- the second resolver: plain loops over the plain YAML -------------------------------------------------------------


def number(text: str) -> list[int]:
    parts = [int(part) for part in text.split(".")]
    return parts + [0] * (5 - len(parts))


def builds(framework: dict[str, Any]) -> Any:
    for series in framework["series"]:
        for release in series["releases"]:
            for name in {**series["variants"], **release.get("variants", {})}:
                if name in release.get("without", []):
                    continue
                variant = {**series["variants"].get(name, {}), **release.get("variants", {}).get(name, {})}
                status = variant.get("status", release.get("status", "ok"))
                yield release["version"], variant, status


def library_fits(need: Any, version: str) -> bool:
    if isinstance(need, str):
        return number(need) == number(version)
    low, high = need.get("min", "0"), need.get("below", "999")
    return number(low) <= number(version) < number(high)


def places_of(variant: dict[str, Any]) -> Any:
    """(system, python, provider) of a build."""
    for system, python in itertools.product(RAW["systems"], variant["python"]):
        carried = python in [item["version"] for item in system["pythons"]]
        supplied = [item for row in RAW["pythons"] if row["version"] == python for item in row.get("from", [])]
        if not carried and not any(number(item["glibc"]) <= number(system["glibc"]) for item in supplied):
            continue
        if number(system["glibc"]) < number(variant["glibc"]):
            continue
        if variant["cuda_libraries"] == "none":
            yield system["name"], python, "distribution"
        elif variant["cuda_libraries"] != "system":
            yield system["name"], python, "wheels"
        else:
            cuda = next(row for row in RAW["cuda"] if row["version"] == variant["cuda"])
            for provider in cuda.get("providers", []):
                if provider.get("system") == system["name"] and has_libraries(variant, provider, system["name"]):
                    yield system["name"], python, provider["provider"]


def has_libraries(variant: dict[str, Any], provider: dict[str, Any], system: str) -> bool:
    for library in ("cudnn", "nccl"):
        need = variant.get(library)
        if need is None or (isinstance(need, dict) and need.get("from") == "bundled"):
            continue
        if provider["provider"] == "tag":
            if not library_fits(need, provider.get(library, "0")):
                return False
            continue
        rows = [row for row in RAW[library] if library_fits(need, row["version"])]
        rows = [row for row in rows if any((variant["cuda"] + ".").startswith(entry + ".") for entry in row["cuda"])]
        if provider["provider"] == "apt":
            rows = [row for row in rows if any(item["system"] == system for item in row.get("apt", []))]
        if not rows:
            return False
    return True


def runs_on(variant: dict[str, Any], driver: str, gpu: str) -> bool:
    if "cuda" not in variant:
        return not driver and not gpu
    cuda = next(row for row in RAW["cuda"] if row["version"] == variant["cuda"])
    old = bool(driver) and number(driver) < number(cuda["driver_min"])
    rules = [row for row in RAW["driver_rules"] if row["cuda_major"] == variant["cuda"].split(".")[0]]
    if old and not any(number(driver) >= number(row["driver_min"]) for row in rules):
        return False
    return not gpu or gpu_runs(variant, driver, gpu, old)


def gpu_runs(variant: dict[str, Any], driver: str, gpu: str, old_driver: bool) -> bool:
    row = next(row for row in RAW["architectures"] if gpu in row["capabilities"])
    if number(variant["cuda"]) > number(row.get("last_cuda", "999")):
        return False
    if driver and number(driver)[0] > number(row.get("last_driver_branch", "9999"))[0]:
        return False
    knowing = [int(item["branch"]) for item in RAW["drivers"] if number(item["max_cuda"]) >= number(row["first_cuda"])]
    if driver and knowing and number(driver)[0] < min(knowing):
        return False
    if any(gpu in bad["capabilities"] for bad in variant.get("bad_capabilities", [])):
        return False
    code = variant.get("capabilities")
    if code is None:
        return number(variant["cuda"])[0] >= number(row["first_cuda"])[0]
    native = any(number(gpu)[0] == number(item)[0] and number(gpu) >= number(item) for item in code["sass"])
    ptx = any(number(item) <= number(gpu) for item in code["ptx"])
    same_major = number(variant["cuda"])[0] >= number(row["first_cuda"])[0]
    return native or (ptx and same_major and not old_driver)


def solutions(wish: dict[str, str]) -> set[tuple[str, str, str, str, str]]:
    """Every (version, cuda, python, system, provider) that satisfies a wish."""
    framework = next(item for item in FRAMEWORKS if item["framework"]["short"] == wish["framework"])
    versions = [version for version, _, _ in builds(framework)]
    exact = wish["version"].count(".") == 2 and wish["version"] in versions
    device = "gpu" if wish["device"] != "cpu" and (wish["driver"] or wish["gpu"]) and not wish["device"] else wish["device"]
    found = set()
    for version, variant, status in builds(framework):
        matches = (
            version == wish["version"] if exact else (version + ".").startswith(wish["version"] + ".") or not wish["version"]
        )
        cuda = variant.get("cuda", "")
        if not matches or status == "known-bad" or (device == "cpu" and cuda) or (device not in ("", "cpu") and not cuda):
            continue
        if device.startswith("cuda") and not (cuda + ".").startswith(device[4:] + "."):
            continue
        if device != "cpu" and not runs_on(variant, wish["driver"], wish["gpu"]):
            continue
        for system, python, provider in places_of(variant):
            if wish["system"] not in ("", system) or wish["python"] not in ("", python):
                continue
            row = next((row for row in RAW["cuda"] if row["version"] == cuda), {})
            entries = [item for item in row.get("providers", []) if item["provider"] == provider and item["system"] == system]
            deleted = bool(entries) and all(item.get("status") == "base-deleted" for item in entries)
            if wish["base"] != provider if wish["base"] else deleted:
                continue
            found.add((version, cuda, python, system, provider))
    return found


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
def test_no_solution_is_newer_than_the_chosen_one(wish: dict[str, str]) -> None:
    from packaging.version import Version

    found, every = answer(wish), solutions(wish)
    if found:
        version, cuda, *_ = short(found)
        assert Version(version) == max(Version(other[0]) for other in every)
        assert bool(cuda) == any(other[1] for other in every if other[0] == version)
        if version != "3.1.0":  # which states a default
            assert cuda == max((other[1] for other in every if other[0] == version), key=lambda text: Version(text or "0"))


@common
@given(wishes())
def test_same_question_same_answer(wish: dict[str, str]) -> None:
    request = ask(wish)
    assert request == ask(wish)
    assert resolve.explain(TOY, request).resolution == answer(wish) == answer(wish)


@common
@given(wishes(), st.sampled_from(["version", "device", "python", "system", "base", "driver", "gpu"]))
def test_asking_for_less_never_loses_a_solution(wish: dict[str, str], part: str) -> None:
    # Beside a driver or a GPU, `cpu` is no narrowing: it says that these do not matter. Without it they ask for a GPU build.
    unasked = part == "device" and wish["device"] == "cpu" and (wish["driver"] or wish["gpu"])
    if answer(wish) and not unasked:
        assert answer({**wish, part: ""}), (wish, part)


@common
@given(wishes())
def test_the_name_says_it_all(wish: dict[str, str]) -> None:
    """Asking for a canonical name gives the same environment, and the matrix accepts what it decided."""
    if found := answer(wish):
        again = resolve.resolve(TOY, resolve.parse([found.environment.name], matrix=TOY))
        assert again.environment == found.environment
        assert resolve.refusals(TOY, found.environment) == []


@common
@given(wishes())
def test_a_refusal_names_rows_and_requests_that_work(wish: dict[str, str]) -> None:
    try:
        resolve.resolve(TOY, ask(wish))
    except ConflictError as error:
        assert error.conflicts
        assert all(conflict.row and conflict.reason and conflict.source for conflict in error.conflicts)
        assert len({alternative.name for alternative in error.alternatives}) == len(error.alternatives)
        for alternative in error.alternatives:
            hardware = {name: wish[name] or None for name in ("driver", "gpu")}
            if "needs driver" in alternative.changes:
                hardware["driver"] = None
            if "on a " in alternative.changes or "on another GPU" in alternative.changes:
                hardware["gpu"] = None
            request = resolve.parse([alternative.name], matrix=TOY, **hardware)
            assert resolve.resolve(TOY, request).environment.name == alternative.name
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
        request = resolve.parse([text], matrix=TOY, **options)
        resolve.resolve(TOY, request)
    except EnvbuildError as error:
        assert error.message


SOURCES = read_sources(TOY_ENTRY)


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, bytes]:
    """The toy matrix with some lines removed, repeated, swapped or garbled."""
    sources = {name: content.decode().splitlines() for name, content in SOURCES.items()}
    words = sorted({word for lines in sources.values() for line in lines for word in line.replace(",", " ").split()})
    for _ in range(draw(st.integers(1, 3))):
        lines = sources[draw(st.sampled_from(sorted(sources)))]
        if not lines:
            continue
        index = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["drop", "repeat", "swap", "word", "insert", "quote"]))
        if change == "drop":
            del lines[index]
        elif change == "repeat":
            lines.insert(index, lines[index])
        elif change == "swap":
            lines[index], lines[index - 1] = lines[index - 1], lines[index]
        elif change == "word":
            parts = lines[index].split(" ")
            parts[draw(st.integers(0, len(parts) - 1))] = draw(st.sampled_from(words))
            lines[index] = " ".join(parts)
        elif change == "insert":
            place = draw(st.integers(0, len(lines[index])))
            lines[index] = lines[index][:place] + draw(st.text(max_size=3)) + lines[index][place:]
        else:
            lines[index] = lines[index].replace('"', "")
    return {name: "\n".join(lines).encode("utf-8", "surrogatepass") for name, lines in sources.items()}


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_any_matrix_is_read_or_refused(sources: dict[str, bytes]) -> None:
    try:
        broken = compile_matrix(sources)
    except InvalidInputError as error:
        assert error.problems
        return
    matrix.check(broken)
    for text in ("wd-1.12", "wd", "gizmo-3.1-cuda12", "wd-1.12-cpu-py27", "wd-1.4"):
        try:
            request = resolve.parse([text], matrix=broken, driver="384.130" if text == "wd" else None)
            environment = resolve.resolve(broken, request).environment
            assert resolve.refusals(broken, environment) == []
        except EnvbuildError as error:
            assert error.message
    resolve.catalogue(broken)


def test_the_second_resolver_is_not_blind() -> None:
    """It finds what the toy matrix plainly says, so that agreeing with it means something."""
    free = dict.fromkeys(("version", "device", "python", "system", "base", "driver", "gpu"), "")
    every = solutions({**free, "framework": "wd"})
    assert ("1.12.3", "9.0", "3.5", "granite16.04", "apt") in every
    assert ("1.12.4", "9.0", "3.5", "granite16.04", "apt") not in every
    assert {solution[4] for solution in every} == {"apt", "distribution", "tag", "conda"}
