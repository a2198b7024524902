"""The apt provider on a real engine: keys, exact versions, files with hashes, and nothing left in the image."""

from __future__ import annotations

import re
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from envbuild import build_context, build_secret, recipes
from envbuild import workspace as workspaces
from envbuild.engine import bases, bootstrap, host_apt
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.model.environment import AptPackage, AptRepository, ComputeCapability
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.progress import ignore_progress
from envbuild.render import render
from envbuild.verify import leaks, unpackaged_files
from envbuild.verify.findings import Findings
from envbuild.verify.leaks import search
from envbuild.workspace import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import render_locks as locks

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

# Two repositories, each signed with its own key. `cuda` has two versions of one package; `ml` has a package that needs it. The
# compiler of the toy framework is a script: it answers like nvcc, and its output says which headers it found.
MAKE_REPOSITORIES = r"""
set -eu
package() {  # repository name version depends
    mkdir -p "/tmp/$2-$3/DEBIAN" "/tmp/$2-$3/usr/local/cuda-9.0/lib64" "/srv/$1"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: amd64\n' "$2" "$3"
        printf 'Maintainer: toy\nDescription: toy\n%s' "$4"
    } > "/tmp/$2-$3/DEBIAN/control"
    echo "$3" > "/tmp/$2-$3/usr/local/cuda-9.0/lib64/$2.txt"
    if [ "$2" = toy-core ]; then
        mkdir "/tmp/$2-$3/usr/local/cuda-9.0/bin"
        cp /nvcc "/tmp/$2-$3/usr/local/cuda-9.0/bin/nvcc"
    fi
    if [ "$2" = toy-cudnn-dev ]; then
        mkdir -p "/tmp/$2-$3/usr/include"
        echo "#define TOY_CUDNN $3" > "/tmp/$2-$3/usr/include/toy_cudnn.h"
    fi
    dpkg-deb --build "/tmp/$2-$3" "/srv/$1/$2_$3_amd64.deb"
}
package cuda toy-cudart 9.0.176-1 ''
package cuda toy-cudart 9.0.252-1 ''
package ml toy-cudnn 7.4.2-1 'Depends: toy-cudart
'
package ml toy-nccl 2.3.7-1 ''
package cuda toy-core 9.0.176.3-1 'Depends: toy-cudart
'
package ml toy-cudnn-dev 7.4.2-1 'Depends: toy-cudnn (= 7.4.2-1)
'
for name in cuda ml; do
    gpg --batch --quiet --pinentry-mode loopback --passphrase '' \
        --quick-generate-key "$name <$name@toy.invalid>" rsa2048 sign never
    cd "/srv/$name"
    apt-ftparchive packages . > Packages
    apt-ftparchive release . > /tmp/Release && mv /tmp/Release Release
    gpg --batch --quiet --local-user "$name@toy.invalid" --armor --detach-sign --output Release.gpg Release
    gpg --armor --export "$name@toy.invalid" > key.pub
    gpg --with-colons --list-keys "$name@toy.invalid" | sed -n '/^fpr/{s/^fpr:*//;s/:$//;p;q}' > fingerprint
done
package old toy-old 1 ''
cd /srv/old
apt-ftparchive packages . > Packages
{ apt-ftparchive release . ; echo 'Valid-Until: Thu, 01 Jan 2015 00:00:00 UTC'; } > /tmp/Release && mv /tmp/Release .
gpg --batch --quiet --local-user ml@toy.invalid --clearsign --output InRelease Release
sha256sum /srv/ml/toy-nccl_*.deb | cut -d' ' -f1 > /srv/ml/sha256
mkdir "/srv/http:" && ln -s /srv "/srv/http:/toy.invalid"  # what it is asked for as a proxy
"""

MIRROR = host_apt.with_host_options(
    host_apt.sources_for("bookworm", host_apt.host_sources(), codename=host_apt.codename()), host_apt.host_options()
)

