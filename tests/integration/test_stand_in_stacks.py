"""Stacks whose download hosts cannot be reached, built to the last step with a stand-in for these hosts.

The locks are the committed ones with other addresses, file names and hashes. Partials and recipes are the real ones.
`stand_in/make_site.py` makes small files with the names and versions of those of Ubuntu, NVIDIA, conda, PyTorch and the package
index. Debian 11 from mmdebstrap stands in for Ubuntu 16.04, and its Python 3.9 for 3.5 and 3.6. This proves the order of the
stages, every command and mount, and the files that stages pass on. It does not prove that the real files work.
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uv

from envbuild import build_context, build_secret, image_inputs, recipes, sbom
from envbuild import workspace as workspaces
from envbuild.engine import bases, bootstrap, host_apt
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.index.client import Index
from envbuild.lock import lock_file
from envbuild.model.environment import Framework, RemoteFile
from envbuild.model.lock import Artifact, BaseLock, Lock, Prefix
from envbuild.model.progress import ignore_progress
from envbuild.pipeline.incomplete_locks import unpinned_frameworks
from envbuild.render import prefixes, render
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PORT = 8000
# The setuptools of 2018 calls a method that Python 3.9 no longer has.
_OLD_NAMES = "echo 'HTMLParser.unescape = staticmethod(unescape)' >> /usr/lib/python3.9/html/parser.py"
# Real Debian packages in the stand-in's base: tools that steps run, and their libraries.
REAL = {
    "apt-transport-https", "ca-certificates", "cmake", "curl", "dumb-init", "g++", "gnupg", "libc6", "libgomp1", "libquadmath0",
    "make", "python2.7", "python3",
}  # fmt: skip
BASE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN --mount=type=tmpfs,target=/tmp \\
    --mount=type=secret,id=envbuild-apt,target=/tmp/sources.list \\
    --mount=type=secret,id=envbuild-apt-conf,target=/tmp/apt.conf,required=false \\
    set -eux; \\
    if [ -f /tmp/apt.conf ]; then export APT_CONFIG=/tmp/apt.conf; fi; \\
    apt-get -o Dir::Etc::SourceList=/tmp/sources.list update; \\
    apt-get -o Dir::Etc::SourceList=/tmp/sources.list install -y --no-install-recommends PACKAGES; \\
    COMMAND
"""
STACKS = ["two-gpu-server", pytest.param("cluster-2018", marks=pytest.mark.prove)]


@dataclass(frozen=True, kw_only=True)
class Site:
    """The stand-in: its address in builds, and the hashes of its files."""

    url: str
    manifest: dict[str, Any]
    read: Any


@pytest.fixture(scope="module")
def debian(engine: Engine, workspace: Workspace) -> bases.RealisedBase:
    lock = _lock("two-pythons-cpu")
    wanted = BaseLock(image="debian:11", digest=None, bootstrap=None)
    return bases.provide(wanted, lock.environment, engine, workspace, ignore_progress)


@pytest.fixture(scope="module")
def sources(workspace: Workspace) -> bytes:
    """The apt sources of this machine's mirror, as in builds whose lock pins no packages."""
    return bootstrap.source_lines(host_apt.with_host_options(bootstrap.mirror(workspace, "bullseye"), host_apt.host_options()))


def _derived(
    engine: Engine, base: bases.RealisedBase, folder: Path, packages: str, command: str, tag: str, sources: bytes
) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(BASE.replace("PACKAGES", packages).replace("COMMAND", command))
    secrets = {**host_apt.build_secrets(), "envbuild-apt": sources}
    return engine.build(folder, tag=tag, secrets=secrets, build_args={"BASE_IMAGE": base.reference}).id


