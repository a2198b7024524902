"""Bases whose CUDA comes from packages of a Debian release: the choice, the refusals, the rendering.

The toy distribution `marble12` has CUDA 11.4 in its component `quarry`. It also serves builds for CUDA 11.0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import render_locks as toys
from cuda_rows import BROUGHT, COMPILED, ROWS
from overlay_files import HEAD, PACKAGE_SETS, TOY_ENTRY, overlay
from test_render import TEMPLATES

from envbuild import codec
from envbuild.build_preparation import require_complete
from envbuild.errors import BuildError, ConflictError, InvalidInputError
from envbuild.lock.cuda_mismatch import other_cuda
from envbuild.matrix import checks
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.model.environment import Base, Environment
from envbuild.model.lock import Bootstrap, Lock
from envbuild.render import apt_plans, render
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import Resolution, resolve
from envbuild.resolve.search.lookup import lookup_of
from envbuild.resolve.search.placement import offers_on

ON_MARBLE = "      - {provider: debian, package_set: marble12}\n"
WITH_WHEELS = "      - {provider: wheels, wheels: eleven, preference: 5}\n"
NO_LIBRARIES = (', cudnn: {min: "8.0", below: "9"},\n            glibc', ",\n            glibc")
ADD_ON = """\
framework: {name: rivet, title: Rivet, short: rivet, aliases: [rivet], recipe: rivet}
series:
  - series: "1.0"
    package: rivet
    upon: {bolt: "1.0.0"}
    optional_nvcc: true
    releases:
      - {version: "1.0.0", released: "2020-03-13"}
"""
WITH_NCCL = (
    'glibc: "2.17", capabilities: {sass: ["8.0"]}',
    'glibc: "2.17", nccl: {prefer: "2.9.9", from: wheels}, capabilities: {sass: ["8.0"]}',
)


def matrix(folder: Path, *changes: tuple[str, str], brought: str = BROUGHT, add_on: str = ADD_ON) -> Matrix:
    text = PACKAGE_SETS + ROWS.replace(WITH_WHEELS, WITH_WHEELS + ON_MARBLE)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    files = {"anvil.yaml": text, "bolt.yaml": brought, "rivet.yaml": add_on}
    return load_files(TOY_ENTRY, [overlay(folder, HEAD + rows, name) for name, rows in files.items()])


def answer(toy: Matrix, *words: str, **options: str) -> Resolution:
    return resolve(toy, parse(words, matrix=toy, **options))  # type: ignore[arg-type]


def decided(toy: Matrix, *words: str, **options: str) -> Environment:
    return answer(toy, *words, **options).environment


def refusal(toy: Matrix, *words: str, **options: str) -> list[str]:
    with pytest.raises(ConflictError) as caught:
        answer(toy, *words, **options)
    return [conflict.reason for conflict in caught.value.conflicts]


def objections(toy: Matrix, name: str, changes: dict[str, str] | None = None) -> dict[str, str]:
    """Why each provider cannot serve the oldest build of a framework on marble12."""
    table = next(table for table in toy.frameworks if table.name == name)
    variant = table.releases[-1].variants[0]._replace(**changes or {})  # type: ignore[arg-type]
    system = next(row for row in toy.systems if row.name == "marble12")
    return {provider: item.conflict.reason for provider, item in offers_on(lookup_of(toy), variant, system, "")[1].items()}


def test_the_rows_are_valid(tmp_path: Path) -> None:
    assert checks.check(matrix(tmp_path)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("package_set: marble12", "package_set: marble13", "`package_sets` has no row marble13"),
        ("components: [quarry]", "components: []", "components"),
        ("    system: marble12\n    cuda", "    cuda", "system"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        matrix(tmp_path, (old, new))
    assert any(problem in each.message for each in caught.value.problems), caught.value.problems


@pytest.mark.parametrize("cuda", ["11.3", "12.0"])
def test_libraries_of_an_older_minor_or_another_major_version_are_a_problem(tmp_path: Path, cuda: str) -> None:
    changed = matrix(tmp_path, (PACKAGE_SETS.splitlines()[3], f'    cuda: "{cuda}"'))
    said = [problem.message for problem in checks.check(changed)]
    assert any(f"CUDA 11.4 from provider debian provides CUDA {cuda}" in message for message in said), said


def test_it_is_never_the_default_beside_another_base(tmp_path: Path) -> None:
    """Even with exactly the framework's CUDA, where the wheels have a later one: names keep their meaning."""
    toy = matrix(tmp_path)
    assert decided(toy, "anvil-1", system="marble12").base.provider == "wheels"
    assert decided(toy, "anvil-2").base.provider == "wheels"
    assert decided(toy, "anvil-2").base.other_providers == ("debian", "local")


