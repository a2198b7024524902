"""``apt.sh`` installs the pinned packages of a lock: all packages of a folder, or those that a list names, from several
folders.
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.engine import bases
from envbuild.engine.client import Engine
from envbuild.errors import BuildError

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "images/partials/apt.sh"
TAG = "envbuild-test/apt-script"
# name, version, dependencies, the folder of the build step
TOYS = (
    ("toy-core", "1:2.0", "", "build"),
    ("toy-core-dev", "1:2.0", "toy-core (= 1:2.0)", "build"),
    ("toy-more", "3~rc1", "toy-core", "tools"),
    ("toy-compiler", "4", "", "tools"),
)
DOCKERFILE = """\
FROM {base}
RUN --mount=type=tmpfs,target=/tmp --mount=type=bind,source=apt.sh,target=/tmp/apt.sh \\
    --mount=type=bind,source=build,target=/tmp/debs-1 --mount=type=bind,source=tools,target=/tmp/debs-2 \\
    --mount=type=bind,source=packages,target=/tmp/packages \\
    /bin/bash /tmp/apt.sh {words}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build context with the packages in the layout of a real one: a folder per step, each with SHA256SUMS."""
    made = tmp_path / "context"
    for name, version, depends, where in TOYS:
        tree = tmp_path / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "opt").mkdir()
        (tree / "opt" / name).write_text(f"{version}\n")
        needs = f"Depends: {depends}\n" if depends else ""
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: toy\n{needs}Description: toy\n"
        )
        target = made / where / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(target)], check=True, capture_output=True)
    for where in ("build", "tools"):
        lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted((made / where).glob("*"))]
        (made / where / "SHA256SUMS").write_text("".join(lines))
    (made / "apt.sh").write_bytes(SCRIPT.read_bytes())
    return made


@pytest.fixture
def remove(engine: Engine) -> Iterator[None]:
    yield
    engine.remove_image(TAG)


def built(engine: Engine, base: bases.RealisedBase, folder: Path, words: str, listed: str = "") -> dict[str, str]:
    """Build the image; return its toy packages, each with whether apt has marked it as manually installed."""
    (folder / "packages").write_text(listed)
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=base.reference, words=words))
    image = engine.build(folder, tag=TAG).id
    script = (
        "find /var/lib/apt/lists /var/cache/apt /var/log -type f; "
        "for each in $(dpkg-query -W -f '${Package}\\n' 'toy-*' 2> /dev/null); do "
        'echo "$each $(apt-mark showmanual "$each" | wc -l)"; done'
    )
    lines = engine.run(image, ["sh", "-c", script], network="none").output.splitlines()
    return {name: asked for name, asked in (line.split() for line in lines)}


@pytest.mark.usefixtures("remove")
def test_what_a_list_names_is_installed_from_whichever_folder_has_it(engine, debian12, folder):
    words = "listed /tmp/packages /tmp/debs-1 /tmp/debs-2"
    # The list also names libc6, which is already in the base.
    assert set(built(engine, debian12, folder, words, "libc6\ntoy-core\ntoy-more\n")) == {"toy-core", "toy-more"}


@pytest.mark.usefixtures("remove")
def test_a_list_of_what_is_there_already_installs_nothing(engine, debian12, folder):
    assert built(engine, debian12, folder, "listed /tmp/packages /tmp/debs-1 /tmp/debs-2", "libc6\n") == {}


@pytest.mark.usefixtures("remove")
def test_a_list_without_what_its_packages_need_stops_the_build(engine, debian12, folder):
    with pytest.raises(BuildError):
        built(engine, debian12, folder, "listed /tmp/packages /tmp/debs-1 /tmp/debs-2", "toy-more\n")


@pytest.mark.usefixtures("remove")
@pytest.mark.parametrize("words", ["listed /tmp/packages /tmp/debs-1 /tmp/debs-2", "install /tmp/debs-1 toy-core"])
def test_a_file_that_is_not_the_locked_one_stops_the_build(engine, debian12, folder, words):
    sums = folder / "build" / "SHA256SUMS"
    first, _, rest = sums.read_text().partition("  ")
    sums.write_text(f"{'0' * len(first)}  {rest}")
    with pytest.raises(BuildError) as caught:
        built(engine, debian12, folder, words, "libc6\ntoy-core\n")
    assert any("FAILED" in line for line in (caught.value.message, *caught.value.details))


@pytest.mark.usefixtures("remove")
def test_a_folder_is_installed_whole_and_what_was_not_asked_for_can_go_with_what_was(engine, debian12, folder):
    found = built(engine, debian12, folder, "install /tmp/debs-1 toy-core-dev")
    assert found == {"toy-core": "0", "toy-core-dev": "1"}


def test_the_packages_of_a_program_are_named_with_all_that_they_need(engine, debian12):
    """The build of a compiled framework calls this function for the framework's files; here it is called for the base's
    apt-get.
    """
    text = (ROOT / "images/environments/caffe-1.0.0-cpu-py39-debian11/Dockerfile").read_text()
    assert "list-packages-of --recursive /built/caffe/packages /built/caffe/tree" in text
    functions, program, _ = (ROOT / "images/partials/step.sh").read_text().partition("\nmkdir -p")
    assert program
    command = f"{functions}\nlist-packages-of --recursive /dev/stdout /usr/bin/apt-get"
    names = engine.run(debian12.reference, ["bash", "-c", command], network="none").output.split()
    assert {"libapt-pkg6.0", "libstdc++6", "libc6", "zlib1g"} <= set(names)
    assert "libcrypt1" in names  # libc6 needs it, and no program here is linked with it
    assert [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)] == []


def keystore(names: list[str], milliseconds: int) -> bytes:
    """A keystore in Java's format JKS with these certificates, like the one that installing Java makes."""
    data = struct.pack(">III", 0xFEEDFEED, 2, len(names))
    for name in names:
        content = hashlib.sha256(name.encode()).digest() * 9
        data += struct.pack(">IH", 2, len(name)) + name.encode() + struct.pack(">QH", milliseconds, 5) + b"X.509"
        data += struct.pack(">I", len(content)) + content
    salt = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    return data + hashlib.sha1(salt + data, usedforsecurity=False).digest()


