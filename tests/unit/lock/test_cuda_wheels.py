"""Bases whose CUDA comes as wheels, for frameworks that look for CUDA in the system: the choice, the lock, the rendering.

The wheels are of CUDA 11.4. They also serve builds for 11.0, by minor-version compatibility.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import render_locks as toys
from cuda_rows import BROUGHT, COMPILED, ROWS
from lock_universe import Universe
from overlay_files import HEAD, TOY_ENTRY, overlay
from test_render import TEMPLATES

from envbuild import codec
from envbuild.errors import ConflictError, InvalidInputError
from envbuild.lock import making
from envbuild.lock.checking import check
from envbuild.lock.cuda_mismatch import other_cuda
from envbuild.matrix import checks
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.model.environment import Base, CudaWheel, Environment, ToolkitLink
from envbuild.model.lock import BaseLock, Lock
from envbuild.render import render, skeleton
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import Resolution, resolve


def matrix(folder: Path, *changes: tuple[str, str]) -> Matrix:
    text = ROWS
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return load_files(TOY_ENTRY, [overlay(folder, HEAD + text), overlay(folder, HEAD + BROUGHT, "bolt.yaml")])


def answer(folder: Path, *words: str, **options: str) -> Resolution:
    toy = matrix(folder)
    return resolve(toy, parse(words, matrix=toy, **options))  # type: ignore[arg-type]


def decided(folder: Path, *words: str, **options: str) -> Environment:
    return answer(folder, *words, **options).environment


def test_the_rows_are_valid(tmp_path: Path) -> None:
    assert checks.check(matrix(tmp_path)) == []


def test_a_base_with_exactly_the_frameworks_cuda_comes_first(tmp_path: Path) -> None:
    usual = decided(tmp_path, "anvil-1")
    assert (usual.name, usual.base.provider, usual.base.wheels) == ("anvil-1.0.0-cuda11.0-py36-marble10", "apt", ())
    assert usual.base.other_providers == ("wheels", "local")
    assert usual.driver_min == "450.51.06"


def test_wheels_are_the_default_where_no_other_base_is(tmp_path: Path) -> None:
    made = decided(tmp_path, "anvil-1", system="marble12")
    assert (made.name, made.base.provider, made.base.image) == ("anvil-1.0.0-cuda11.0-py36-marble12", "wheels", "marble:12")
    assert made.base.is_default


def test_exact_wheels_beside_a_better_python_are_the_default(tmp_path: Path) -> None:
    """On its own system the image stays the default, so that names of earlier locks keep their meaning."""
    assert decided(tmp_path, "anvil-2").name == "anvil-2.0.0-cuda11.4-py311-marble12"
    image = decided(tmp_path, "anvil-2.0.0-cuda11.4-py36-marble10")
    assert (image.base.provider, image.base.is_default) == ("tag", True)


def test_asking_for_wheels_puts_them_into_the_name(tmp_path: Path) -> None:
    made = decided(tmp_path, "anvil-1", base="wheels", system="marble10")
    assert made.name == "anvil-1.0.0-cuda11.0-py36-marble10-wheels"
    assert decided(tmp_path, made.name) == made
    assert [wheel.requirement for wheel in made.base.wheels] == [
        "vendor-runtime-cu11==11.4.1", "vendor-nvcc-cu11==11.4.2", "vendor-cudnn-cu11==8.6.0.1",
    ]  # fmt: skip
    assert (made.cuda, made.cudnn, made.base.cuda) == ("11.0", "8.6.0", "11.4")
    assert made.driver_min == "470.42.01"  # that of the libraries
    assert recheck(matrix(tmp_path), made) == []


def test_the_reason_names_minor_version_compatibility(tmp_path: Path) -> None:
    reasons = {reason.choice.split()[0]: reason.because for reason in answer(tmp_path, "anvil-1", base="wheels").reasons}
    said = "CUDA 11.4 from NVIDIA's wheels; programs that are built for CUDA 11.0 run on these libraries by minor-version"
    assert said in reasons["base"]
    exact = {reason.choice.split()[0]: reason.because for reason in answer(tmp_path, "anvil-2").reasons}
    assert "CUDA 11.4 from NVIDIA's wheels" in exact["base"]
    assert "minor-version" not in exact["base"]


def test_an_old_gpu_gets_the_older_library(tmp_path: Path) -> None:
    made = decided(tmp_path, "anvil-2", gpu="sm_35")
    assert (made.name, made.cudnn) == ("anvil-2.0.0-cuda11.4-py311-marble12-cudnn8.0.5", "8.0.5")


@pytest.mark.parametrize(
    ("changes", "words", "reason"),
    [
        ((), ("anvil-1", "bolt-1"), "files at the same paths as the wheels of bolt"),
        ((COMPILED,), ("anvil-1",), "the wheels have no nvcc"),
        ((('requirement: "vendor-cudnn-cu11==8.0.5.39", folder', 'status: known-bad, note: "x", requirement: "a==1", folder'),
          ('below: "9"', 'below: "8.5"')), ("anvil-1",), "has no wheel of cudnn >=8.0,<8.5 for CUDA 11.4"),
        ((("wheels: eleven, preference: 5", 'wheels: eleven, status: known-bad, note: "lacks libsolver.so.10"'),), ("anvil-1",),
         "known not to work: lacks libsolver.so.10"),
    ],
)  # fmt: skip
def test_what_wheels_cannot_serve_is_refused_with_the_reason(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], words: tuple[str, ...], reason: str
) -> None:
    toy = matrix(tmp_path, *changes)
    with pytest.raises(ConflictError) as caught:
        resolve(toy, parse(words, matrix=toy, base="wheels"))
    assert any(reason in conflict.reason for conflict in caught.value.conflicts), caught.value.conflicts


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("wheels: eleven", "wheels: twelve", "`wheel_sets` has no row twelve"),
        ("vendor-nvcc-cu11==11.4.2", "vendor-nvcc-cu11>=11.4", "requirement"),
        ("folder: vendor/runtime/lib", "folder: ../lib", "folder"),
        ("{bin: vendor/nvcc/bin}", "{bin: /usr/bin}", "bin"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        matrix(tmp_path, (old, new))
    assert any(problem in each.message for each in caught.value.problems), caught.value.problems


# --- the lock ----------------------------------------------------------------------------------------------------------


def locked(environment: Environment, folder: Path) -> Lock:
    """The wheels of the index are younger than the framework, as most of NVIDIA's are."""
    index = Universe()
    index.add("anvil-1.0.0-py3-none-any.whl", day="2020-03-13")
    for name, version in (("runtime", "11.4.1"), ("runtime", "11.5.0"), ("nvcc", "11.4.2"), ("cudnn", "8.6.0.1")):
        index.add(f"vendor_{name}_cu11-{version}-py3-none-any.whl", day="2022-10-03")
    base = BaseLock(image=environment.base.image, digest="sha256:" + "1" * 64, bootstrap=None)
    inputs = making.LockInputs(recipe_requirements={}, index=index, pin_base=lambda _: base, downloads=folder / "downloads")
    return making.make(environment, inputs)


