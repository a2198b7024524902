"""A real PyTorch image for CUDA 13: no false alarm; and faults planted in it, each found with its true cause."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_layers import plant, wheel_members
from program import Program, own_program, share_bases

from envbuild.linkcheck.model import Duplicate, Gap, LinkReport, RequiredDriver
from envbuild.pipeline import link_check, link_check_sources
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.prove]

NAME = "pytorch-2.15.0-cuda13.2-py311-debian12"
SITE = "/opt/env/lib/python3.11/site-packages"
CUDA = f"{SITE}/nvidia/cu13"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, engine_endpoint: str) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("cuda")
    share_bases(folder / "home")
    yield own_program(folder, {"DOCKER_HOST": engine_endpoint})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def tools(program: Program) -> Tools:
    return Tools(Workspace(root=program.root, output=program.root, home=program.home))


@pytest.fixture(scope="module")
def layout(program: Program) -> Path:
    folder = program.home / "layout"
    program.run("lock", NAME, timeout=600).expect(0)
    program.run("build", NAME, "--to", f"oci:{folder}", timeout=3000).expect(0)
    return folder


def checked(tools: Tools, layout: Path, driver: str = "", features: tuple[str, ...] = ("compile",)) -> LinkReport:
    wanted = RequiredDriver(version=driver, whose="the driver that you named", is_named=bool(driver))
    return link_check.check(tools, link_check_sources.of_layout(layout, ""), driver=wanted, features=features)


def only_gap(report: LinkReport) -> Gap:
    (gap,) = {gap.needs: gap for gap in report.gaps}.values()
    return gap


def test_the_image_has_no_gap_and_its_hardware_is_told(tools: Tools, layout: Path):
    report = checked(tools, layout)
    assert report.gaps == ()
    assert report.facts["lowest_driver"]["driver"] == "580.65.06"
    libraries = {each["capability"]: each["libraries"] for each in report.facts["gpus"]}
    assert {libraries["9.0"][name] for name in ("libtorch", "cuBLAS", "NCCL", "cuSPARSE")} == {"native"}
    assert libraries["9.0"]["cuFFT"] == "unknown"  # its kernels are not in the sections for GPU code
    assert set(libraries["6.1"].values()) == {"nothing", "unknown"}
    # nvrtcGetSupportedArchs of this NVRTC, and `ptxas --help` of this Triton, end with 12.1.
    assert {each["highest"] for each in report.facts["compilers"]} == {"12.1"}
    assert all(each["required"] and not each["lacks"] for each in report.facts["compiling"] if "torch" in each["name"])


def test_a_removed_library_is_found(tools: Tools, layout: Path, tmp_path: Path):
    gap = only_gap(checked(tools, plant(layout, tmp_path / "x", removed=[f"{CUDA}/lib/libcusparse.so.12"])))
    assert (gap.needs, gap.remedy) == ("libcusparse.so.12", "the wheel nvidia-cusparse")
    assert gap.cause == "not found: no file of the image has this name"


def test_a_wheel_of_another_cuda_is_found(tools: Tools, layout: Path, tmp_path: Path):
    other = wheel_members(tools.index, "nvidia-cuda-runtime-cu12==12.9.79", "*/libcudart.so.12")
    planted = plant(
        layout,
        tmp_path / "x",
        files={f"{SITE}/{name}": content for name, content in other.items()},
        removed=[f"{CUDA}/lib/libcudart.so.13"],
    )
    gap = only_gap(checked(tools, planted))
    assert (gap.needs, gap.remedy) == ("libcudart.so.13", "the wheel nvidia-cuda-runtime")
    assert gap.cause.startswith("not found: the image has another version instead") and "libcudart.so.12" in gap.cause


@pytest.mark.parametrize(("wheel", "fits"), [("torchvision==0.29.2", True), ("torchvision==0.18.1", False)])
def test_an_extension_for_another_pytorch_is_found(tools: Tools, layout: Path, tmp_path: Path, wheel: str, fits: bool):
    """An extension that was built for an old PyTorch needs C++ symbols that PyTorch 2.15 lacks."""
    module = wheel_members(tools.index, wheel, "torchvision/_C*.so")
    assert len(module) == 1
    planted = plant(layout, tmp_path / "x", files={f"{SITE}/{name}": content for name, content in module.items()})
    gaps = [each for each in checked(tools, planted).gaps if each.kind == "symbol"]
    assert bool(gaps) is not fits
    for gap in gaps:
        library, _, symbol = gap.needs.partition(": ")
        assert library.startswith(("libc10", "libtorch")) and symbol.startswith("_ZN")
        assert f"/torch/lib/{library}, which lacks this symbol" in gap.cause
        assert gap.remedy == "the version of torch that the object was built with"


def test_an_older_cudnn_first_is_found(tools: Tools, layout: Path, tmp_path: Path):
    """PyTorch's RPATH comes before LD_LIBRARY_PATH, and not before LD_PRELOAD."""
    (old,) = wheel_members(tools.index, "nvidia-cudnn-cu12==9.1.0.70", "*/libcudnn.so.9").values()
    place, wheel = "/opt/old/libcudnn.so.9", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"

    def copies(name: str, variable: str) -> Duplicate:
        planted = plant(layout, tmp_path / name, files={place: old}, environment=[variable])
        return next(each for each in checked(tools, planted).duplicates if each.library == "libcudnn.so.9")

    harmless = copies("x", "LD_LIBRARY_PATH=/opt/old")
    assert (harmless.copies[0].path, harmless.newer) == (wheel, "")
    found = copies("y", f"LD_PRELOAD={place}")
    assert (found.copies[0].path, found.newer) == (place, wheel) and "cudnnCausalConv1dForward" in found.lacks