def test_asking_for_it_puts_it_into_the_name(tmp_path: Path) -> None:
    toy = matrix(tmp_path, NO_LIBRARIES)
    made = decided(toy, "anvil-1", base="debian")
    assert made.name == "anvil-1.0.0-cuda11.0-py36-marble12-debian"
    assert decided(toy, made.name) == made
    assert (made.base.image, made.base.cuda, made.driver_min) == ("marble:12", "11.4", "470.42.01")
    assert (made.base.apt, made.base.components, made.base.build_apt) == (("libcudart11", "libcublas11"), ("quarry",), ())
    assert made.base.wheels == made.base.packages == made.base.repositories == ()
    assert recheck(toy, made) == []
    assert codec.decode(Environment, codec.encode(made), "environment") == made


def test_the_reason_names_components_and_minor_version_compatibility(tmp_path: Path) -> None:
    toy = matrix(tmp_path)
    reasons = {reason.choice.split()[0]: reason.because for reason in answer(toy, "anvil-1", base="debian").reasons}
    assert "with CUDA 11.4 from Debian's own packages (quarry); programs that are built for CUDA 11.0 run" in reasons["base"]
    exact = {reason.choice.split()[0]: reason.because for reason in answer(toy, "anvil-2", base="debian").reasons}
    assert "minor-version" not in exact["base"]


def test_cudnn_comes_as_a_wheel(tmp_path: Path) -> None:
    made = decided(matrix(tmp_path), "anvil-2", base="debian")
    assert ([wheel.requirement for wheel in made.base.wheels], made.cudnn) == (["vendor-cudnn-cu11==8.6.0.1"], "8.6.0")
    assert made.base.apt == ("libcudart11", "libcublas11")


def test_packages_that_bring_their_own_cuda_can_be_beside_it(tmp_path: Path) -> None:
    """Unlike wheels of CUDA for the system, Debian's packages have no file at the same path as another wheel."""
    toy = matrix(tmp_path, NO_LIBRARIES)
    assert decided(toy, "anvil-1", "bolt-1", base="debian").base.apt == ("libcudart11", "libcublas11")
    beside = ("anvil", {"beside_wheels": "bolt"})
    assert objections(matrix(tmp_path), *beside)["debian"].endswith(
        "cudnn from wheels that install files at the same paths as the wheels of bolt"
    )


def test_the_compiler_is_for_the_build_only(tmp_path: Path) -> None:
    made = decided(matrix(tmp_path, COMPILED, NO_LIBRARIES), "anvil-1", base="debian")
    assert (made.base.build_apt, made.frameworks[0].nvcc) == (("cuda-toolkit",), True)


def test_what_it_cannot_serve_is_refused_with_the_reason(tmp_path: Path) -> None:
    (reason,) = refusal(matrix(tmp_path), "bolt-1", base="debian")
    assert reason == "installs CUDA into the system, but bolt (gpu) has CUDA in its own packages"
    compiled = objections(matrix(tmp_path, COMPILED), "anvil")
    assert compiled["debian"] == "has no wheel of cudnn >=8.0,<9 with its headers for CUDA 11.4"
    bad = (ON_MARBLE, ON_MARBLE.replace("marble12}", 'marble12, status: known-bad, note: "lacks libsolver.so.10"}'))
    assert any(
        "known not to work: lacks libsolver.so.10" in each for each in refusal(matrix(tmp_path, bad), "anvil-1", base="debian")
    )


