"""A small lock for the tests of verify and smoketest, and the answers of an intact image of this lock.

The lock has one prefix, two wheels and a package built from source.
"""

from __future__ import annotations

from typing import Any

from envbuild.model.environment import AptPackage, Base, Environment, Framework, Python, System
from envbuild.model.lock import Artifact, BaseLock, Bootstrap, DebianPackage, Lock, Prefix

PYTHON = Python(version="3.11", provided_by="distribution", executable="/usr/bin/python3.11", packages=("python3",))


def artifact(name: str, version: str, suffix: str = "-py3-none-any.whl") -> Artifact:
    return Artifact(
        name=name,
        version=version,
        filename=f"{name}-{version}{suffix}",
        sha256="0" * 64,
        index="default",
        project=name,
        size=None,
    )


def lock(*, cuda: str | None = None, cudnn: str | None = None, apt: tuple[AptPackage, ...] = ()) -> Lock:
    environment = Environment(
        name="toy-1.0-gpu" if cuda else "toy-1.0-cpu",
        frameworks=(
            Framework(
                name="toy",
                version="1.0",
                package="toy",
                variant="gpu" if cuda else "cpu",
                requirements=("toy==1.0",),
                constraints=(),
                recipe="toy",
                released="2020-01-01",
                index="default",
                cuda_libraries="system" if cuda else "none",
                options={},
            ),
        ),
        python=PYTHON,
        system=System(
            name="debian12",
            family="debian",
            version="12",
            codename="bookworm",
            image="debian:12",
            glibc="2.36",
            bootstrap_suite="bookworm",
            init_package="tini",
            init="/usr/bin/tini",
            packages=("ca-certificates",),
        ),
        cuda=cuda,
        cudnn=cudnn,
        nccl=None,
        base=Base(
            provider="apt" if cuda else "distribution",
            image="debian:12",
            is_default=True,
            repositories=(),
            packages=apt,
            other_providers=(),
        ),
        driver_min=None,
        compute_capability=None,
        require_cuda=f"cuda>={cuda}" if cuda else None,
        exclude_newer="",
    )
    prefix = Prefix(
        name="env",
        path="/opt/env",
        python=PYTHON,
        frameworks=("toy",),
        backend="uv",
        artifacts=(artifact("toy", "1.0"), artifact("typing_extensions", "4.0"), artifact("sourcy", "2.0", ".tar.gz")),
        build_artifacts=(),
    )
    bootstrap = Bootstrap(
        suite="bookworm",
        architecture="amd64",
        variant="minbase",
        packages=(DebianPackage(name="bash", version="5.2", sha256="0" * 64),),
    )
    base = BaseLock(image="debian:12", digest=None, bootstrap=bootstrap)
    return Lock(environment=environment, base=base, prefixes=(prefix,), missing=())


CUDNN = AptPackage(name="libcudnn7", version="7.4.2.24-1+cuda9.0", repository="r", url="", sha256="")


def distribution(name: str, version: str, kind: str = "wheel") -> dict[str, Any]:
    return {"name": name, "version": version, "folder": f"{name}-{version}.dist-info", "kind": kind, "files": 3, "hashed": 2}


def told() -> dict[str, Any]:
    """The answers of an intact image of the toy lock."""
    return {
        "prefixes": {
            "/opt/env": {
                "python": "3.11.2",
                "sites": ["/opt/env/lib/python3.11/site-packages"],
                "distributions": [
                    distribution("Toy", "1.0.0"),
                    distribution("typing-extensions", "4.0"),
                    distribution("sourcy", "2.0"),
                ],
                "missing": [],
                "modified": [],
                "unreadable": [],
                "unrecorded": [],
                "unhashed": [],
                "replaced": [],
                "bytes": 100,
            }
        },
        "packages": {
            "bash": "5.2",
            "python3": "3.11.2-1",
            "tini": "0.19",
            "ca-certificates": "2023",
            "libcudnn7": CUDNN.version,
        },
        "packaged": {"compared": 10, "modified": [], "missing": []},
        "privileged": [],
        "writable": [],
        "secrets": [],
        "paths": {"/usr/bin/tini": {"folder": False, "executable": True}},
    }