def test_a_library_for_a_newer_glibc_is_found(tools: Tools, layout: Path, tmp_path: Path):
    files = wheel_members(tools.index, "torch==2.15.0", "torch/lib/libtorch_global_deps.so")
    (content,) = files.values()
    newer = content.replace(b"GLIBC_2.2.5\0", b"GLIBC_2.9.9\0")
    assert newer != content
    gap = only_gap(checked(tools, plant(layout, tmp_path / "x", files={f"{SITE}/torch/lib/libnewer.so": newer})))
    assert gap.needs.endswith("GLIBC_2.9.9")


@pytest.mark.parametrize(("driver", "count"), [("470.256.02", 1), ("575.57.08", 1), ("580.65.06", 0)])
def test_a_driver_that_is_too_old_is_found(tools: Tools, layout: Path, driver: str, count: int):
    found = [gap for gap in checked(tools, layout, driver).gaps if gap.needs == "CUDA 13"]
    assert len(found) == count and all("580.65.06 or newer" in gap.remedy for gap in found)


def test_cupy_without_headers_is_found(tools: Tools, layout: Path, tmp_path: Path):
    cupy = {f"{SITE}/cupy_cuda13x-14.2.0.dist-info/METADATA": b"Name: cupy-cuda13x\n"}
    assert checked(tools, plant(layout, tmp_path / "x", files=cupy)).gaps == ()
    planted = plant(layout, tmp_path / "y", files=cupy, removed=[f"{CUDA}/include/vector_types.h"])
    gap = only_gap(checked(tools, planted))
    assert (gap.kind, gap.needs) == ("compiler", "the headers of CUDA's runtime") and "nvidia-cuda-runtime" in gap.remedy


def test_opencv_without_libgl_is_found(tools: Tools, layout: Path, tmp_path: Path):
    opencv = wheel_members(tools.index, "opencv-python==4.10.0.84", "cv2/cv2.abi3.so", "opencv_python.libs/*.so*")
    planted = plant(layout, tmp_path / "x", files={f"{SITE}/{name}": content for name, content in opencv.items()})
    gaps = {gap.needs: gap.remedy for gap in checked(tools, planted).gaps}
    assert gaps["libGL.so.1"] == "the package libgl1"


def test_an_image_without_a_compiler_is_told(tools: Tools, layout: Path, tmp_path: Path):
    planted = plant(layout, tmp_path / "x", removed=["/usr/bin/g++", "/usr/bin/gcc"])
    assert {gap.needs for gap in checked(tools, planted).gaps} == {"a C compiler", "a C++ compiler"}
    report = checked(tools, planted, features=())
    assert report.gaps == () and any("a C++ compiler" in note for note in report.notes)
