"""Toy locks with every case that rendering knows, and with names that no real framework has."""

from __future__ import annotations

from dataclasses import replace

from envbuild.model.custom import CopiedFile, Custom, Service
from envbuild.model.environment import (
    AptPackage,
    AptRepository,
    Base,
    ComputeCapability,
    Environment,
    Framework,
    PrefixPlan,
    Python,
    RemoteFile,
    System,
)
from envbuild.model.lock import Artifact, BaseLock, Lock, Prefix
from envbuild.recipes import Recipe

NEW = System(
    name="toyos12", family="debian", version="12", codename="toy", image="toyos:12", glibc="2.36", bootstrap_suite="toy",
    init_package="tini", init="/usr/bin/tini", packages=("ca-certificates",),
)  # fmt: skip
OLD = replace(NEW, name="toyos4", version="4", image="toyos:4", init_package="dumb-init", init="/usr/bin/dumb-init")

RECIPES = {
    "alpha": Recipe(
        name="alpha", title="Alpha", requirements=("numpy",), apt_runtime=(), apt_build=("gcc",),
        env={"ALPHA_LOG": "1"}, large=("vendor-*", "alpha*"), module="alpha",
    ),
    "beta": Recipe(
        name="beta", title="Beta", requirements=("numpy",), apt_runtime=("libgomp1",), apt_build=(), env={}, large=("beta",),
        module="beta",
    ),
}  # fmt: skip


def artifact(name: str, version: str, *, sdist: bool = False, index: str = "default") -> Artifact:
    """A pinned file whose hash is made from its name."""
    suffix = ".tar.gz" if sdist else "-py3-none-any.whl"
    digest = (name.encode().hex() * 64)[:64]
    return Artifact(
        name=name, version=version, filename=f"{name}-{version}{suffix}", sha256=digest, index=index, project=name, size=1
    )