@pytest.mark.usefixtures("remove")
def test_what_java_makes_anew_is_the_same_after_each_installation(engine, debian12, tmp_path):
    names = [f"debian:{letter}.pem" for letter in "cab"]
    tree, context = tmp_path / "toy-java", tmp_path / "context"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt").mkdir()
    (context / "java").mkdir(parents=True)
    control = "Package: toy-java\nVersion: 1\nArchitecture: amd64\nMaintainer: toy\nDescription: toy\n"
    (tree / "DEBIAN" / "control").write_text(control)
    server = "/usr/lib/jvm/java-17/lib/server"
    (tree / "DEBIAN" / "postinst").write_text(
        f"#!/bin/sh\nset -e\nmkdir -p /etc/ssl/certs/java {server}\n"
        f"cat /opt/made > /etc/ssl/certs/java/cacerts\ndate > {server}/classes.jsa\n"
    )
    (tree / "DEBIAN" / "postinst").chmod(0o755)
    (tree / "opt" / "made").write_bytes(keystore(names, 1_700_000_000_000))
    file = context / "java" / "toy-java_1_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(file)], check=True, capture_output=True)
    (context / "java" / "SHA256SUMS").write_text(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (context / "apt.sh").write_bytes(SCRIPT.read_bytes())
    (context / "Dockerfile").write_text(
        f"FROM {debian12.reference}\n"
        "RUN --mount=type=tmpfs,target=/tmp --mount=type=bind,source=apt.sh,target=/tmp/apt.sh "
        "--mount=type=bind,source=java,target=/tmp/debs mkdir /dev/shm/envbuild; "
        "touch -d '-10 seconds' /dev/shm/envbuild/before; "
        "/bin/bash /tmp/apt.sh install /tmp/debs toy-java\n"
    )
    image = engine.build(context, tag=TAG).id
    answer = engine.run(image, ["sh", "-c", f"sha256sum < /etc/ssl/certs/java/cacerts; ls {server}"], network="none")
    assert answer.output.split() == [hashlib.sha256(keystore(sorted(names), 0)).hexdigest(), "-"]
