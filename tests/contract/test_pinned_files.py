"""Files that rows pin by hash are wheels of exactly that build and Python, on an index that only some users can reach."""

import pytest
from packaging.version import Version

from envbuild import workspace
from envbuild.lock.available_versions import version_of
from envbuild.lock.target import Target, read_requirement
from envbuild.matrix import cache

MATRIX = cache.load(workspace.find(None, []))
PINNED = [
    pytest.param(release, variant, pinned, id=pinned.filename)
    for table in MATRIX.frameworks
    for release in table.releases
    for variant in release.variants
    for pinned in variant.files
]


@pytest.mark.parametrize(("release", "variant", "pinned"), PINNED)
def test_a_pinned_file_is_of_its_build(release, variant, pinned):
    assert version_of(pinned.filename, variant.package) == Version(release.version + variant.local_version)
    assert Target(python=pinned.python, glibc=variant.glibc).rank_of_wheel(pinned.filename) is not None
    assert pinned.python in variant.python
    assert variant.index != "default"
    assert pinned.source.startswith("https://")
    assert all(read_requirement(text).name for text in pinned.requires)


def test_no_hash_stands_for_two_files():
    by_hash = {}
    for _, variant, pinned in (param.values for param in PINNED):
        assert by_hash.setdefault(pinned.sha256, (variant.index, pinned.filename)) == (variant.index, pinned.filename)
