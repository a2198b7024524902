"""The names that images have only while a process works on them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from envbuild.engine.temporary_names import name_for


def test_builds_with_other_cache_folders_or_on_other_machines_have_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    name = name_for(tmp_path / "a", "opencv-5-cpu")
    assert name == name_for(tmp_path / "link", "opencv-5-cpu"), "the next process removes what a killed one left"
    assert name not in (name_for(tmp_path / "b", "opencv-5-cpu"), name_for(tmp_path / "a", "opencv-4-cpu"))
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert name != name_for(tmp_path / "a", "opencv-5-cpu")
