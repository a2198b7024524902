"""Root file systems made from a mirror: their cache keys, the cache, and apt's sources."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
from lock_universe import environment

from envbuild import codec
from envbuild.engine import bases, bootstrap, host_apt
from envbuild.errors import BuildError
from envbuild.model.lock import BaseLock, Bootstrap, DebianPackage
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace


def packages(**versions: str) -> tuple[DebianPackage, ...]:
    return tuple(
        DebianPackage(name=n, version=v, sha256=hashlib.sha256(f"{n}{v}".encode()).hexdigest()) for n, v in versions.items()
    )


def made_of(**versions: str) -> Bootstrap:
    return Bootstrap(suite="bookworm", architecture="amd64", variant="minbase", packages=packages(**versions))


def rootfs(status: str) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        info = tarfile.TarInfo("./var/lib/dpkg/status")
        info.size = len(status.encode())
        tar.addfile(info, io.BytesIO(status.encode()))
    return whole.getvalue()


def test_the_key_follows_the_packages_and_not_their_order():
    assert bootstrap.key(made_of(a="1", b="2")) == bootstrap.key(made_of(b="2", a="1"))
    assert bootstrap.key(made_of(a="1", b="2")) != bootstrap.key(made_of(a="1", b="3"))
    assert bootstrap.reference(made_of(a="1")) == f"envbuild/base:bookworm-{bootstrap.key(made_of(a='1'))}"


def test_realised_packages_come_from_dpkg(tmp_path):
    status = """\
Package: a
Status: install ok installed
Version: 1:2.0-1
Description: words
 Version: not this one

Package: gone
Status: deinstall ok config-files
Version: 3
"""
    path = tmp_path / "rootfs.tar"
    path.write_bytes(rootfs(status))
    known = packages(a="1:2.0-1")
    assert bootstrap.realised(path, known) == known
    assert bootstrap.realised(path, ()) == (DebianPackage(name="a", version="1:2.0-1", sha256=""),)


def test_a_broken_cache_is_as_good_as_absent(tmp_path):
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path)
    wanted = made_of(a="1")
    folder = tmp_path / "bases" / f"bookworm-{bootstrap.architecture()}" / bootstrap.key(wanted)
    folder.mkdir(parents=True)
    for content in ("", "{", "{}", '{"layout": "1"}', "[]"):
        (folder / "manifest.json").write_text(content)
        assert bootstrap.cached(workspace, wanted) is None


@pytest.mark.parametrize(("content", "image", "made"), [
    (b"as made", None, []), (b"As made", None, ["again"]), (b"As made", "held", []),
])  # fmt: skip
def test_a_kept_base_goes_into_an_engine_only_as_it_was_made(tmp_path, monkeypatch, content, image, made):
    workspace, wanted = Workspace(root=tmp_path, output=tmp_path, home=tmp_path), made_of(a="1")
    wanted = replace(
        wanted,
        packages=tuple(replace(each, architecture="amd64", size=1, path="debian/pool/a.deb") for each in wanted.packages),
    )
    folder = tmp_path / "bases" / f"bookworm-{bootstrap.architecture()}" / bootstrap.key(wanted)
    folder.mkdir(parents=True)
    (folder / "rootfs.tar").write_bytes(content)
    digest = hashlib.sha256(b"as made").hexdigest()
    manifest = bootstrap.Manifest(bootstrap=wanted, archive_sha256=digest, layout=bootstrap.LAYOUT)
    (folder / "manifest.json").write_text(codec.dumps(manifest))
    imported, anew = [], []

    class Engine:
        def image(self, name):
            return SimpleNamespace(id=image, layers=(f"sha256:{digest}",)) if image else None

        def import_rootfs(self, path, name, **_):
            imported.append(path.read_bytes())
            return "sha256:1"

    def make(*_):
        anew.append("again")
        (folder / "rootfs.tar").write_bytes(b"as made")
        return bootstrap.Rootfs(path=folder / "rootfs.tar", bootstrap=wanted, archive_sha256=digest)

    monkeypatch.setattr(bootstrap, "make", make)
    base = BaseLock(image="debian:12", digest=None, bootstrap=wanted)
    real = bases.provide(base, environment(), Engine(), workspace, ignore_progress, lambda _: None)
    assert (anew, imported) == (made, [] if image else [b"as made"])
    assert real.how == "bootstrapped"


@pytest.mark.parametrize("content", [b"as made", b"damaged"])
def test_only_a_whole_base_of_another_run_saves_making_it(tmp_path, monkeypatch, content):
    workspace, wanted = Workspace(root=tmp_path, output=tmp_path, home=tmp_path), made_of(a="1")
    folder = tmp_path / "bases" / f"bookworm-{bootstrap.architecture()}" / bootstrap.key(wanted)
    folder.mkdir(parents=True)
    (folder / "rootfs.tar").write_bytes(content)
    digest = hashlib.sha256(b"as made").hexdigest()
    manifest = bootstrap.Manifest(bootstrap=wanted, archive_sha256=digest, layout=bootstrap.LAYOUT)
    (folder / "manifest.json").write_text(codec.dumps(manifest))
    monkeypatch.setattr(bootstrap.procs, "find", lambda _: "/bin/true")
    empty = SimpleNamespace(holds=lambda _: False)  # the packages are missing, so making the base begins with downloading them

    def make():
        return bootstrap.make(workspace, wanted, empty, ignore_progress)

    if content == b"as made":
        assert make().path == folder / "rootfs.tar"
    else:
        with pytest.raises(BuildError, match="not in the package store"):
            make()


def test_the_last_few_bases_of_a_suite_are_kept_and_nothing_of_another_layout(tmp_path):
    made = [made_of(apt=str(number)) for number in range(5)]
    for age, each in enumerate(reversed(made)):
        folder = tmp_path / bootstrap.key(each)
        folder.mkdir()
        (folder / "rootfs.tar").touch()
        manifest = bootstrap.Manifest(bootstrap=each, archive_sha256="", layout=bootstrap.LAYOUT)
        (folder / "manifest.json").write_text(codec.dumps(manifest))
        os.utime(folder, (1000 - age, 1000 - age))
    (tmp_path / "of-an-earlier-layout").mkdir()
    bootstrap.prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {bootstrap.key(each) for each in made[-3:]}


def test_the_apt_secret_has_a_line_for_each_source():
    sources = [host_apt.Source(uri="http://mirror.example/debian", suite=suite) for suite in ("bookworm", "bookworm-updates")]
    assert bootstrap.source_lines(sources).decode().splitlines() == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
    ]
