"""The packages of a lock that are not for the CUDA version in its name."""

from dataclasses import replace

import pytest
from lock_universe import environment, framework

from envbuild.lock import cuda_mismatch, lock_file
from envbuild.model.lock import Artifact, BaseLock, Lock, Prefix


def held(cuda, *packages):
    env = replace(environment(framework("alpha", "1.0")), cuda=cuda)
    artifacts = tuple(
        Artifact(name=n, version=v, filename=f"{n}-{v}-py3-none-any.whl", sha256="a" * 64, index="default", project=n, size=1)
        for n, v in packages
    )
    prefix = Prefix(
        name="env",
        path="/opt/env",
        python=env.python,
        frameworks=("alpha",),
        backend="uv",
        artifacts=artifacts,
        build_artifacts=(),
    )
    return Lock(environment=env, base=BaseLock(image="x", digest=None, bootstrap=None), prefixes=(prefix,), missing=())


@pytest.mark.parametrize(
    ("cuda", "package", "version", "is_other"),
    [
        ("12.5", "nvidia-cublas-cu12", "12.9.2.10", True),
        ("12.5", "nvidia-cublas-cu12", "12.5.3.2", False),
        ("12.5", "nvidia-cuda-nvrtc-cu12", "12.9.86", True),
        ("12.1", "nvidia-nvjitlink-cu12", "12.3.101", True),
        ("13.0", "nvidia-cuda-nvcc", "13.5.37", True),
        ("13.0", "nvidia-cublas", "13.1.0.3", False),  # the cuBLAS of CUDA 13.0, which has its own version numbers
        ("11.7", "nvidia-cublas-cu11", "11.10.3.66", False),
        ("12.5", "nvidia-cufft-cu12", "11.2.3.61", False),
        ("12.5", "nvidia-cudnn-cu12", "9.3.0.75", False),
        (None, "nvidia-cublas-cu12", "12.9.2.10", False),
    ],
)
def test_libraries_of_another_cuda_are_named(cuda, package, version, is_other):
    lock = held(cuda, (package, version), ("numpy", "2.0"))
    told = cuda_mismatch.other_cuda(lock)
    assert bool(told) == is_other
    assert not is_other or (f"{package} {version}" in told[0] and f"CUDA {cuda}" in told[0] and "numpy" not in told[0])
    assert not is_other or cuda_mismatch.is_possible(lock_file.dumps(lock).encode())


def test_a_lock_without_such_libraries_is_not_decoded():
    lock = held("12.5", ("nvidia-cudnn-cu12", "9.3.0.75"), ("numpy", "2.0"))
    assert not cuda_mismatch.is_possible(lock_file.dumps(lock).encode())