def test_an_add_on_uses_the_compiler_where_the_base_has_one(tmp_path: Path) -> None:
    toy = matrix(tmp_path, brought=BROUGHT.replace(*WITH_NCCL))
    usual = decided(toy, "rivet-1", system="marble12")
    assert (usual.base.provider, usual.frameworks[-1].nvcc, usual.base.other_providers[0]) == ("wheels", False, "debian")
    made = decided(toy, "rivet-1", base="debian")
    assert (made.base.build_apt, made.base.apt, made.base.cuda) == (("cuda-toolkit",), (), "11.4")
    assert {each.name: each.nvcc for each in made.frameworks}["rivet"]
    found = answer(toy, "rivet-1", base="debian")
    reasons = {reason.choice.split()[0]: reason.because for reason in found.reasons}
    assert "nothing of it stays in the image" in reasons["base"]
    told = answer_json(found, [])
    assert (told["cuda"], told["base"]["compiler_cuda"], "cuda" in told["base"]) == (made.cuda, "11.4", False)
    assert reasons["driver"].startswith("GPU code is compiled with CUDA 11.4")
    assert recheck(toy, made) == []
    (without,) = refusal(matrix(tmp_path), "rivet-1", base="debian")
    assert "no wheel of NCCL; to compile, the headers in that wheel are needed" in without


NEEDS_NVCC = ADD_ON.replace("optional_nvcc", "nvcc")


def test_an_add_on_that_needs_the_compiler_gets_the_base_that_has_one(tmp_path: Path) -> None:
    """It needs no NCCL. CUDA's libraries stay those of the base framework's packages."""
    toy = matrix(tmp_path, add_on=NEEDS_NVCC)
    made = decided(toy, "rivet-1")
    assert (made.name, made.base.provider) == ("rivet-1.0.0-cuda11.0-py36-marble12", "debian")
    assert (made.base.build_apt, made.base.apt, made.base.cuda) == (("cuda-toolkit",), (), "11.4")
    assert {each.name: each.nvcc for each in made.frameworks}["rivet"]
    assert recheck(toy, made) == []
    assert checks.check(toy) == []


def test_an_add_on_that_needs_the_compiler_is_refused_where_there_is_none(tmp_path: Path) -> None:
    toy = matrix(tmp_path, add_on=NEEDS_NVCC)
    assert any("is compiled by nvcc" in each for each in refusal(toy, "rivet-1", base="wheels"))
    without = matrix(tmp_path, ("    build_packages: [cuda-toolkit]\n", ""), add_on=NEEDS_NVCC)
    assert any("nvcc" in each for each in refusal(without, "rivet-1"))
    assert any("rivet" in str(each) and "nvcc" in each.message for each in checks.check(without))


NCCL_ROWS = """\
nccl:
  - version: "2.9.9"
    cuda: ["11"]
    wheels: [{cuda: "11", requirement: "vendor-nccl-cu11==2.9.9", folder: vendor/nccl/lib}]
cudnn:
"""
SYSTEM = 'cuda: "11.0", cuda_libraries: system,'
INSIDE = (SYSTEM, f'{SYSTEM} nccl: {{prefer: "2.9.9", from: bundled}},')
ON_ANVIL = ("upon: {bolt:", "upon: {anvil:")


def with_add_on(folder: Path, *changes: tuple[str, str]) -> Matrix:
    """The toy matrix with Rivet based on Anvil, which looks for CUDA in the system and has NCCL inside its binary."""
    return matrix(folder, INSIDE, ("cudnn:\n", NCCL_ROWS), *changes, add_on=ADD_ON.replace(*ON_ANVIL))


def test_an_add_on_gets_the_wheel_of_the_nccl_that_is_inside_its_base_framework(tmp_path: Path) -> None:
    toy = with_add_on(tmp_path)
    made = decided(toy, "rivet-1", base="debian")
    assert [wheel.requirement for wheel in made.base.wheels] == ["vendor-cudnn-cu11==8.6.0.1", "vendor-nccl-cu11==2.9.9"]
    assert (made.base.build_apt, made.nccl) == (("cuda-toolkit",), "2.9.9")
    assert {each.name: each.nvcc for each in made.frameworks} == {"rivet": True}
    reasons = {reason.choice.split()[0]: reason.because for reason in answer(toy, "rivet-1", base="debian").reasons}
    assert "the same release is installed as a wheel" in reasons["nccl"]
    assert "and nvcc to compile GPU code" in reasons["base"]
    assert recheck(toy, made) == []


