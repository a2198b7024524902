"""Frameworks that are compiled for GPUs: the contents of their build stage, and the error if a base cannot compile.

The image keeps nothing of the build stage.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import render_locks as toys
from lock_universe import Universe
from overlay_files import HEAD, TOY_ENTRY, overlay
from test_render import TEMPLATES
from verify_locks import lock as verified
from verify_locks import told

from envbuild import codec
from envbuild.errors import ConflictError, InvalidInputError
from envbuild.lock import making
from envbuild.lock.checking import check
from envbuild.matrix.reading.loader import load_files
from envbuild.model.environment import AptPackage, Base, Environment
from envbuild.model.lock import BaseLock, Lock, Missing
from envbuild.render import render
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.verify import comparisons
from envbuild.verify.findings import Findings

CUDA = """\
cuda:
  - version: "9.0"
    release: "9.0.176"
    driver_min: "384.81"
    capabilities: {min: "3.0", max: "7.2"}
    providers:
      - provider: apt
        system: granite16.04
        repositories: [cuda-granite, ml-granite]
        packages: [{name: cuda-cudart-9-0, version: "9.0.176-1", repository: cuda-granite}]
        build_packages: [{name: cuda-core-9-0, version: "9.0.176.3-1", repository: cuda-granite}]
        preference: 20
      - {provider: tag, system: granite16.04, image: "cuda:9.0-runtime", build_image: "cuda:9.0-devel", cudnn: "7.4.2"}
cudnn:
  - version: "7.4.2"
    cuda: ["9.0"]
    apt:
      - cuda: "9.0"
        system: granite16.04
        name: libcudnn7
        dev: libcudnn7-dev
        version: "7.4.2.24-1+cuda9.0"
        repository: ml-granite
"""
ANVIL = """\
framework: {name: anvil, title: Anvil, short: anvil, aliases: [anvil], recipe: anvil}
series:
  - series: "1.0"
    variants:
      gpu: {package: anvil, python: ["3.5"], cuda: "9.0", cuda_libraries: system, nvcc: true, cudnn: "7.4.2", glibc: "2.23",
            repository: "https://example.org/anvil", revision: eeebdab16155d34ff8f5f42137da7df4d1c7eab0}
    releases:
      - {version: "1.0.0", released: "2018-03-13"}
