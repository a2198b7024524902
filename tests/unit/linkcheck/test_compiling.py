"""What packages lack to compile at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from linked_trees import SITE, elf, layer, system

from envbuild.errors import InvalidInputError
from envbuild.linkcheck import compiling
from envbuild.linkcheck.model import Gap, LayerFacts
from envbuild.linkcheck.tree import Tree
from envbuild.workspace import COMPILING_RULES

IMAGES = Path(__file__).parents[3] / "images"
REAL = compiling.load(IMAGES)
PATH = {"PATH": "/opt/env/bin:/usr/bin"}
RUNTIME = f"{SITE}/nvidia/cuda_runtime/include/vector_types.h"
HEADER = "/usr/include/python3.11/Python.h"


def metadata(name: str, version: str) -> str:
    return f"{SITE}/{name}-{version}.dist-info/METADATA"


def check(
    *layers: LayerFacts, features: tuple[str, ...] = (), has_gpu_code: bool = True, **environment: str
) -> tuple[list[dict[str, Any]], list[Gap]]:
    tree = Tree([system(), *layers])
    return compiling.check(tree, PATH | environment, REAL, has_gpu_code=has_gpu_code, features=features)


def cupy(version: str, nvrtc: str, *files: str) -> LayerFacts:
    objects = {
        "/usr/lib/libnvrtc.so.12": elf("libnvrtc.so.12"),
        f"/usr/lib/libnvrtc-builtins.so.{nvrtc}": elf(f"libnvrtc-builtins.so.{nvrtc}"),
    }
    return layer(objects, files=[metadata("cupy_cuda12x", version), *files])


def test_cupy_without_the_headers_of_cuda_is_a_gap():
    (gap,) = check(cupy("13.6.0", "12.8.93"))[1]
    assert (gap.kind, gap.object, gap.needs) == (
        "compiler",
        metadata("cupy_cuda12x", "13.6.0"),
        "the headers of CUDA's runtime",
    )
    assert "nvidia-cuda-runtime" in gap.remedy and RUNTIME in gap.cause
    assert check(cupy("13.6.0", "12.8.93", RUNTIME))[1] == []
    assert check(cupy("13.6.0", "12.8.93", "/opt/cuda/include/vector_types.h"), CUDA_PATH="/opt/cuda")[1] == []


@pytest.mark.parametrize("number", ["11.2", "13"])
def test_nvrtc_of_another_cuda_is_a_gap(number: str):
    other = layer({f"/usr/lib/libnvrtc.so.{number}": elf(f"libnvrtc.so.{number}")}, files=[metadata("cupy_cuda12x", "13.6.0")])
    assert [gap.needs for gap in check(other)[1]] == ["NVRTC"]


def test_headers_count_where_this_release_of_cupy_looks_for_them():
    assert len(check(cupy("13.2.0", "12.8.93", RUNTIME))[1]) == 1  # CuPy before 13.3 does not look into wheels
    linked = layer(links={"/usr/local/cuda/include/vector_types.h": RUNTIME})
    assert check(cupy("13.2.0", "12.8.93", RUNTIME), linked)[1] == []


def test_nvrtc_before_cuda_12_2_needs_no_headers():
    assert check(cupy("12.3.0", "12.1"))[1] == []
    assert len(check(cupy("12.3.0", "12.10"))[1]) == 1


def test_cupy_without_nvrtc_is_a_gap():
    (gap,) = check(layer(files=[metadata("cupy_cuda11x", "12.3.0")]))[1]
    assert gap.needs == "NVRTC"


def test_torch_without_a_compiler_is_a_note_unless_the_recipe_has_the_feature():
    image = layer(files=[metadata("torch", "2.6.0")])
    told, gaps = check(image)
    assert gaps == [] and [each["needs"] for each in told[0]["lacks"]] == ["a C++ compiler", "Python.h"]
    assert "the package g++" in compiling.notes(told)[0] and "the package python3.11-dev" in compiling.notes(told)[1]
    told, gaps = check(image, features=("compile",))
    assert [gap.remedy for gap in gaps] == ["the package g++", "the package python3.11-dev"] and compiling.notes(told) == []
    with_compiler = layer(
        {"/usr/bin/x86_64-linux-gnu-g++-12": elf("")}, {"/usr/bin/g++": "x86_64-linux-gnu-g++-12"}, files=[HEADER]
    )
    assert check(image, with_compiler, features=("compile",)) == ([{**told[0], "lacks": []}], [])


def test_older_releases_compile_nothing():
    assert check(layer(files=[metadata("torch", "1.13.1")]), features=("compile",)) == ([], [])


def test_the_headers_are_those_of_the_python_of_the_environment():
    program = elf("", interpreter="/lib64/ld-linux-x86-64.so.2")
    other = layer({"/opt/pythons/3.12/bin/python3.12": program}, {"/opt/env/bin/python": "/opt/pythons/3.12/bin/python3.12"})
    image = layer({"/usr/bin/g++": elf("")}, files=[metadata("torch", "2.6.0"), HEADER])
    assert [gap.needs for gap in check(image, other, features=("compile",))[1]] == ["Python.h"]
    headers = layer(files=["/opt/pythons/3.12/include/python3.12/Python.h"])
    assert check(image, other, headers, features=("compile",))[1] == []


def test_jax_needs_libdevice_and_ptxas():
    image = layer(files=[metadata("jax_cuda12_plugin", "0.5.3")])
    assert [gap.needs for gap in check(image)[1]] == ["libdevice", "ptxas"]
    nvcc = layer(
        {f"{SITE}/nvidia/cuda_nvcc/bin/ptxas": elf("")}, files=[f"{SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"]
    )
    assert check(image, nvcc)[1] == []
    assert {gap.remedy for gap in check(image)[1]} == {"the wheel nvidia-cuda-nvcc-cu12"}
    newer = check(layer(files=[metadata("jax_cuda13_plugin", "0.10.2")]))[1]
    assert [gap.remedy for gap in newer] == ["the wheel nvidia-nvvm", "the wheel nvidia-cuda-nvcc"]


@pytest.mark.parametrize("has_gpu_code", [False, True])
def test_tensorflow_without_ptxas_is_a_note_in_a_gpu_image(has_gpu_code: bool):
    told, gaps = check(layer(files=[metadata("tensorflow", "2.15.1")]), has_gpu_code=has_gpu_code)
    assert gaps == [] and len(compiling.notes(told)) == (2 if has_gpu_code else 0)


@pytest.mark.parametrize(("old", "new"), [("source: jax-gpu", "source: nobody"), ('">=2.0"', '"newest"'), ("fill:", "fills:")])
def test_faults_are_refused(tmp_path: Path, old: str, new: str):
    (tmp_path / COMPILING_RULES).write_text((IMAGES / COMPILING_RULES).read_text().replace(old, new, 1))
    with pytest.raises(InvalidInputError):
        compiling.load(tmp_path)