def test_the_lock_pins_the_wheels_of_the_base(tmp_path: Path) -> None:
    environment = decided(tmp_path, "anvil-1", system="marble12")
    made = locked(environment, tmp_path)
    assert {each.name: each.version for each in made.prefixes[0].artifacts} == {
        "anvil": "1.0.0", "vendor-runtime-cu11": "11.4.1", "vendor-nvcc-cu11": "11.4.2", "vendor-cudnn-cu11": "8.6.0.1",
    }  # fmt: skip
    assert codec.decode(Lock, codec.encode(made), "lock") == made
    assert not [problem for problem in check(made, [], today=environment) if "vendor" in problem.message]
    without = replace(made.prefixes[0], artifacts=made.prefixes[0].artifacts[:2])
    spoilt = check(replace(made, prefixes=(without,)), [], today=environment)
    assert any("the base" in problem.message and "vendor-" in problem.message for problem in spoilt)


def test_a_lock_outlives_a_newer_default_library(tmp_path: Path) -> None:
    """The default of cuDNN may change: the locked one is still accepted. Other wheels of CUDA make the lock stale."""
    environment = decided(tmp_path, "anvil-1", system="marble12")
    made = locked(environment, tmp_path)
    wheels = environment.base.wheels
    newer = replace(wheels[-1], requirement="vendor-cudnn-cu11==8.7.0.1")
    preferred = replace(environment, cudnn="8.7.0", base=replace(environment.base, wheels=(*wheels[:-1], newer)))
    assert not [problem for problem in check(made, [], today=preferred) if "wheels" in problem.message]
    other = replace(wheels[0], requirement="vendor-runtime-cu11==11.5.0")
    changed = replace(environment, base=replace(environment.base, wheels=(other, *wheels[1:])))
    assert [problem for problem in check(made, [], today=changed) if "wheels" in problem.message]
    both = replace(preferred, base=replace(preferred.base, wheels=(other, *wheels[1:-1], newer)))
    assert [problem for problem in check(made, [], today=both) if "wheels" in problem.message]
    repacked = replace(environment, base=replace(environment.base, wheels=(*wheels[:-1], newer)))  # the same cuDNN by its row
    assert [problem for problem in check(made, [], today=repacked) if "wheels" in problem.message]