"""
CORE = AptPackage(name="cuda-core-9-0", version="9.0.176.3-1", repository="vendor-cuda", url="", sha256="")
HEADERS = AptPackage(name="libcudnn7-dev", version="7.4.2.24-1", repository="vendor-ml", url="", sha256="")


def decided(
    tmp_path: Path, words: str = "anvil-1.0", base: str | None = None, spoil: Callable[[str], str] = str
) -> Environment:
    toy = load_files(TOY_ENTRY, [overlay(tmp_path, spoil(HEAD + CUDA + ANVIL))])
    return resolve(toy, parse([words], matrix=toy, base=base)).environment


def test_only_what_is_compiled_gets_the_compiler_and_the_headers(tmp_path: Path) -> None:
    base = decided(tmp_path).base
    assert [f"{each.name}={each.version}" for each in base.build_packages] == [
        "cuda-core-9-0=9.0.176.3-1",
        "libcudnn7-dev=7.4.2.24-1+cuda9.0",
    ]
    assert {each.repository for each in base.build_packages} <= {each.name for each in base.repositories}
    other = decided(tmp_path, "wd-1.12-cuda9").base
    assert (other.packages[0].name, other.build_packages, other.build_image) == ("cuda-cudart-9-0", (), "")
    tag = decided(tmp_path, base="tag").base
    assert (tag.image, tag.build_image, tag.build_packages) == ("cuda:9.0-runtime", "cuda:9.0-devel", ())


@pytest.mark.parametrize(
    ("base", "was", "reason"),
    [
        ("apt", '        build_packages: [{name: cuda-core-9-0, version: "9.0.176.3-1", repository: cuda-granite}]\n', "nvcc"),
        ("tag", 'build_image: "cuda:9.0-devel", ', "no document says that it contains a compiler"),
        ("apt", "        dev: libcudnn7-dev\n", "has no package of cudnn 7.4.2 with its headers for CUDA 9.0"),
    ],
)
def test_without_compiler_or_headers_it_is_refused_with_the_reason(tmp_path: Path, base: str, was: str, reason: str) -> None:
    assert decided(tmp_path, base=base).base.provider == base
    with pytest.raises(ConflictError) as caught:
        decided(tmp_path, base=base, spoil=lambda text: text.replace(was, ""))
    assert any(reason in conflict.reason for conflict in caught.value.conflicts)


def test_an_image_of_ones_own_may_bring_the_compiler_itself(tmp_path: Path) -> None:
    base = decided(tmp_path, "anvil-1.0-py35-granite16.04", base="mine/devel:1").base
    assert (base.provider, base.build_packages) == ("local", ())


@pytest.mark.parametrize("spoil", ["repository: ", "cuda_libraries: system"])
def test_only_sources_with_the_images_cuda_are_compiled_by_nvcc(tmp_path: Path, spoil: str) -> None:
    spoilt = {
        "repository: ": lambda text: re.sub(
            r"\s+repository: \"https://example.org/anvil\", revision: \w+", " default: true", text
        ),
        "cuda_libraries: system": lambda text: text.replace(spoil, "cuda_libraries: bundled"),
    }[spoil]
    with pytest.raises(InvalidInputError) as caught:
        decided(tmp_path, spoil=spoilt)
    assert any("`nvcc` is only for builds from a `repository`" in problem.message for problem in caught.value.problems)


# --- the lock ----------------------------------------------------------------------------------------------------------


def universe() -> Universe:
    world = Universe()
    for tool in ("pip", "virtualenv"):
        world.add(f"{tool}-1.0-py2.py3-none-any.whl")
    return world


def locked(environment: Environment, tmp_path: Path, build_digest: str | None = None) -> Lock:
    base = BaseLock(image=environment.base.image, digest="sha256:" + "1" * 64, bootstrap=None, build_digest=build_digest)
    return making.make(
        environment,
        making.LockInputs(recipe_requirements={}, index=universe(), pin_base=lambda _: base, downloads=tmp_path / "downloads"),
    )


def test_what_builds_is_pinned_like_what_runs(tmp_path: Path) -> None:
    made = locked(decided(tmp_path), tmp_path)
    assert "sha256 of cuda-core-9-0 9.0.176.3-1" in [gap.what for gap in made.missing]
    assert codec.decode(Lock, codec.encode(made), "lock") == made
    assert "build_packages" not in codec.encode(decided(tmp_path, "wd-1.12-cuda9").base)


def test_the_image_to_compile_in_is_missing_until_its_digest_is_known(tmp_path: Path) -> None:
    environment = decided(tmp_path, base="tag")
    gap = Missing(what="image cuda:9.0-devel, to compile in", why="its registry gave no digest when this was locked")
    made = locked(environment, tmp_path)
    assert gap in made.missing
    assert not list(check(made, [], today=environment))
    silent = replace(made, missing=())
    assert any("image cuda:9.0-devel" in problem.message for problem in check(silent, [], today=environment))
    known = locked(environment, tmp_path, "sha256:" + "2" * 64)
    again = making.complete(
        made,
        making.LockInputs(
            recipe_requirements={}, index=universe(), pin_base=lambda _: known.base, downloads=tmp_path / "downloads"
        ),
    )
    assert again == known
    assert gap not in again.missing


def test_a_lock_from_before_the_compiler_was_known_is_stale(tmp_path: Path) -> None:
    made = locked(decided(tmp_path), tmp_path)
    old = replace(made, environment=replace(made.environment, base=replace(made.environment.base, build_packages=())))
    assert any("before the matrix contained" in problem.message for problem in check(old, [], today=made.environment))


# --- the rendering -----------------------------------------------------------------------------------------------------


def compiled(**base: object) -> str:
    """The Dockerfile of the GPU toy lock, whose framework nvcc compiles; ``base`` has changes of its base."""
    plain = toys.gpu()
    framework = replace(
        plain.environment.frameworks[0], nvcc=True, options={"repository": "https://example.org/a", "revision": "a" * 40}
    )
    environment = replace(plain.environment, frameworks=(framework,), base=replace(plain.environment.base, **base))  # type: ignore[arg-type]
    recipes = {**toys.RECIPES, "alpha": replace(toys.RECIPES["alpha"], builds=True)}
    templates = {**TEMPLATES, "recipes/alpha/build.j2": "RUN make\n"}
    made = replace(
        plain,
        environment=environment,
        base=replace(plain.base, build_digest="sha256:" + "ef" * 32 if base.get("build_image") else None),
    )
    return render(made, recipes, templates)["Dockerfile"]


def stages(text: str) -> dict[str, str]:
    parts = re.split(r"(?m)^(?=FROM )", text)[1:]
    return {part.splitlines()[0].rsplit(" AS ", 1)[1]: part for part in parts}


def test_the_build_stage_alone_installs_what_compiling_takes() -> None:
    text = compiled(build_packages=(CORE, HEADERS))
    built = stages(text).pop("built")
    assert "cuda-core-9-0=9.0.176.3-1" in built
    assert "from=cuda-files,source=/cuda,target=/mnt/cuda" in built
    assert built.index("cuda-core-9-0=") < built.index("nvcc --version | grep -F 'release 9.0,'") < built.index("RUN make")
    assert "/usr/local/cuda/bin:${PATH}" in built
    rest = text.replace(built, "")
    assert "cuda-core-9-0" not in rest
    assert "libcudnn7-dev" not in rest
    assert not re.search(r"FROM built|nvcc", rest)


def test_packages_that_are_known_files_are_checked_by_hash_beside_the_keys() -> None:
    made = stages(compiled(build_packages=(replace(CORE, url="https://vendor.example/core.deb", sha256="12" * 32),)))
    assert "12" * 32 in made["built-files"]
    assert "AAAA" in made["built-files"]
    assert "from=built-files,source=/cuda,target=/mnt/cuda" in made["built"]
    assert "12" * 32 not in made["cuda-files"], "the run-time stage's text is shared with those that compile nothing"


def test_the_devel_image_is_pinned_and_only_taken_from() -> None:
    none = Base(provider="tag", image="toyos:4", is_default=True, repositories=(), packages=(), other_providers=())
    made = stages(
        compiled(build_image="vendor/cuda:9.0-devel", **{name: getattr(none, name) for name in ("repositories", "packages")})
    )
    assert made["cuda-devel"].startswith("FROM vendor/cuda:9.0-devel@sha256:" + "ef" * 32 + " AS cuda-devel")
    assert "from=cuda-devel,source=/,target=/mnt/from" in made["built"]
    assert all("cuda-devel" not in text for name, text in made.items() if name not in ("cuda-devel", "built"))


def test_what_is_not_compiled_by_nvcc_renders_as_before() -> None:
    text = render(toys.gpu(), toys.RECIPES, TEMPLATES)["Dockerfile"]
    assert "nvcc" not in text


# --- the image ---------------------------------------------------------------------------------------------------------


def test_verify_finds_a_compiler_that_was_left_in_the_image() -> None:
    plain = verified()
    base = replace(plain.environment.base, build_packages=(CORE,))
    held, found = replace(plain, environment=replace(plain.environment, base=base)), Findings()
    comparisons.compare_packages(held, told(), found)
    assert not [each for each in found.problems if "cuda-core" in str(each)]
    spoilt = told()
    spoilt["packages"]["cuda-core-9-0"] = CORE.version
    comparisons.compare_packages(held, spoilt, found)
    assert [each for each in found.problems if "cuda-core-9-0" in str(each)]
