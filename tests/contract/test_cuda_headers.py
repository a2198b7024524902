"""CuPy compiles every kernel at run time.

From CUDA 12.2 on that needs the headers of the CUDA runtime in the same version.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from real_matrix import FACTS

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "images" / "environments").glob("cupy-*/lock.json"))
KERNEL = b'#include <cuda_fp16.h>\nextern "C" __global__ void k(float* y) { y[0] = __half2float(__float2half(2.5f)); }'


def headers(cuda: str) -> str:
    """The project with the headers of a CUDA; empty if NVRTC needs no headers."""
    if Version(cuda) < Version("12.2"):
        return ""
    return "nvidia-cuda-runtime-cu12" if cuda.startswith("12.") else "nvidia-cuda-runtime"


def test_every_build_for_cuda_12_2_and_later_asks_for_the_headers_of_its_cuda() -> None:
    (table,) = (table for table in FACTS.frameworks if table.name == "cupy")
    seen = 0
    for release in table.releases:
        for build in release.variants:
            asked = {each.requirement for each in build.requirements if "cuda-runtime" in each.requirement}
            project = headers(build.cuda)
            assert asked == ({f"{project}=={build.cuda}.*"} if project else set()), (release.version, build.name)
            links = dict(build.options).get("headers") == "link"
            assert links == (bool(project) and Version(release.version) < Version("13.3")), (release.version, build.name)
            seen += bool(project)
    assert seen > 50


@pytest.mark.parametrize("path", LOCKS, ids=[path.parent.name for path in LOCKS])
def test_committed_locks_hold_them(path: Path) -> None:
    lock = json.loads(path.read_text())
    project = headers(lock["environment"]["cuda"])
    pinned = {each["name"]: each["version"] for each in lock["prefixes"][0]["artifacts"]}
    assert not project or Requirement(f"{project}=={lock['environment']['cuda']}.*").specifier.contains(pinned[project])


@pytest.mark.prove
@pytest.mark.parametrize("path", [path for path in LOCKS if headers(path.parent.name.split("-cuda")[1].split("-")[0])], ids=str)
def test_nvrtc_compiles_with_the_locked_headers_and_not_without(path: Path, tmp_path: Path) -> None:
    lock = json.loads(path.read_text())
    project = headers(lock["environment"]["cuda"])
    version = next(each["version"] for each in lock["prefixes"][0]["artifacts"] if each["name"] == project)
    compiler = f"{project.replace('runtime', 'nvrtc')}=={lock['environment']['cuda']}.*"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        f"{project}=={version}",
        compiler,
    ]
    subprocess.run(install, check=True)
    for builtins in tmp_path.rglob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))  # NVRTC opens it by name; in images, its folder is on the library path
    nvrtc = ctypes.CDLL(str(next(tmp_path.rglob("libnvrtc.so.*"))))
    (folder,) = {found.parent for found in tmp_path.rglob("cuda_fp16.h")}
    assert _compile(nvrtc, []) != 0
    assert _compile(nvrtc, [f"-I{folder}"]) == 0


def _compile(nvrtc: ctypes.CDLL, options: list[str]) -> int:
    program, words = ctypes.c_void_p(), [each.encode() for each in (*options, "--gpu-architecture=sm_80")]
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"k.cu", 0, None, None)
    answer: int = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    return answer


@pytest.mark.parametrize("verb", ["show", "explain", "resolve"])
def test_libraries_of_another_cuda_than_the_name_says_are_shown(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from envbuild.cli.frame import run

    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path))
    assert run(["--root", str(ROOT), verb, "tf-2.21.0-cuda12.5-py311-debian12"]) == 0
    assert "another release than CUDA 12.5" in capsys.readouterr().err
