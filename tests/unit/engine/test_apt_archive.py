"""What the package lists of a mirror tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.engine.apt_archive import Archive
from envbuild.engine.host_apt import Source

LISTS = """Package: cmake
Version: 3.1
Installed-Size: 30
Size: 10240
SHA256: a

Package: empty
Version: 1
Size: 100

Package: git
Installed-Size: 5
Version: 1:2
Size: 1024
"""


def test_installed_sizes_are_compared_with_the_sizes_of_the_files(tmp_path: Path) -> None:
    archive = Archive(tmp_path, [Source(uri="http://mirror.example", suite="bookworm")], "amd64")
    (tmp_path / "state/lists/mirror.example_dists_bookworm_main_binary-amd64_Packages").write_text(LISTS)
    assert archive.unpacked_ratios() == pytest.approx({"cmake": 3.0, "git": 5.0})
