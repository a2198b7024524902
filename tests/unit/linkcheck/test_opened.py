"""Libraries that objects open by names that they compute at run time."""

from __future__ import annotations

from pathlib import Path

import pytest
from linked_trees import SITE, elf, layer, system

from envbuild.linkcheck import checking, opened, rules
from envbuild.linkcheck.model import ElfFacts, Gap, LayerFacts
from envbuild.linkcheck.tree import Tree

RULES = rules.load(Path(__file__).parents[3] / "images")
FRAMEWORK = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
CUDA_11 = {
    "libcudart.so.11.0",
    "libcublas.so.11",
    "libcublasLt.so.11",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.11",
    "libcudnn.so.8",
}


def gaps(objects: dict[str, ElfFacts], package: str, *, excuse: str = "", **environment: str) -> list[Gap]:
    layers: list[LayerFacts] = [system(), layer(objects, files=[f"{SITE}/{package}.dist-info/METADATA"])]
    opening = opened.find(Tree(layers), RULES)
    found = checking.check(
        Tree(opened.added(layers, opening)),
        environment,
        RULES,
        is_of_driver=lambda name: name == "libcuda.so.1",
        package_of=lambda _name: "",
    )
    return opened.explained(found.gaps, opening, excuse=excuse)


def test_each_absent_library_of_cuda_is_a_gap():
    found = gaps({FRAMEWORK: elf("libtensorflow_framework.so.2")}, "tensorflow-2.11.1")
    assert {gap.needs for gap in found} == CUDA_11 and {gap.object for gap in found} == {FRAMEWORK}
    (runtime,) = (gap for gap in found if gap.needs.startswith("libcudart"))
    assert runtime.cause == "TensorFlow opens it by name to use a GPU; not found: no file of the image has this name"
    assert runtime.remedy == "the wheel nvidia-cuda-runtime-cu11"
    assert {gap.excuse for gap in gaps({FRAMEWORK: elf("")}, "tensorflow-2.11.1", excuse="only GPUs")} == {"only GPUs"}


@pytest.mark.parametrize("version", ["2.11.1", "2.5.3", "2.9.0"])
def test_the_libraries_are_found_where_the_loader_searches(version: str):
    cuda = {f"/opt/cuda/{name}": elf(name) for name in CUDA_11}
    objects = {FRAMEWORK: elf("libtensorflow_framework.so.2"), **cuda}
    assert gaps(objects, f"tensorflow-{version}", LD_LIBRARY_PATH="/opt/cuda") == []
    objects[FRAMEWORK] = elf("libtensorflow_framework.so.2", runpath=("$ORIGIN/../../../../../cuda",))
    assert gaps(objects, f"tensorflow-{version}") == []
    objects[FRAMEWORK] = elf("libtensorflow_framework.so.2")
    found = gaps(objects, f"tensorflow-{version}")
    assert len(found) == len(CUDA_11) and all("in no folder that the loader searches" in gap.cause for gap in found)


def test_an_older_cudnn_and_another_cuda_are_named():
    names = CUDA_11 - {"libcudnn.so.8", "libcudart.so.11.0"} | {"libcudnn.so.7", "libcudart.so.10.1"}
    objects = {FRAMEWORK: elf("libtensorflow_framework.so.2"), **{f"/usr/lib/{name}": elf(name) for name in names}}
    found = {gap.needs: gap.cause for gap in gaps(objects, "tensorflow-2.11.1")}
    assert set(found) == {"libcudnn.so.8", "libcudart.so.11.0"}
    assert found["libcudnn.so.8"].endswith("the image has another version instead: /usr/lib/libcudnn.so.7")


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        ("tensorflow_gpu-1.15.5", "libcudart.so.10.0"),
        ("tensorflow_gpu-2.0.4", "libcublas.so.10.0"),
        ("tensorflow-2.1.4", "libcudart.so.10.1"),
        ("tensorflow-2.4.4", "libcusolver.so.10"),
        ("tensorflow-2.14.1", "libcudnn.so.8"),
        ("tensorflow-2.15.0.post1", "libcublasLt.so.12"),
        ("tensorflow-2.21.0", "libcudnn.so.9"),
        ("tensorflow-2.11.0+nv23.01", ""),  # built by NVIDIA for another CUDA
        ("tensorflow_cpu-2.11.1", ""),
        ("tensorflow-1.15.5", ""),  # without GPU
        ("tensorflow_gpu-1.12.0", ""),  # linked with CUDA
    ],
)
def test_the_names_follow_the_release(package: str, wanted: str):
    names = {gap.needs for gap in gaps({FRAMEWORK: elf("libtensorflow_framework.so.2")}, package)}
    assert wanted in names if wanted else not names