def test_nobody_else_gets_this_wheel(tmp_path: Path) -> None:
    """Neither the base framework alone, nor the add-on on a base without nvcc."""
    toy = with_add_on(tmp_path)
    for made in (decided(toy, "anvil-1", base="debian"), decided(toy, "rivet-1", base="wheels", system="marble12")):
        assert not any("nccl" in wheel.requirement for wheel in made.base.wheels), made.base.wheels
        assert (made.base.build_apt, [each.nvcc for each in made.frameworks]) == ((), [False])


@pytest.mark.parametrize(
    "change",
    [('"2.9.9"\n', '"2.9.8"\n'), ("vendor/nccl/lib}", 'vendor/nccl/lib, status: known-bad, note: "bad"}')],
)
def test_without_a_wheel_of_this_release_the_add_on_has_no_gpu_code(tmp_path: Path, change: tuple[str, str]) -> None:
    toy = with_add_on(tmp_path, change)
    made = decided(toy, "rivet-1", base="debian")
    assert (made.base.build_apt, made.frameworks[0].nvcc, len(made.base.wheels)) == ((), False, 1)


# --- the rendering -----------------------------------------------------------------------------------------------------


def with_packages(lock: Lock, **more: object) -> Lock:
    base = Base(
        provider="debian", image="toyos:12", is_default=False, repositories=(), packages=(), other_providers=(),
        apt=("libcudart11", "libcublas11"), components=("quarry",), cuda="11.4",
    )  # fmt: skip
    frameworks = tuple(replace(each, cuda_libraries="system") for each in lock.environment.frameworks)
    changed = replace(lock.environment, base=replace(base, **more), cuda="11.0", frameworks=frameworks)  # type: ignore[arg-type]
    return replace(lock, environment=changed)


def test_the_libraries_have_a_layer_of_their_own() -> None:
    text = render(with_packages(toys.cpu()), toys.RECIPES, TEMPLATES)["Dockerfile"]
    stage = text[text.index("FROM python AS cuda") :].split("FROM ")[1]
    assert "apt-install libcudart11 libcublas11" in stage
    assert text.index("libcublas11") < text.index("pip-install")


def test_the_compiler_is_in_the_build_stage_alone() -> None:
    source = {"repository": "https://example.org/a", "revision": "a" * 40}
    made = with_packages(toys.cpu(), build_apt=("cuda-toolkit",))
    frameworks = tuple(replace(each, nvcc=True, options=source) for each in made.environment.frameworks)
    base = replace(made.base, bootstrap=Bootstrap(suite="marble", architecture="amd64", variant="minbase", packages=()))
    lock = replace(made, base=base, environment=replace(made.environment, frameworks=frameworks))
    recipes = {name: replace(recipe, builds=True) for name, recipe in toys.RECIPES.items()}
    templates = {**TEMPLATES, **{f"recipes/{name}/build.j2": "{{ m.run() }}\n    make" for name in recipes}}
    plans = {plan.name: plan for plan in apt_plans(lock, recipes, templates)}
    assert [plan.build_only for plan in plans.values() if "cuda-toolkit" in plan.asked] == [True]
    text = render(replace(lock, base=made.base), recipes, templates)["Dockerfile"]
    assert text.index("apt-install cuda-toolkit") < text.index("CXX=cuda-g++") < text.index("grep -F 'release 11.4,'")


def test_the_compiler_alone_says_nothing_about_the_libraries() -> None:
    lock = with_packages(toys.cpu(), apt=())
    held = (*lock.prefixes[0].artifacts, toys.artifact("nvidia-cuda-runtime-cu11", "11.0.1"))
    assert other_cuda(replace(lock, prefixes=(replace(lock.prefixes[0], artifacts=held),))) == ()


def test_without_pinned_packages_nothing_is_built() -> None:
    """The sources of a pulled image do not have these components."""
    tools = (toys.artifact("uv", "0.9.2"),)
    pulled = replace(toys.cpu(), tools=tools)
    require_complete(pulled)
    with pytest.raises(BuildError, match="does not pin the Debian packages") as caught:
        require_complete(replace(with_packages(pulled), tools=tools))
    assert caught.value.code == "incomplete-lock"