@pytest.fixture(scope="module")
def ubuntu(
    engine: Engine, debian: bases.RealisedBase, sources: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Make the image that stands in for ubuntu:16.04.

    It has the libraries of conda's Python, and a Python with the right name.
    """
    tag = "envbuild-test/stand-in-ubuntu:16.04"
    libraries = "python3-distutils libsqlite3-0 libffi7 libssl1.1 libexpat1 libbz2-1.0 zlib1g libreadline8"
    command = f"ln -s python3.9 /usr/bin/python3.5; {_OLD_NAMES}"
    _derived(engine, debian, tmp_path_factory.mktemp("base"), libraries, command, tag, sources)
    yield tag
    engine.remove_image(tag)


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Lock:
    return _lock(request.param)


@pytest.fixture
def site(
    engine: Engine, debian: bases.RealisedBase, workspace: Workspace, sources: bytes, stack: Lock, tmp_path: Path
) -> Iterator[Site]:
    folder = tmp_path / "site"
    (folder / "real").mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(_spec(stack)))
    (folder / "make_site.py").write_text((HERE / "stand_in/make_site.py").read_text())
    for tool in {each for prefix in stack.prefixes for each in prefix.build_artifacts}:
        file = Index().fetch_artifact(tool, workspace.downloads)
        (folder / "real" / tool.filename).write_bytes(file.read_bytes())
    tag = "envbuild-test/stand-in-site"
    packages = "apt-utils g++ gnupg python3 python3-distutils"
    _derived(engine, debian, tmp_path / "tools", packages, "true", f"{tag}-tools", sources)
    made = f"FROM {tag}-tools\nCOPY . /\nRUN mkdir -p /srv && python3 /make_site.py\n"
    (folder / "Dockerfile").write_text(made)
    built = engine.build(folder, tag=tag).id
    container = engine.client.containers.run(built, ["python3", "-m", "http.server", "-d", "/srv", str(PORT)], detach=True)
    try:
        container.reload()
        address = next(iter(container.attrs["NetworkSettings"]["Networks"].values()))["IPAddress"]

        def read(path: str) -> bytes:
            content: bytes = container.exec_run(["cat", f"/srv/{path}"]).output
            return content

        probe = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/manifest.json')"
        _until(lambda: container.exec_run(["python3", "-c", probe]).exit_code == 0)
        yield Site(url=f"http://{address}:{PORT}", manifest=json.loads(read("manifest.json")), read=read)
    finally:
        container.remove(force=True)
        for name in (tag, f"{tag}-tools"):
            engine.remove_image(name)


def test_a_stack_is_built_to_the_last_step(
    engine: Engine, sources: bytes, ubuntu: str, stack: Lock, site: Site, tmp_path: Path
) -> None:
    assert unpinned_frameworks(stack), "its lock is complete: build the real one"
    lock = _standing_in(stack, site)
    assert not unpinned_frameworks(lock)
    tag = f"envbuild-test/{stack.environment.name}"
    said: list[str] = []
    try:
        image = engine.build(
            _context(lock, site, tmp_path / "context"),
            tag=tag,
            secrets=build_secret.joined(
                {
                    "envbuild-env": _settings(site),
                    "envbuild-apt": sources + f"deb [trusted=yes] {site.url}/ubuntu ./\n".encode(),
                    **{name: value for name, value in host_apt.build_secrets().items() if name == "envbuild-apt-conf"},
                }
            ),
            build_args={"BASE_IMAGE": ubuntu, "SOURCE_DATE_EPOCH": "1577836800"},
            on_progress=lambda news: said.append(news.message),
        )
        _check(engine, image.id, lock)
    except BuildError as error:
        pytest.fail("\n".join([error.message, *said[-80:]]), pytrace=False)
    finally:
        engine.remove_image(tag)


def _check(engine: Engine, image: str, lock: Lock) -> None:
    """Check that everything in the lock is in the image, at its place and in its version."""

    def lines(script: str) -> list[str]:
        return engine.run(image, ["bash", "-c", script], network="none").output.split()

    told = lines("envbuild-use")
    for prefix in lock.prefixes:
        assert prefix.name in told
        site = f"{prefix.path}/lib/python*/site-packages"
        found = (Path(line).name for line in lines(f"ls -d {site}/*.dist-info {site}/*.egg-info 2>/dev/null"))
        there = {_plain(re.sub(r"\.(dist|egg)-info$", "", name)) for name in found}
        assert {_plain(f"{each.name}-{each.version}") for each in prefix.artifacts} - there == set()
    packages = {each.name: each.version for each in lock.environment.base.packages}
    query = lines(f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {' '.join(packages)}")
    assert dict(zip(query[::2], query[1::2], strict=True)) == packages
    assert set(lines("apt-mark showhold; ls /etc/apt/sources.list.d; command -v nvcc; true")) == set(packages)
    for framework in lock.environment.frameworks:
        if framework.recipe in {"caffe", "caffe2", "torch7"}:
            assert lines(f"cat /opt/envbuild/installed/{framework.name}")
        if "distribution" in framework.options:
            assert lines(f"dpkg-query -W -f '${{Version}}' {framework.package}") == [framework.options["distribution"]]
            assert lines("ls -L /opt/envs/*/lib/python*/site-packages/cv2*.so")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_HERE = workspaces.find(str(ROOT))


def _lock(name: str) -> Lock:
    return lock_file.read(ROOT / "images/environments" / name / "lock.json")


def _torch(framework: Framework) -> dict[str, str]:
    """The file that the lock lists as missing, with its address on the stand-in."""
    index = urlsplit(framework.index).path.lstrip("/")
    name = framework.package
    return {
        "name": name,
        "version": framework.version,
        "filename": f"{name}-{framework.version}.whl",
        "project": name,
        "index": index,
    }


def _spec(lock: Lock) -> dict[str, Any]:
    """The files that the stand-in must serve.

    They are the pinned and missing files of the lock, and the packages that the Dockerfile installs.
    """
    artifacts = [
        {"name": each.name, "version": each.version, "filename": each.filename, "project": each.project, "index": "simple"}
        for prefix in lock.prefixes
        for each in prefix.artifacts
    ]
    artifacts += [_torch(framework) for framework in unpinned_frameworks(lock)]
    base = lock.environment.base
    debs: dict[str, dict[str, str]] = {"ubuntu": {}}
    for package in (*base.packages, *base.build_packages):
        debs.setdefault(package.repository, {})[package.name] = package.version
    text = render(lock, recipes.load(_HERE), recipes.templates(_HERE))["Dockerfile"]
    for line in re.findall(r"\bapt-install ([^;\\\n]+)", text):
        for word in line.split():
            name, _, version = word.partition("=")
            if name not in REAL and not name.startswith("-"):
                debs["ubuntu"][name] = version or "99:1.0"
    return {
        "artifacts": artifacts,
        "debs": debs,
        "files": [urlsplit(file.url).path for file in _remote(lock)],
        "sources": [each.name for each in lock.environment.frameworks if "repository" in each.options],
    }


def _remote(lock: Lock) -> list[RemoteFile]:
    pythons = [prefix.python for prefix in lock.prefixes]
    return [file for python in pythons for file in (*python.files, python.installer) if file is not None]


def _standing_in(lock: Lock, site: Site) -> Lock:
    """The same lock with the stand-in's addresses, file names and hashes, and without missing files."""

    def file(old: RemoteFile) -> RemoteFile:
        return replace(old, sha256=site.manifest["files"][urlsplit(old.url).path])

    def artifact(old: Artifact) -> Artifact:
        return replace(old, **site.manifest["artifacts"][old.filename])

    def prefix(old: Prefix) -> Prefix:
        python = old.python
        python = replace(python, files=tuple(map(file, python.files)), installer=python.installer and file(python.installer))
        own = next(plan.frameworks for plan in lock.environment.plans() if plan.name == old.name)
        added = []
        for framework in unpinned_frameworks(lock):
            if framework.name in own:
                told = _torch(framework)
                made = Artifact(sha256="", size=None, **{**told, "index": f"{site.url}/{told['index']}"})
                added.append(artifact(made))
        return replace(old, python=python, frameworks=tuple(own), artifacts=(*map(artifact, old.artifacts), *added))

    base = lock.environment.base
    repositories = tuple(
        replace(
            each,
            url=f"{site.url}/{each.name}",
            key_url=f"{site.url}/{each.name}/key.pub",
            key_fingerprint=site.manifest["fingerprints"][each.name],
        )
        for each in base.repositories
    )
    environment = replace(lock.environment, base=replace(base, repositories=repositories))
    pinned = tuple(prefix(each) for each in lock.prefixes)
    return replace(lock, environment=environment, prefixes=pinned, missing=())


def _settings(site: Site) -> bytes:
    host = urlsplit(site.url).hostname
    values = {
        "PIP_INDEX_URL": f"{site.url}/simple",
        "PIP_TRUSTED_HOST": host,
        "UV_DEFAULT_INDEX": f"{site.url}/simple",
        "ENVBUILD_ANACONDA_MIRROR": f"{site.url}/files",
        "ENVBUILD_GITHUB_MIRROR": f"{site.url}/files",
    }
    return "".join(f"export {name}='{value}'\n" for name, value in values.items()).encode()


def _context(lock: Lock, site: Site, folder: Path) -> Path:
    """The build context. It equals the real one, except that tools and sources come from the stand-in."""
    known, templates = recipes.load(_HERE), recipes.templates(_HERE)
    files: dict[str, bytes] = {path: text.encode() for path, text in render(lock, known, templates).items()}
    files["envbuild/lock.json"] = lock_file.dumps(lock).encode()
    files["envbuild/sbom.cdx.json"] = sbom.dumps(lock, lock_file.digest(lock)).encode()
    programs = {**image_inputs.guest_files(_HERE, lock, known), **image_inputs.step_files(_HERE)}
    files |= {path: source.read_bytes() for path, source in programs.items()}
    for prefix in lock.prefixes:
        if prefix.pip is not None:
            wheel = Index().fetch_artifact(prefix.pip, folder.parent / "pip")
            pip = build_context.pip_files(lock, prefix, wheel)
            if prefix.python.version != "2.7":
                pip["site-packages"] = f"{prefix.path}/lib/python3.9/site-packages\n".encode()
            files |= {f"envbuild/overlay/{prefix.name}/{path}": content for path, content in pip.items()}
    text = files["Dockerfile"].decode()
    if prefixes.FILE in files:
        files[f"envbuild/{prefixes.FILE}"] = files[prefixes.FILE]
    for path in set(re.findall(r"--mount=source=([^,\s]+)", text)) - files.keys() - {"step"}:
        given = _given(path, lock, site)
        assert given or any(name.startswith(f"{path}/") for name in files), f"nothing gives {path}"
        files |= given
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if path == "tools/uv" else 0o644)
    build_context.put_mount_points(folder)
    return folder


def _given(path: str, lock: Lock, site: Site) -> dict[str, bytes]:
    """The tools and sources of a build, from the stand-in."""
    if path == "tools":
        return {"tools/uv": Path(uv.find_uv_bin()).read_bytes()}
    if path.startswith("sources/"):
        return {path: site.read(path)}
    given = {}
    for owner in (each for each in lock.prefixes if path == f"tools/{each.name}"):
        for tool in (each for each in owner.build_artifacts if each.name in {"pip", "virtualenv"}):
            old = tool.name == "virtualenv" and owner.python.version != "2.7"
            given[f"{path}/{tool.name}.whl"] = _virtualenv() if old else site.read(f"simple/{tool.name}/{tool.filename}")
    return given


def _virtualenv() -> bytes:
    """A replacement for the virtualenv of 2019, which does not support Python 3.9."""
    buffer = io.BytesIO()
    text = "import sys, venv\nvenv.create(sys.argv[-1], symlinks=True)\n"
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("virtualenv.py", text)
    return buffer.getvalue()


def _until(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError("the stand-in is not served")