def framework(name: str = "alpha", **changes: object) -> Framework:
    """A framework whose recipe has the same name."""
    made = Framework(
        name=name, version="1.12.3", package=name, variant="cpu", requirements=(f"{name}==1.12.3",), constraints=(),
        recipe=name, released="2019-06-21", index="default", cuda_libraries="none", options={"api": "1"},
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def cpu() -> Lock:
    """One framework on a current system, with wheels only."""
    python = Python(version="3.11", provided_by="distribution", executable="/usr/bin/python3.11", packages=("python3",))
    environment = Environment(
        name="al-1.12.3-cpu-py311-toyos12", frameworks=(framework(),), python=python, system=NEW, cuda=None, cudnn=None,
        nccl=None,
        base=Base(provider="distribution", image="toyos:12", is_default=True, repositories=(), packages=(), other_providers=()),
        driver_min=None, compute_capability=None, require_cuda=None, exclude_newer="2019-08-20",
    )  # fmt: skip
    prefix = Prefix(
        name="env", path="/opt/env", python=python, frameworks=("alpha",), backend="uv",
        artifacts=(artifact("alpha", "1.12.3"), artifact("numpy", "1.26.4"), artifact("six", "1.16.0")), build_artifacts=(),
    )  # fmt: skip
    base = BaseLock(image="toyos:12", digest="sha256:" + "ab" * 32, bootstrap=None)
    return Lock(environment=environment, base=base, prefixes=(prefix,), missing=())


def gpu() -> Lock:
    """CUDA from apt on an old system, with an old Python, pip as the installer, source packages, and a package pinned as a
    file.
    """
    lock = cpu()
    python = Python(version="2.7", provided_by="distribution", executable="/usr/bin/python2.7", packages=("python2.7",))
    repositories = tuple(
        AptRepository(
            name=name, url=f"https://vendor.example/{name}", suite="/", components="",
            key_url=f"https://vendor.example/{name}.pub", key_fingerprint=letter * 40,
        )
        for name, letter in (("vendor-cuda", "A"), ("vendor-ml", "B"))
    )  # fmt: skip
    packages = (
        AptPackage(name="cuda-cudart-9-0", version="9.0.176-1", repository="vendor-cuda", url="", sha256=""),
        AptPackage(
            name="libcudnn7", version="7.4.2.24-1+cuda9.0", repository="vendor-ml", url="https://vendor.example/c.deb",
            sha256="cd" * 32,
        ),
    )  # fmt: skip
    environment = replace(
        lock.environment, name="al-1.12.3-cuda9.0-py27-toyos4", python=python, system=OLD, cuda="9.0", cudnn="7.4.2",
        frameworks=(framework(package="alpha-gpu", variant="gpu", cuda_libraries="system"),),
        base=Base(
            provider="apt", image="toyos:4", is_default=True, repositories=repositories, packages=packages,
            other_providers=("tag",),
        ),
        driver_min="384.81", compute_capability=ComputeCapability(sass=("3.5",), ptx=("7.0",)), require_cuda="cuda>=9.0",
    )  # fmt: skip
    tools = ("pip", "setuptools", "virtualenv", "wheel")
    prefix = replace(
        lock.prefixes[0], python=python, backend="pip",
        artifacts=(artifact("alpha-gpu", "1.12.3"), artifact("numpy", "1.16.6"), artifact("termcolor", "1.1.0", sdist=True)),
        build_artifacts=tuple(artifact(name, "1.0") for name in tools),
    )  # fmt: skip
    return Lock(
        environment=environment, base=BaseLock(image="toyos:4", digest=None, bootstrap=None), prefixes=(prefix,), missing=()
    )


def wheels() -> Lock:
    """CUDA from wheels, two frameworks (one of them from a separate index), and a source package that uv builds."""
    lock = cpu()
    beta = framework("beta", version="2.1.0", index="https://wheels.example/cu126", cuda_libraries="wheels", variant="cu126")
    environment = replace(
        lock.environment, name="al-1.12.3+be-2.1.0-cuda12.6-py311-toyos12", frameworks=(framework(), beta), cuda="12.6",
        base=replace(lock.environment.base, provider="wheels"), require_cuda="cuda>=12.0", driver_min="525.60.13",
    )  # fmt: skip
    prefix = replace(
        lock.prefixes[0], frameworks=("alpha", "beta"),
        artifacts=(
            artifact("alpha", "1.12.3"), artifact("beta", "2.1.0", index="https://wheels.example/cu126"),
            artifact("numpy", "1.26.4"), artifact("old_source", "0.1", sdist=True), artifact("vendor-cublas", "12.6.4"),
        ),
        build_artifacts=(artifact("pip", "24.0"), artifact("setuptools", "70.0"), artifact("wheel", "0.43")),
    )  # fmt: skip
    return replace(lock, environment=environment, prefixes=(prefix,))


def image_base() -> Lock:
    """The user's own image, which contains the Python."""
    lock = cpu()
    python = Python(version="3.6", provided_by="base", executable="python3.6", packages=())
    environment = replace(
        lock.environment, name="al-1.12.3-cpu-py36-toyos12-local-py36", python=python,
        base=replace(lock.environment.base, provider="local", image="local/py36:toy", is_default=False),
    )  # fmt: skip
    base = BaseLock(image="local/py36:toy", digest=None, bootstrap=None)
    return replace(lock, environment=environment, base=base, prefixes=(replace(lock.prefixes[0], python=python),))


def several() -> Lock:
    """Two prefixes with separate Pythons: the old packages of ``gpu``, and a prefix with wheels only."""
    lock = gpu()
    python = Python(version="3.6", provided_by="distribution", executable="/usr/bin/python3.6", packages=("python3.6",))
    beta = framework("beta", version="2.1.0", index="https://wheels.example/cu90", cuda_libraries="bundled", variant="gpu")
    old = replace(lock.prefixes[0], name="old", path="/opt/envs/old")
    new = replace(
        old, name="new", path="/opt/envs/new", python=python, frameworks=("beta",), backend="uv", build_artifacts=(),
        artifacts=(artifact("beta", "2.1.0", index="https://wheels.example/cu90"), artifact("numpy", "1.19.5")),
    )  # fmt: skip
    environment = replace(
        lock.environment, name="toy-stack", frameworks=(*lock.environment.frameworks, beta),
        prefixes=tuple(PrefixPlan(name=p.name, python=p.python, frameworks=p.frameworks) for p in (old, new)),
    )  # fmt: skip
    return replace(lock, environment=environment, prefixes=(old, new))


def own() -> Lock:
    """A user's own recipe on top of ``cpu``, with everything that such a recipe can add, such as a source package."""
    lock = cpu()
    custom = Custom(
        request=("al-1.12",), pip=("extra",), newer=(), apt=("ffmpeg", "git=1:2.39"),
        files=(CopiedFile(source="train.py", target="/workspace/train.py"), CopiedFile(source="conf/", target="/etc/lab/")),
        user="me", ports=(8000,),
        services=(
            Service(name="jupyter", pip=("notes",), apt=(), ports=(8888,)),
            Service(name="ssh", pip=(), apt=("openssh-server",), ports=(2222,)),
        ),
    )  # fmt: skip
    tools = (artifact("pip", "24.0"), artifact("setuptools", "69.0"), artifact("wheel", "0.42"))
    added = (artifact("extra", "1.0", sdist=True), artifact("notes", "4.0"))
    prefix = replace(lock.prefixes[0], artifacts=(*lock.prefixes[0].artifacts, *added), build_artifacts=tools)
    return replace(lock, environment=replace(lock.environment, name="lab", custom=custom), prefixes=(prefix,))


# Stand-ins, because rendering does not depend on what the real scripts do.
SCRIPTS = {f"services/{name}.sh": f"#!/bin/sh\n# {name}\n" for name in ("envbuild-start", "jupyter", "ssh")}


def standalone() -> Lock:
    """A Python from one archive, on a pulled base image whose apt sources possibly moved."""
    lock = cpu()
    archive = RemoteFile(
        url="https://github.com/astral-sh/python-build-standalone/releases/download/1/cpython-3.13.0%2B1-stripped.tar.gz",
        sha256="3a" * 32,
    )
    python = Python(
        version="3.13", provided_by="uv", executable="/opt/python/3.13/bin/python3.13", packages=(), files=(archive,)
    )  # fmt: skip
    moved = ("deb http://old.example/toy stone main", "deb http://old.example/toy stone-updates main")
    return replace(
        lock,
        environment=replace(lock.environment, name="al-1.12.3-cpu-py313-toyos12", python=python),
        base=replace(lock.base, archive=moved),
        prefixes=(replace(lock.prefixes[0], python=python),),
    )


def conda() -> Lock:
    """An old Python from conda packages of two channels. The program that unpacks them is downloaded, too."""
    lock = gpu()
    files = tuple(
        RemoteFile(url=url, sha256=digit * 64)
        for url, digit in (
            ("https://repo.anaconda.com/pkgs/main/linux-64/python-2.7.1-h0_0.tar.bz2", "1"),
            ("https://conda.anaconda.org/conda-forge/linux-64/zlib-1.2-h0_0.conda", "2"),
        )
    )
    installer = RemoteFile(url="https://vendor.example/micromamba-linux-64", sha256="4" * 64)
    python = Python(
        version="2.7", provided_by="conda", executable="/opt/python/2.7/bin/python2.7", packages=(), files=files,
        installer=installer,
    )  # fmt: skip
    environment = replace(lock.environment, python=python)
    return replace(lock, environment=environment, prefixes=(replace(lock.prefixes[0], python=python),))


ALL = {
    "cpu": cpu,
    "gpu": gpu,
    "wheels": wheels,
    "image-base": image_base,
    "several": several,
    "own": own,
    "standalone": standalone,
    "conda": conda,
}
