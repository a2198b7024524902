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
PARTS_8 = {f"libcudnn_{part}.so.8" for name in ("ops", "cnn", "adv") for part in (f"{name}_infer", f"{name}_train")}
PARTS_9 = {f"libcudnn_{part}.so.9" for part in ("graph", "ops", "cnn", "adv")}
ENGINES_9 = {f"libcudnn_{part}.so.9" for part in ("engines_precompiled", "engines_runtime_compiled", "heuristic")}


def gaps(objects: dict[str, ElfFacts], *packages: str, excuse: str = "", has_gpu: bool = True, **environment: str) -> list[Gap]:
    files = [f"{SITE}/{package}.dist-info/METADATA" for package in packages]
    layers: list[LayerFacts] = [system(), layer(objects, files=files)]
    opening = opened.find(Tree(layers), RULES, has_gpu=has_gpu)
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
    assert gaps({FRAMEWORK: elf("")}, "tensorflow-2.11.1", has_gpu=False) == []


@pytest.mark.parametrize("version", ["2.11.1", "2.5.3", "2.9.0"])
def test_the_libraries_are_found_where_the_loader_searches(version: str):
    cuda = {f"/opt/cuda/{name}": elf(name, runpath=("$ORIGIN",)) for name in CUDA_11 | PARTS_8}
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


def of_cuda(number: str, *, cudnn: str = "9") -> set[str]:
    """The libraries that the plugins of JAX for this CUDA open."""
    fft, solver = {"12": ("11", "11"), "13": ("12", "12")}[number]
    with_number = {f"lib{name}.so.{number}" for name in ("cudart", "cublas", "cublasLt", "cupti")}
    others = {f"libcufft.so.{fft}", f"libcusolver.so.{solver}", "libcusparse.so.12", "libnccl.so.2", f"libcudnn.so.{cudnn}"}
    return with_number | others


@pytest.mark.parametrize(
    ("number", "version", "cudnn"),
    [("12", "0.4.28", "8"), ("12", "0.4.30", "9"), ("12", "0.6.1", "9"), ("12", "0.12.0.1", "9"), ("13", "0.10.2", "9")],
)
def test_the_libraries_that_the_plugins_of_jax_open_are_missed(number: str, version: str, cudnn: str):
    packages = [f"jax_cuda{number}_{part}-{version}" for part in ("pjrt", "plugin")]
    plugin, solver = f"{SITE}/jax_plugins/xla_cuda{number}/xla_cuda_plugin.so", f"{SITE}/jax_cuda{number}_plugin/_solver.so"
    paths = ("$ORIGIN/../../nvidia/lib", "$ORIGIN/../nvidia/lib")
    objects = {plugin: elf("xla_cuda_plugin.so", rpath=paths), solver: elf("", rpath=paths)}
    found = gaps(objects, *packages, excuse="only GPUs")
    assert {gap.needs for gap in found} == of_cuda(number, cudnn=cudnn) and not any(gap.excuse for gap in found)
    assert all(gap.cause.startswith("JAX opens it by name to use a GPU; not found") for gap in found)
    cuda = {f"{SITE}/nvidia/lib/{name}": elf(name) for name in of_cuda(number, cudnn=cudnn) - {f"libcudnn.so.{cudnn}"}}
    assert [gap.needs for gap in gaps(objects | cuda, *packages)] == [f"libcudnn.so.{cudnn}"]


@pytest.mark.parametrize(
    ("main", "soname", "parts"),
    [
        ("libcudnn.so.8.9.7", "libcudnn.so.8", PARTS_8),
        ("libcudnn-1a2b3c4d.so.8", "libcudnn-1a2b3c4d.so.8", PARTS_8),
        ("libcudnn.so.9", "libcudnn.so.9", PARTS_9),
        ("libcudnn_graph.so.9", "libcudnn_graph.so.9", ENGINES_9),
        ("libcudnn.so.7", "libcudnn.so.7", set()),
    ],
)
def test_a_part_of_cudnn_that_was_removed_is_missed(main: str, soname: str, parts: set[str]):
    """The parts are found beside the main library by its search path, also outside the folders of Python packages."""
    for folder in (f"{SITE}/nvidia/cudnn/lib", "/opt/cudnn"):
        objects = {f"{folder}/{main}": elf(soname, runpath=("$ORIGIN",)), **{f"{folder}/{name}": elf(name) for name in parts}}
        assert {gap.needs for gap in gaps(objects)} <= ENGINES_9  # those that libcudnn_graph.so.9 opens
        for name in sorted(parts):
            lacking = {path: facts for path, facts in objects.items() if not path.endswith(name)}
            (gap,) = (each for each in gaps(lacking, has_gpu=False) if each.needs == name)
            assert gap.object == f"{folder}/{main}" and gap.cause.startswith("cuDNN opens this part of itself by name; not")


def test_cudnn_without_precompiled_engines_is_whole():
    folder = f"{SITE}/nvidia/cudnn_jit/lib"
    names = ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9")
    assert gaps({f"{folder}/{name}": elf(name, runpath=("$ORIGIN",)) for name in names}) == []


@pytest.mark.parametrize(
    ("file", "builtins"),
    [
        ("libnvrtc.so.12", "libnvrtc-builtins.so.12.4"),
        ("libnvrtc-08c4863f.so.10.2", "libnvrtc-builtins.so"),
        ("libnvrtc.alt.so.12", "libnvrtc-builtins.alt.so.12.9"),
    ],
)
def test_nvrtc_without_its_builtins_is_missed(file: str, builtins: str):
    objects = {f"/opt/cuda/{file}": elf(file, runpath=("$ORIGIN",), opens=("libcuda.so", builtins))}
    (gap,) = gaps(objects)
    assert gap.needs == builtins and gap.cause.startswith("NVRTC opens it by name to compile; not found")
    assert gaps({**objects, f"/opt/cuda/{builtins}": elf(builtins)}) == []
    assert gaps({"/opt/cuda/libnvrtc-builtins.so.12.4": elf("", opens=(builtins,))}) == []
