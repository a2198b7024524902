"""Apt sources that fail during a build: other sources replace them, and nothing of that stays in the image.

The base is a Debian whose own source is dead, like that of a system past its end of life. The lock names three sources instead:
this machine's mirror, an archive whose index has expired, and another dead source, which fails in each step.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import render_locks as locks
import test_render_apt as toy
from test_render_apt import base, site  # noqa: F401 - fixtures

from envbuild import build_secret
from envbuild.engine import bases, host_apt
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.progress import ignore_progress
from envbuild.render import render
from envbuild.verify import leaks, unpackaged_files
from envbuild.verify.findings import Findings
from envbuild.verify.leaks import search

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

DEAD = "deb http://127.0.0.1:9/debian bookworm main"
TAG = "envbuild-test/apt-sources"
CONF = b'Acquire::http::Proxy::toy.invalid "http://me:proxy-password@127.0.0.1:9";\n'
BUILD = toy.BUILD.replace("mkdir /built;", "mkdir /built; echo toy-old > /built/packages;")
INSTALL = '{{ m.apt_install_listed("built", "/built/packages") }}\n' + toy.INSTALL


@dataclass(frozen=True, kw_only=True)
class Old:
    """The tag of a base with a dead source, and the apt lines that replace the source."""

    tag: str
    archive: tuple[str, ...]


@pytest.fixture
def old(engine: Engine, base: bases.RealisedBase, site: toy.Site, tmp_path: Path) -> Iterator[Old]:  # noqa: F811
    folder = tmp_path / "old"
    folder.mkdir()
    container = next(each for each in engine.client.containers.list() if each.attrs["Config"]["Cmd"][-1] == "8000")
    (folder / "toy.asc").write_bytes(container.exec_run(["cat", "/srv/ml/key.pub"]).output)
    (folder / "Dockerfile").write_text(
        f"FROM {base.reference}\nCOPY toy.asc /usr/share/keyrings/toy.asc\n"
        f"RUN rm -rf /etc/apt/sources.list.d/* && echo '{DEAD}' > /etc/apt/sources.list\n"
    )
    tag = f"{TAG}-base"
    engine.build(folder, tag=tag)
    mirror = host_apt.sources_for("bookworm", host_apt.host_sources(), codename=host_apt.codename())
    lines = [*(source.line() for source in mirror), f"deb [signed-by=/usr/share/keyrings/toy.asc] {site.url}/old ./"]
    yield Old(tag=tag, archive=(*lines, DEAD.replace("main", "contrib")))
    engine.remove_image(TAG)
    engine.remove_image(tag)


def built(engine: Engine, old: Old, lock: Lock, folder: Path, stage: str) -> str:
    """Build the image up to ``stage``. Up to "frameworks", with a compiled framework, it contains every kind of step that uses
    apt.
    """
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "program.cu").write_text("__global__ void nothing() {}\n")
    (folder / "sources").mkdir()
    with tarfile.open(folder / "sources" / "alpha.tar", "w") as archive:
        archive.add(folder / "source", "source")
    alpha = replace(locks.RECIPES["alpha"], builds=True, apt_build=("toy-old",), env={})
    scripts = {"recipes/alpha/build.j2": BUILD, "recipes/alpha/install.j2": INSTALL}
    text = render(lock, {**locks.RECIPES, "alpha": alpha}, {**toy._templates(), **scripts})["Dockerfile"]
    assert text.count("apt-install") >= 4 and "Check-Valid-Until" not in text
    toy.put_step(folder)
    (folder / "Dockerfile").write_text(toy._until(text, stage))
    host = host_apt.build_secrets().get(host_apt.CONF_SECRET, b"")
    return engine.build(
        folder, tag=TAG, secrets=build_secret.joined({host_apt.CONF_SECRET: host + CONF}), build_args={"BASE_IMAGE": old.tag}
    ).id


def lock_of(site: toy.Site, archive: tuple[str, ...]) -> Lock:  # noqa: F811
    lock = toy._compiled(site)
    return replace(lock, base=BaseLock(image=lock.base.image, digest="sha256:" + "1" * 64, bootstrap=None, archive=archive))


@pytest.mark.parametrize(
    ("stage", "toys"), [("os", set()), pytest.param("frameworks", {"toy-old", "toy-cudart"}, marks=pytest.mark.prove)]
)
def test_sources_that_take_the_place_of_dead_ones_leave_nothing_but_themselves(
    engine: Engine,
    old: Old,
    site: toy.Site,  # noqa: F811
    tmp_path: Path,
    stage: str,
    toys: set[str],
) -> None:
    image = built(engine, old, lock_of(site, old.archive), tmp_path / "context", stage)
    script = (
        "dpkg-query -W -f '${Package}\\n' 'toy-*' 2>/dev/null; echo --; cat /etc/apt/sources.list; echo --; "
        "grep -ril -e valid-until -e toy.invalid /etc/apt; ls -A /etc/apt/sources.list.d /tmp; find /var/lib/apt/lists -type f"
    )
    packages, sources, left = engine.run(image, ["sh", "-c", script], network="none").output.split("--\n")
    assert toys <= set(packages.split())
    assert [line for line in sources.splitlines() if not line.startswith("#")] == list(old.archive)
    assert set(left.split()) <= {"/etc/apt/sources.list.d:", "/tmp:"}
    words = leaks.secret_strings({host_apt.CONF_SECRET: CONF})
    assert "proxy-password" in words.values()
    found = Findings()
    info = engine.image(image)
    assert info is not None
    search(engine, info, words, unpackaged_files.Layers({}), found, ignore_progress)
    assert found.counts["searched_files"] > 1000 and not found.problems


def test_where_no_source_answers_the_build_stops(engine: Engine, old: Old, site: toy.Site, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(BuildError):
        built(engine, old, lock_of(site, (DEAD.replace("main", "contrib"),)), tmp_path / "context", "os")
    assert engine.image(TAG) is None