NVCC = r"""#!/bin/sh
set -eu
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 9.0, V9.0.176'; exit; fi
{ echo '#!/bin/sh'; echo "echo compiled for $1 with '$(cat /usr/include/toy_cudnn.h)' and stubs in $LIBRARY_PATH"; } > "$3"
chmod 0755 "$3"
"""
BUILD = """{{ m.run(m.source(framework)) }}
    mkdir /built; \\
    tar -xf /mnt/source.tar -C /built; \\
    nvcc sm_{{ framework.compute_capability.sass[0] | replace(".", "") | word }} -o /built/program /built/source/program.cu
"""
INSTALL = """{{ m.run(m.of("built", "/built/program", "packages")) }}
    cp /mnt/packages /usr/local/bin/program
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A web server inside the engine's own network, with the facts about its files that a lock needs."""

    url: str
    fingerprints: dict[str, str]
    sha256: str


@pytest.fixture(scope="module")
def base(engine: Engine, workspace: Workspace) -> bases.RealisedBase:
    pinned = bases.pin(_lock().environment, engine, workspace, ignore_progress)
    assert isinstance(pinned, BaseLock), pinned
    return bases.provide(pinned, _lock().environment, engine, workspace, ignore_progress)


@pytest.fixture(scope="module")
def site(engine: Engine, base: bases.RealisedBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    context = tmp_path_factory.mktemp("site")
    (context / "make.sh").write_text(MAKE_REPOSITORIES)
    (context / "nvcc").write_text(NVCC)
    (context / "nvcc").chmod(0o755)
    text = render(_lock(), locks.RECIPES, _templates())["Dockerfile"]
    preparing = _until(text, "os").replace("ca-certificates tini", "ca-certificates gnupg apt-utils python3")
    (context / "Dockerfile").write_text(preparing + '\nCOPY make.sh nvcc /\nRUN ["sh", "/make.sh"]\n')
    built = _build(engine, base, context, "envbuild-test/apt-site")
    container = engine.client.containers.run(built, ["python3", "-m", "http.server", "-d", "/srv", "8000"], detach=True)
    try:
        container.reload()
        address = next(iter(container.attrs["NetworkSettings"]["Networks"].values()))["IPAddress"]

        def content(name: str) -> str:
            return container.exec_run(["cat", f"/srv/{name}"]).output.decode().strip()

        _wait_until_serving(container)
        yield Site(
            url=f"http://{address}:8000",
            fingerprints={name: content(f"{name}/fingerprint") for name in ("cuda", "ml")},
            sha256=content("ml/sha256"),
        )
    finally:
        container.remove(force=True)
        engine.client.images.remove("envbuild-test/apt-site", force=True)


def _wait_until_serving(container: object) -> None:
    probe = ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/cuda/Release')"]
    for _ in range(600):
        if container.exec_run(probe).exit_code == 0:
            return
        time.sleep(0.1)
    raise AssertionError("the toy repositories are not served")


def _templates() -> dict[str, str]:
    root = Path(__file__).parents[2]
    found = recipes.templates(workspaces.find(str(root)))
    return {**found, "recipes/alpha/install.j2": "", "recipes/beta/install.j2": ""}


def _lock(site: Site | None = None) -> Lock:
    """The toy lock with CUDA 9.0 from apt on debian:12, and with packages of ``site`` if it is given."""
    lock = locks.gpu()
    system = replace(locks.NEW, name="debian12", image="debian:12", bootstrap_suite="bookworm", codename="bookworm")
    python = replace(lock.environment.python, version="3.11", executable="/usr/bin/python3.11", packages=("python3",))
    made = replace(lock.environment.base, image="debian:12")
    if site is not None:
        repositories = tuple(
            AptRepository(
                name=f"toy-{name}", url=f"{site.url}/{name}", suite="/", components="", key_url=f"{site.url}/{name}/key.pub",
                key_fingerprint=fingerprint,
            )
            for name, fingerprint in site.fingerprints.items()
        )  # fmt: skip
        packages = (
            AptPackage(name="toy-cudart", version="9.0.176-1", repository="toy-cuda", url="", sha256=""),
            AptPackage(name="toy-cudnn", version="7.4.2-1", repository="toy-ml", url="", sha256=""),
            AptPackage(
                name="toy-nccl", version="2.3.7-1", repository="toy-ml", url=f"{site.url}/ml/toy-nccl_2.3.7-1_amd64.deb",
                sha256=site.sha256,
            ),
        )  # fmt: skip
        made = replace(made, repositories=repositories, packages=packages)
    environment = replace(lock.environment, system=system, python=python, base=made)
    prefix = replace(lock.prefixes[0], python=python, backend="uv")
    return replace(lock, environment=environment, prefixes=(prefix,))


def _until(dockerfile: str, stage: str) -> str:
    """The text of the Dockerfile up to the end of ``stage``, so that this stage becomes the image."""
    parts = re.split(r"(?m)^(?=FROM )", dockerfile)
    names = [part.splitlines()[0].rsplit(" AS ", 1)[-1] for part in parts[1:]]
    return "".join(parts[: names.index(stage) + 2])


def _build(engine: Engine, base: bases.RealisedBase, context: Path, tag: str, **more: bytes) -> str:
    secrets = {"envbuild-apt": bootstrap.source_lines(MIRROR)} if base.how == "bootstrapped" else {}
    secrets |= {name.replace("_", "-"): content for name, content in more.items()}
    put_step(context)
    return engine.build(context, tag=tag, secrets=build_secret.joined(secrets), build_args={"BASE_IMAGE": base.reference}).id


def put_step(context: Path) -> None:
    """Write the scripts that run the steps, as in every build context."""
    build_context.put_mount_points(context)
    for name in ("step.sh", "apt.sh"):
        (context / "step" / name).write_bytes((Path(__file__).parents[2] / "images/partials" / name).read_bytes())


def _cuda_image(engine: Engine, base: bases.RealisedBase, lock: Lock, folder: Path, **secrets: bytes) -> str:
    text = render(lock, locks.RECIPES, _templates())["Dockerfile"]
    (folder / "Dockerfile").write_text(_until(text, "cuda"))
    return _build(engine, base, folder, "envbuild-test/apt-cuda", **secrets)


def test_cuda_comes_exact_held_and_leaves_no_repository(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    image = _cuda_image(engine, base, _lock(site), tmp_path)
    try:
        script = (
            "dpkg-query -W -f '${Package}=${Version}\\n' 'toy-*'; apt-mark showhold; "
            "cat /usr/local/cuda/lib64/toy-cudart.txt; ls -A /etc/apt/sources.list.d /tmp /cuda 2>/dev/null; "
            "cat /etc/ld.so.conf.d/envbuild-cuda.conf; command -v curl gpg; true"
        )
        answer = engine.run(image, ["sh", "-c", script], network="none")
        lines = answer.output.splitlines()
        assert lines[:6] == [
            "toy-cudart=9.0.176-1",
            "toy-cudnn=7.4.2-1",
            "toy-nccl=2.3.7-1",
            "toy-cudart",
            "toy-cudnn",
            "toy-nccl",
        ]
        assert lines[6] == "9.0.176-1"
        assert "/usr/local/cuda-9.0/lib64" in lines
        left = set(lines[7:]) - {
            "/etc/apt/sources.list.d:",
            "/tmp:",
            "",
            "/usr/local/cuda-9.0/lib64",
            "/usr/local/cuda-9.0/extras/CUPTI/lib64",
        }
        assert left == set(), "key, repository or tool left in the image"
    finally:
        engine.remove_image("envbuild-test/apt-cuda")


def test_a_proxy_of_apts_own_reaches_its_steps_and_stays_in_no_layer(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    lock = _lock(site)
    hidden = tuple(
        replace(each, url=each.url.replace(site.url, "http://toy.invalid")) for each in lock.environment.base.repositories
    )
    made = replace(lock.environment.base, repositories=hidden)
    lock = replace(lock, environment=replace(lock.environment, base=made))
    with pytest.raises(BuildError, match="source cannot be reached"):
        _cuda_image(engine, base, lock, tmp_path)
    proxy = site.url.replace("//", "//me:proxy-password@")
    settings = f'Acquire::http::Proxy::toy.invalid "{proxy}";\n'.encode()
    image = _cuda_image(engine, base, lock, tmp_path, envbuild_apt_conf=settings)
    try:
        shown = engine.run(image, ["dpkg-query", "-W", "toy-cudnn"], network="none").output
        assert shown.split() == ["toy-cudnn", "7.4.2-1"]
        found = Findings()
        words = leaks.secret_strings({"envbuild-apt-conf": settings})
        assert "proxy-password" in words.values()
        info = engine.image(image)
        assert info is not None
        search(engine, info, words, unpackaged_files.Layers({}), found, ignore_progress)
        assert found.counts["searched_files"] > 1000 and not found.problems
    finally:
        engine.remove_image("envbuild-test/apt-cuda")


def test_a_key_that_is_not_the_pinned_one_stops_the_build(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    swapped = replace(site, fingerprints={"cuda": site.fingerprints["ml"], "ml": site.fingerprints["ml"]})
    with pytest.raises(BuildError) as caught:
        _cuda_image(engine, base, _lock(swapped), tmp_path)
    assert any(f"is not {site.fingerprints['ml']}" in line for line in (caught.value.message, *caught.value.details))


def test_a_file_that_is_not_the_locked_one_stops_the_build(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        _cuda_image(engine, base, _lock(replace(site, sha256="0" * 64)), tmp_path)
    assert any("toy-nccl.deb: FAILED" in line for line in (caught.value.message, *caught.value.details))


def _compiled(site: Site, **base: object) -> Lock:
    """The toy lock with a framework that nvcc compiles, and without packages of an index."""
    lock = _lock(site)
    build = (
        AptPackage(name="toy-core", version="9.0.176.3-1", repository="toy-cuda", url="", sha256=""),
        AptPackage(name="toy-cudnn-dev", version="7.4.2-1", repository="toy-ml", url="", sha256=""),
    )
    framework = replace(
        lock.environment.frameworks[0], nvcc=True, options={"repository": "https://toy.invalid/alpha", "revision": "a" * 40},
        compute_capability=ComputeCapability(sass=("6.1",), ptx=()),
    )  # fmt: skip
    changed = replace(lock.environment.base, **{"build_packages": build, **base})  # type: ignore[arg-type]
    environment = replace(lock.environment, frameworks=(framework,), base=changed)
    prefix = replace(lock.prefixes[0], artifacts=(), build_artifacts=())
    return replace(lock, environment=environment, prefixes=(prefix,))


def _frameworks_image(engine: Engine, base: bases.RealisedBase, lock: Lock, folder: Path) -> str:
    """Build the image up to the installation of the compiled framework; its source is beside the Dockerfile."""
    (folder / "source").mkdir()
    (folder / "source" / "program.cu").write_text("__global__ void nothing() {}\n")
    (folder / "sources").mkdir()
    with tarfile.open(folder / "sources" / "alpha.tar", "w") as archive:
        archive.add(folder / "source", "source")
    alpha = replace(locks.RECIPES["alpha"], builds=True, apt_build=(), env={})
    scripts = {"recipes/alpha/build.j2": BUILD, "recipes/alpha/install.j2": INSTALL}
    text = render(lock, {**locks.RECIPES, "alpha": alpha}, {**_templates(), **scripts})["Dockerfile"]
    (folder / "Dockerfile").write_text(_until(text, "frameworks"))
    return _build(engine, base, folder, "envbuild-test/apt-compiled")


def test_a_source_is_compiled_by_the_pinned_nvcc_and_nothing_of_it_is_in_the_image(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    image = _frameworks_image(engine, base, _compiled(site), tmp_path)
    try:
        script = (
            "program; dpkg-query -W -f '${Package}=${Version}\\n' 'toy-*'; command -v nvcc; echo \"library: $LIBRARY_PATH\"; "
            "find / -xdev ! -path '/proc/*' "
            "\\( -name '*nvcc*' -o -name toy_cudnn.h -o -name '*toy-core*' -o -name program.cu -o -name '*toy-cuda.*' \\)"
        )
        lines = engine.run(image, ["sh", "-c", script], network="none").output.splitlines()
        assert lines == [
            "compiled for sm_61 with #define TOY_CUDNN 7.4.2-1 and stubs in /usr/local/cuda/lib64/stubs",
            "toy-cudart=9.0.176-1",
            "toy-cudnn=7.4.2-1",
            "toy-nccl=2.3.7-1",
            "library: ",
        ]
    finally:
        engine.remove_image("envbuild-test/apt-compiled")


def test_a_base_without_nvcc_stops_the_build_with_the_reason(
    engine: Engine, base: bases.RealisedBase, site: Site, tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        _frameworks_image(engine, base, _compiled(site, build_packages=()), tmp_path)
    reason = "there is no nvcc of CUDA 9.0 below /usr/local/cuda: debian:12 has to bring it"
    assert any(reason in line for line in (caught.value.message, *caught.value.details))
