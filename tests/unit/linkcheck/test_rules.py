"""The rules of ``images/linking.yaml``."""

from __future__ import annotations

from pathlib import Path

import pytest
from linked_trees import SITE, elf, layer, links

from envbuild.errors import InvalidInputError
from envbuild.linkcheck import rules
from envbuild.workspace import LINK_RULES

REAL = Path(__file__).parents[3] / "images"


def test_the_real_rules_name_wheels_by_cuda():
    found = rules.load(REAL)
    assert found.wheel_of("libcublas.so.12", "12") == "nvidia-cublas-cu12"
    assert found.wheel_of("libcublas.so.13", "13") == "nvidia-cublas"
    assert found.wheel_of("libcublas.so.10", "10") == found.wheel_of("libcudart.so.10.1", "10") == ""
    # The number of the library shows its CUDA, if only one CUDA has this number.
    numbers = {"libcufft.so.10": "-cu11", "libcufft.so.11": "-cu12", "libcufft.so.12": "", "libcusparse.so.11": "-cu11"}
    for library, ending in numbers.items():
        assert found.wheel_of(library, "") == f"nvidia-{library[3:].partition('.')[0]}{ending}"
    assert (
        found.wheel_of("libcusparse.so.12", "")
        == found.wheel_of("libcudnn.so.9", "")
        == found.wheel_of("libcudnn.so.7", "12")
        == ""
    )
    assert found.wheel_of("libnvrtc.so.11.2", "") == found.wheel_of("libnvrtc-builtins.so.11.7", "") == "nvidia-cuda-nvrtc-cu11"
    assert found.wheel_of("libcudnn_ops.so.9", "13") == "nvidia-cudnn-cu13"
    assert found.wheel_of("libtorch_cpu.so", "13") == found.wheel_of("libc10.so", "") == "torch"
    assert found.wheel_of("libz.so.1", "12") == ""
    assert found.excuse("/x/libcufile_rdma.so.1", "libmlx5.so.1") and not found.excuse("/x/libcufile.so.0", "libmlx5.so.1")
    torch = "/opt/env/lib/python2.7/site-packages/torch/lib/libtorch_python.so"
    assert found.excuse(torch, "libtorch.so: _ZN5torch4cuda4nccl6detail16throw_nccl_errorE12ncclResult_t")
    assert not found.excuse(torch, "libtorch.so: _ZN5torch4cuda4nccl7versionEv")


def test_providers_of_onnxruntime_that_programs_must_ask_for_are_optional():
    found, folder = rules.load(REAL), f"{SITE}/onnxruntime/capi/libonnxruntime_providers_"
    assert found.excuse(f"{folder}tensorrt.so", "libnvinfer.so.10") and found.excuse(f"{folder}tensorrt.so", "libcublas.so.12")
    assert not found.excuse(f"{folder}cuda.so", "libcublas.so.12") and not found.excuse(f"{folder}shared.so", "libstdc++.so.6")


def test_what_is_read_of_files_follows_the_rules():
    wanted = rules.load(REAL).wanted()
    assert wanted.symbols.match(b"cudnnCreate") and not wanted.symbols.match(b"malloc")
    assert wanted.vendor.fullmatch("libcublas.so.12") and wanted.vendor.fullmatch("libcublas-f6c022dc.so.10.2.2.89")
    assert not wanted.vendor.fullmatch("libtorch_cuda.so"), "CUDA's static libraries in it are not the framework's own code"
    assert wanted.constants.findall(b"\0libcuda.so.1\0libcudart.so") == [b"libcuda.so"]
    # Only a whole constant is a name: a piece of the file may end within it.
    text = b"\0libnvrtc-builtins.so.12.4\0open libnvrtc-builtins.so.12.4.\0libnvrtc-builtins.so.1"
    assert wanted.constants.findall(text) == [b"libnvrtc-builtins.so.12.4"]


def test_names_with_a_hash_are_those_of_the_library():
    found = rules.load(REAL)
    for name, family in (
        ("libcudart-5a077122.so.12.0.107", "CUDA runtime"),
        ("libcublas.1a2b3c4d.so.12", "cuBLAS"),
        ("libcudnn_ops_infer-1a2b3c4d.so.8", "cuDNN"),
        ("libnvrtc-builtins.so.12.4", "NVRTC"),
        ("libgomp-a34b3233.so.1.0.0", "libgomp"),
    ):
        known = found.family_of(name)
        assert known is not None and known.name == family
    assert found.compiler_of("libnvrtc-1a2b3c4d.so.12") == "NVRTC" and not found.compiler_of("libnvrtc-builtins.so.12.4")
    wanted = found.wanted()
    assert wanted.vendor.fullmatch("libcublas-1a2b3c4d.so.12") and wanted.compilers.fullmatch("libnvrtc-1a2b3c4d.so.12")
    assert found.wheel_of("libcublas-1a2b3c4d.so.12", "12") == "nvidia-cublas-cu12"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('symbols: "cudnn[A-Z]"', 'symbols: "cudnn["'),
        ("source: gds", "source: nothing"),
        ('"11": "nvidia-cudnn-cu11 8 9"', '"11": ""'),
        ('"11": "nvidia-cudnn-cu11 8 9"', '"cu11": "nvidia-cudnn-cu11 8 9"'),
        ("schema: 1", "schema: 2"),
        ("\ndriver:", "\ndrivers:"),
    ],
)
def test_faults_are_refused(tmp_path: Path, old: str, new: str):
    (tmp_path / LINK_RULES).write_text((REAL / LINK_RULES).read_text().replace(old, new, 1))
    with pytest.raises(InvalidInputError):
        rules.load(tmp_path)


@pytest.mark.parametrize(
    ("package", "is_loaded"),
    [
        ("torch/__init__.py", True),
        ("jax_cuda12_pjrt-0.6.2.dist-info/METADATA", True),
        ("jax_cuda13_pjrt-0.12.0.1.dist-info/METADATA", True),
        ("jax_cuda12_pjrt-0.6.1.dist-info/METADATA", False),
        ("cupy_cuda12x-13.6.0.dist-info/METADATA", False),
        ("tensorflow/__init__.py", False),
        ("nvidia/__init__.py", False),
    ],
)
def test_only_some_packages_load_the_libraries_of_nvidias_wheels(package: str, is_loaded: bool):
    objects = {
        f"{SITE}/onnxruntime/capi/libonnxruntime_providers_cuda.so": elf("", "libcublasLt.so.13"),
        f"{SITE}/nvidia/cu13/lib/libcublasLt.so.13": elf("libcublasLt.so.13"),
    }
    found = links(layer(objects, files=[f"{SITE}/{package}"]), rules=rules.load(REAL))
    assert [gap.needs for gap in found.gaps] == ([] if is_loaded else ["libcublasLt.so.13"])


@pytest.mark.parametrize(("version", "gaps"), [("12.3.0", 1), ("13.0.0", 0), ("14.2.0", 0)])
def test_cupy_loads_nccl_from_its_wheel_from_13_on(version: str, gaps: int):
    objects = {
        f"{SITE}/cupy_backends/cuda/libs/nccl.so": elf("", "libnccl.so.2"),
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": elf("libnccl.so.2"),
    }
    files = [f"{SITE}/cupy_cuda12x-{version}.dist-info/METADATA"]
    assert len(links(layer(objects, files=files), rules=rules.load(REAL)).excused) == gaps
