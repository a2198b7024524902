"""With --offline every function that would use the network is refused before it does so."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import git_sources, network
from envbuild.engine import choice, host_apt, package_store, registry
from envbuild.errors import BuildError
from envbuild.index.client import Index
from envbuild.index.settings import read_settings
from envbuild.model.lock import DebianPackage
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace

ELSEWHERE = "192.0.2.1"  # an address that is reserved for documentation


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")


def refused(call) -> str:
    with pytest.raises(BuildError) as caught:
        call()
    assert caught.value.code == "offline"
    return caught.value.message


def test_every_place_that_reaches_out_asks_first(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{ELSEWHERE}/simple")
    index = Index(read_settings())
    package = DebianPackage(name="a", version="1", sha256="0" * 64, size=1, path="debian/pool/a_1_all.deb")
    server = package_store.PackageServer(archive="debian", root=f"http://{ELSEWHERE}/")
    source = host_apt.Source(uri=f"http://{ELSEWHERE}/debian", suite="bookworm")
    with network.forbidden():
        assert ELSEWHERE in refused(lambda: choice.connect(workspace, {"DOCKER_HOST": f"ssh://somebody@{ELSEWHERE}"}))
        assert ELSEWHERE in refused(lambda: index.project_files("numpy"))
        assert "a_1_all.deb" in refused(lambda: package_store.Store(workspace).get(package, [server]))
        assert "mirror" in refused(lambda: host_apt.answering([source], workspace.bases))
        assert "x.git" in refused(
            lambda: git_sources.archive("https://example.org/x.git", "abc", workspace.downloads, ignore_progress)
        )
        assert "debian:12" in refused(lambda: registry.pull(None, "debian:12", ignore_progress))  # type: ignore[arg-type]
        assert "debian:12" in refused(lambda: registry.digest(None, "debian:12"))  # type: ignore[arg-type]
