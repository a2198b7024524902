"""Files that builds download, and base images: each is pinned and has a source."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from real_matrix import FACTS

from envbuild import download_mirrors
from envbuild.matrix.types import Matrix
from envbuild.pipeline.locking import known_base
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def test_every_archive_has_a_document_and_a_mirror_and_serves_something(facts: Matrix) -> None:
    supplies = [
        *(each for row in facts.pythons for each in row.supplies),
        *(each for row in facts.cuda for each in row.providers),
    ]
    used = {name for each in supplies for name in (*each.files, each.installer)}
    for archive in facts.archives:
        assert archive.origin.source.startswith("https://") and archive.origin.checked, archive.key
        assert download_mirrors.split(archive.url)[0], f"{archive.url} has no mirror"
        assert archive.name in used, f"{archive.key} serves nothing"
    assert len({archive.sha256 for archive in facts.archives}) == len(facts.archives)


def test_every_supply_is_made_of_pinned_files_for_any_processor_of_ours(facts: Matrix) -> None:
    archives = {archive.name: archive for archive in facts.archives}
    for row in facts.pythons:
        for supply in row.supplies:
            assert supply.executable == f"/opt/python/{row.version}/bin/python{row.version}"
            names = [PurePosixPath(archives[name].url).name for name in supply.files]
            first = names[0] if names else ""
            if supply.by == "uv":
                assert first.startswith(f"cpython-{row.version}.") and len(names) == 1
                assert first.endswith("-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz")
            else:
                assert first.startswith(f"python-{row.version}."), f"{row.key}: the interpreter comes first"
                assert all("/linux-64/" in archives[name].url for name in supply.files)
                assert PurePosixPath(archives[supply.installer].url).name == "micromamba-linux-64"


def test_every_system_states_its_image_with_a_document_and_outlives_its_archive(facts: Matrix) -> None:
    for system in facts.systems:
        assert system.digest, f"{system.key} has no digest"
        assert system.origin.source_of("digest") != system.origin.source, f"{system.key}: who says its digest?"
        if system.origin.status == "end-of-life":
            assert system.archive and all(system.codename in line for line in system.archive), system.key
            security = f" {system.codename}-security "
            assert any(security in line for line in system.archive), (
                f"{system.key}: its image may hold a newer libc than its archive"
            )
            assert system.origin.source_of("archive") != system.origin.source


def test_a_digest_of_an_image_with_cuda_has_a_document_of_its_own_and_is_what_locks_take(facts: Matrix) -> None:
    known = [provider for cuda in facts.cuda for provider in cuda.providers if provider.digest]
    assert known
    for provider in known:
        assert provider.image.startswith("nvidia/cuda:") and provider.origin.source_of("digest") != provider.origin.source
    asked = parse(["cupy-13.6.0-cuda12.8-py312-ubuntu24.04"], matrix=facts)
    environment = resolve(facts, asked).environment
    of_image = {provider.image: provider.digest for provider in known}
    assert known_base(facts, environment).digest == of_image[environment.base.image]
