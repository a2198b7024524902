"""Root file systems made from a mirror: their keys, the cache of them, apt's sources."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile

from envbuild import codec
from envbuild.engine import apt, bootstrap
from envbuild.model import (
    Bootstrap,
    DebianPackage,
)
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
    sources = [apt.Source(uri="http://mirror.example/debian", suite=suite) for suite in ("bookworm", "bookworm-updates")]
    assert bootstrap.source_lines(sources).decode().splitlines() == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
    ]