# --- the rendering -----------------------------------------------------------------------------------------------------

WHEELS = (CudaWheel(requirement="vendor-a==1", folder="vendor/a/lib"), CudaWheel(requirement="vendor-b==2", folder=""))
LINKS = (ToolkitLink(name="bin", target="vendor/b/bin"), ToolkitLink(name="include", target="vendor/a/include"))


def with_wheels(lock: Lock, *names: str) -> Lock:
    """The lock upon a base with wheels; the frameworks with these names look for CUDA in the system."""
    base = Base(
        provider="wheels", image="toyos:12", is_default=True, repositories=(), packages=(), other_providers=(), wheels=WHEELS,
        toolkit=LINKS, cuda="11.4",
    )  # fmt: skip
    frameworks = tuple(
        replace(each, cuda_libraries="system" if each.name in names else "bundled") for each in lock.environment.frameworks
    )
    return replace(lock, environment=replace(lock.environment, base=base, cuda="11.0", frameworks=frameworks))


def test_the_image_finds_the_libraries_and_the_toolkit() -> None:
    lock = with_wheels(toys.cpu(), "alpha")
    text = render(lock, toys.RECIPES, TEMPLATES)["Dockerfile"]
    site = "/opt/env/lib/python3.11/site-packages"
    assert f'LD_LIBRARY_PATH="{site}/vendor/a/lib"' in text
    assert f"ln -s {site}/vendor/b/bin /usr/local/cuda/bin" in text
    assert f"ln -s {site}/vendor/a/include /usr/local/cuda/include" in text
    assert text.index("/usr/local/cuda/bin") < text.index("pip-install")
    assert "/usr/local/cuda/bin" in skeleton(lock, toys.RECIPES, TEMPLATES)  # such images can be composed


def test_a_folder_that_several_wheels_share_is_searched_once() -> None:
    shared = (*WHEELS, CudaWheel(requirement="vendor-c==3", folder="vendor/a/lib"))
    lock = with_wheels(toys.cpu(), "alpha")
    base = replace(lock.environment.base, wheels=shared)
    text = render(replace(lock, environment=replace(lock.environment, base=base)), toys.RECIPES, TEMPLATES)["Dockerfile"]
    assert text.count("site-packages/vendor/a/lib") == 1


def test_a_library_path_of_the_recipe_comes_after_the_wheels() -> None:
    recipes = {**toys.RECIPES, "alpha": replace(toys.RECIPES["alpha"], env={"LD_LIBRARY_PATH": "/opt/own/lib"})}
    text = render(with_wheels(toys.cpu(), "alpha"), recipes, TEMPLATES)["Dockerfile"]
    assert 'site-packages/vendor/a/lib:/opt/own/lib"' in text


def test_only_prefixes_with_such_a_framework_get_the_library_path() -> None:
    whole = toys.several()
    second = whole.environment.prefixes[1]
    files = render(with_wheels(whole, *second.frameworks), toys.RECIPES, TEMPLATES)
    path = whole.prefixes[1].path
    lines = files["prefixes"].splitlines()
    found = [number for number, line in enumerate(lines) if "LD_LIBRARY_PATH" in line]
    own = next(number for number, line in enumerate(lines) if line.startswith(f"{path} "))
    others = [number for number, line in enumerate(lines) if line.startswith("/") and number > own]
    assert len(found) == 1
    assert own < found[0] < min(others, default=len(lines))
    assert f"ln -s {path}/lib/python{second.python.version}/site-packages/vendor/b/bin" in files["Dockerfile"]


def test_libraries_of_a_later_minor_version_are_no_surprise() -> None:
    lock = with_wheels(toys.cpu(), "alpha")
    held = (*lock.prefixes[0].artifacts, toys.artifact("nvidia-cuda-runtime-cu11", "11.4.1"))
    made = replace(lock, prefixes=(replace(lock.prefixes[0], artifacts=held),))
    assert other_cuda(made) == ()
    exact = replace(made.environment, base=replace(made.environment.base, cuda=""))
    assert len(other_cuda(replace(made, environment=exact))) == 1
