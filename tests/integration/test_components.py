"""Packages from other components of Debian's archive than main, asked of this machine's mirror."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_matrix import FACTS

from envbuild.engine import bootstrap, host_apt
from envbuild.errors import BuildError
from envbuild.workspace import Workspace

SETS = FACTS.cuda
pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    from conftest import unavailable

    if not host_apt.sources_for("bookworm", host_apt.host_sources(), codename=host_apt.codename()):
        unavailable("this machine's apt names no Debian mirror")
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")


def packaged() -> dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], str]]:
    """The matrix's sets of packages: name → suite, components, packages, packages for compiling, CUDA."""
    systems = {row.name: row.bootstrap_suite for row in FACTS.systems}
    found = {each.name: each for row in SETS for provider in row.providers if (each := provider.package_set) is not None}
    return {
        name: (systems[each.system], each.components, each.packages, each.build_packages, each.cuda)
        for name, each in found.items()
    }


@pytest.mark.parametrize("name", sorted(packaged()))
def test_the_packages_of_the_matrix_bring_this_cuda_and_no_driver(place: Workspace, name: str) -> None:
    suite, components, packages, build_packages, cuda = packaged()[name]
    archive = bootstrap.archive(place, suite, components)
    base = archive.minimal()
    assert all("/main/" in package.path for package in base)
    libraries = archive.install(base, packages)
    runtime = next(package for package in libraries if package.name.startswith("libcudart"))
    assert runtime.version.startswith(f"{cuda}.")
    assert "/non-free/" in runtime.path
    assert not [package.name for package in libraries if package.name.startswith(("libcuda1", "nvidia-"))]
    compiler = archive.install((*base, *libraries), build_packages)
    assert next(package for package in compiler if package.name == "nvidia-cuda-toolkit").version.startswith(cuda)


def test_a_mirror_without_the_component_is_named(place: Workspace) -> None:
    with pytest.raises(BuildError) as caught:
        bootstrap.archive(place, "bookworm", ("no-such-part",))
    assert caught.value.code == "base-unreachable"
    assert "no packages of bookworm in the component no-such-part" in caught.value.message
