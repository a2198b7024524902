"""The smallest real environment (NumPy as the framework, on a plain Debian), and helpers for tests with an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from envbuild.index.client import Index
from envbuild.model.environment import Base, Environment, Framework, Python, System
from envbuild.model.lock import Artifact, BaseLock, Lock, Prefix
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import debian_packages
from envbuild.pipeline.tools import Tools
from envbuild.recipes import Recipe
from envbuild.workspace import Workspace, find

NUMPY = "1.26.4"
RECIPE = Recipe(name="toy", title="Toy", requirements=(), apt_runtime=(), apt_build=(), env={}, large=(), module="numpy")

_PYTHON = Python(
    version="3.11", provided_by="distribution", executable="/usr/bin/python3.11", packages=("python3", "python3-venv")
)


def environment(*, image: str = "debian:12", suite: str = "bookworm", provider: str = "distribution") -> Environment:
    """An environment with one framework, one Python and one base. ``suite`` is empty if the base can only be pulled."""
    return Environment(
        name="toy-1-cpu-py311-debian12",
        frameworks=(
            Framework(
                name="toy",
                version=NUMPY,
                package="numpy",
                variant="cpu",
                requirements=(f"numpy=={NUMPY}",),
                constraints=(),
                recipe="toy",
                released="2024-02-05",
                index="default",
                cuda_libraries="none",
                options={},
            ),
        ),
        python=_PYTHON,
        system=System(
            name="debian12",
            family="debian",
            version="12",
            codename="bookworm",
            image="debian:12",
            glibc="2.36",
            bootstrap_suite=suite,
            init_package="tini",
            init="/usr/bin/tini",
            packages=("ca-certificates",),
        ),
        cuda=None,
        cudnn=None,
        nccl=None,
        base=Base(
            provider=provider, image=image, is_default=True, repositories=(), packages=(), other_providers=("wheels", "conda")
        ),
        driver_min=None,
        compute_capability=None,
        require_cuda=None,
        exclude_newer="",
    )


def lock(base: BaseLock, index: Index, decision: Environment | None = None) -> Lock:
    """The lock of the environment with one wheel, pinned as the package index has it now."""
    decided = decision or environment()
    wheel = next(
        file
        for file in index.project_files("numpy")
        if file.filename.startswith(f"numpy-{NUMPY}-cp311-cp311-manylinux") and "x86_64" in file.filename
    )
    artifact = Artifact(
        name="numpy", version=NUMPY, filename=wheel.filename, sha256=wheel.sha256, index="default", project="numpy", size=None
    )
    prefix = Prefix(
        name="env",
        path="/opt/env",
        python=_PYTHON,
        frameworks=("toy",),
        backend="uv",
        artifacts=(artifact,),
        build_artifacts=(),
    )
    tools = Tools(find(str(Path(__file__).parents[2]))).build_tools
    return Lock(environment=decided, base=base, prefixes=(prefix,), missing=(), tools=tools)


def with_packages(lock: Lock, workspace: Workspace, known: dict[str, Recipe], templates: dict[str, str]) -> Lock:
    """The lock with every Debian package pinned, as ``envbuild lock`` would pin them."""
    matrix = SimpleNamespace(systems=())
    made = SimpleNamespace(workspace=workspace, recipes=known, templates=templates, matrix=matrix, on_progress=ignore_progress)
    return debian_packages.pinned(cast(Tools, made), lock)


def workspace_with_recipe(root: Path, home: Path, shared: Workspace) -> Workspace:
    """A workspace whose only recipe is that of the toy framework.

    The guest and the templates are the real ones; downloads and bases are those of the test session.
    """
    (root / "images" / "recipes" / "toy").mkdir(parents=True)
    (root / "images" / "recipes" / "toy" / "smoke.py").write_text(
        '"""The toy\'s side of the smoke test."""\n', encoding="utf-8"
    )
    (root / "images" / "partials").symlink_to(shared.partials)
    home.mkdir()
    for name in ("bases", "downloads"):
        (home / name).symlink_to(getattr(shared, name).resolve())
    return Workspace(root=root, output=home, home=home)


def processes(matches: Callable[[list[str]], bool]) -> list[int]:
    """The processes of this machine for whose command line ``matches`` returns true."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if matches(words):
                found.append(int(entry.name))
    return found


def nap(number: int) -> int:
    """Seconds for a ``sleep`` process that a test wants to find again.

    No other test, and no other run of this test, uses the same number.
    """
    return 10_000_000 + os.getpid() * 100 + number


def sleeping(seconds: int) -> list[int]:
    """The processes whose command is exactly ``sleep <seconds>``; see :func:`nap`."""
    return processes(lambda words: [os.path.basename(words[0]), *words[1:2]] == ["sleep", str(seconds)])  # noqa: PTH119
