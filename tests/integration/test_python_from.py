"""Pythons that builds download themselves, on a real engine. The test packs a Python of this machine as publishers do.

The real hosts cannot be reached here. A folder of the base stands in for them; it is named by the variables that uv and conda
read. A script that unpacks the given files replaces micromamba, which is downloaded, too.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import unavailable
from engine_toy import RECIPE, environment, lock, with_packages, workspace_with_recipe
from pythons import of_pyenv

from envbuild import build, recipes
from envbuild.engine import bases
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.image_inputs import BuildInputs
from envbuild.index.client import Index
from envbuild.model.environment import Python, RemoteFile
from envbuild.model.lock import Lock
from envbuild.model.progress import ignore_progress
from envbuild.render import render
from envbuild.verify import unpackaged_files
from envbuild.verify.findings import Findings
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]
REPOSITORY = "envbuild-test-python"
VERSION = "3.11"
INTERPRETERS = of_pyenv(VERSION)
LIBRARIES = ("libssl3", "libsqlite3-0", "libffi8", "libbz2-1.0", "liblzma5", "zlib1g")  # real archives contain their own
UV = "https://github.com/astral-sh/python-build-standalone/releases/download/1/cpython%2B1-install_only_stripped.tar.gz"
CONDA = "https://conda.anaconda.org/conda-forge/linux-64/python-3.11.7-h0_0.tar.bz2"
MICROMAMBA = "https://github.com/mamba-org/micromamba-releases/releases/download/1/micromamba-linux-64"
PLACES = {UV: "uv/1/cpython+1-install_only_stripped.tar.gz", CONDA: "conda/conda-forge/linux-64/python-3.11.7-h0_0.tar.bz2"}
PLACES[MICROMAMBA] = "github/mamba-org/micromamba-releases/releases/download/1/micromamba-linux-64"
UNPACKER = """#!/bin/sh
set -eu
test "$1 $2 $3 $4 $5 $7" = "create --yes --offline --no-rc --prefix --file"
mkdir -p "$6/conda-meta"
grep '^file://' "$8" | while read -r url; do tar -xf "${url#file://}" -C "$6"; done
"""


def packed(root: str) -> bytes:
    """The Python and its library below ``root``, without files that it does not need. It works wherever it is unpacked."""
    home = INTERPRETERS[-1].parent.parent
    whole = io.BytesIO()

    def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(info.name).parts
        skipped = {"__pycache__", "site-packages", "test", "idlelib", "tkinter"}
        return None if skipped & set(parts) or any(part.startswith("config-") for part in parts) else info

    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as tar:
        for path in (INTERPRETERS[-1], *sorted((home / "lib").glob(f"libpython{VERSION}.so*"))):
            runpath = f"{home}/lib".encode()
            content = path.read_bytes().replace(runpath, b"$ORIGIN/../lib".ljust(len(runpath), b"\0"))
            info = tarfile.TarInfo(f"{root}{path.parent.name}/{path.name}")
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
        tar.add(home / "lib" / f"python{VERSION}", f"{root}lib/python{VERSION}", filter=wanted)
    return whole.getvalue()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    if not INTERPRETERS:
        unavailable(f"this machine has no pyenv interpreter {VERSION} to pack")
    return {UV: packed("python/"), CONDA: packed(""), MICROMAMBA: UNPACKER.encode()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, workspace: Workspace) -> Workspace:
    folder = tmp_path_factory.mktemp("python")
    return workspace_with_recipe(folder / "root", folder / "home", workspace)


@pytest.fixture(scope="module")
def base(
    engine: Engine, debian12: bases.RealisedBase, files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bases.RealisedBase]:
    """Debian 12 with the mirror folder in it."""
    context = tmp_path_factory.mktemp("mirror")
    for url, content in files.items():
        (context / "mirror" / PLACES[url]).parent.mkdir(parents=True)
        (context / "mirror" / PLACES[url]).write_bytes(content)
    (context / "Dockerfile").write_text(f"FROM {debian12.reference}\nCOPY mirror/ /mirror/\n")
    tag = f"{REPOSITORY}:base"
    made = engine.build(context, tag=(tag,), on_progress=ignore_progress)
    yield replace(debian12, reference=tag, image_id=made.id)
    engine.remove_image(tag)


@pytest.fixture(autouse=True)
def _mirrors(monkeypatch: pytest.MonkeyPatch, base: bases.RealisedBase) -> None:
    monkeypatch.setattr(bases, "provide", lambda *_: base)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "file:///mirror/uv/")
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "file:///mirror/conda")
    monkeypatch.setenv("ENVBUILD_GITHUB_MIRROR", "file:///mirror/github")


def remote(url: str, files: dict[str, bytes]) -> RemoteFile:
    return RemoteFile(url=url, sha256=hashlib.sha256(files[url]).hexdigest())


def locked(engine: Engine, workspace: Workspace, python: Python) -> Lock:
    """The toy environment with another Python."""
    decided = environment()
    pinned = bases.pin(decided, engine, workspace, ignore_progress)
    assert not hasattr(pinned, "why"), pinned
    system = replace(decided.system, packages=(*decided.system.packages, *LIBRARIES))
    made = lock(pinned, Index(), replace(decided, python=python, system=system))  # type: ignore[arg-type]
    return replace(made, prefixes=(replace(made.prefixes[0], python=python),))


def made(engine: Engine, place: Workspace, workspace: Workspace, python: Python) -> build.BuildRecord:
    (place.recipes / "toy" / "install.j2").write_text("{## nothing ##}\n")
    (place.recipes / "toy" / "smoke.py").write_text("")
    own = {name: text for name, text in recipes.templates(place).items() if "toy" in name}
    templates = {**recipes.templates(workspace), **own}
    decision = with_packages(locked(engine, workspace, python), workspace, {"toy": RECIPE}, templates)
    rendering = render(decision, {"toy": RECIPE}, templates)
    inputs = BuildInputs(workspace=place, lock=decision, recipes={"toy": RECIPE}, rendering=rendering, index=Index())
    return build.build(engine, inputs, repository=REPOSITORY)


# Faults that additional steps plant in the image.
_HOME = f"/opt/python/{VERSION}"
_LIST = f"{unpackaged_files.FOLDER}/python-{VERSION}"
FAULTS = (  # the last fault changes the list of files
    f"RUN printf X >> {_HOME}/bin/python{VERSION}",
    f"RUN rm {_HOME}/lib/python{VERSION}/this.py",
    f"RUN touch {_HOME}/lib/python{VERSION}/evil.py",
    f"RUN sed -i 's#^.*/bin/python{VERSION}$#{'0' * 64}  {_HOME}/bin/python{VERSION}#' {_LIST}",
)


def differences(engine: Engine, image: str, python: Python, *faults: str, scratch: Path) -> dict[str, str]:
    """The differences between ``image`` with ``faults`` and the list of the downloaded Python's files."""
    tag = f"{REPOSITORY}:faults"
    if faults:
        scratch.joinpath("Dockerfile").write_text("\n".join([f"FROM {image}", "USER 0", *faults, ""]), encoding="utf-8")
        engine.build(scratch, tag=(tag,), on_progress=ignore_progress)
    name = f"python-{python.version}"
    path = f"{unpackaged_files.FOLDER}/{name}"
    kept = engine.run(image, ["-c", "true"], entrypoint=["/bin/sh"], network="none", collect=[path])
    layers = unpackaged_files.Layers({name: unpackaged_files.parse(kept.files[path])})
    for entry in engine.layer_files(tag if faults else image):
        layers.see(entry)
    found = Findings()
    layers.compare(found)
    if faults:
        engine.remove_image(tag)
    return {problem.where: problem.message for problem in found.problems}


@pytest.mark.parametrize("supply", ["uv", pytest.param("conda", marks=pytest.mark.prove)])
def test_a_fetched_python_is_alone_in_its_folder_and_runs_the_framework(
    supply: str, engine: Engine, place: Workspace, workspace: Workspace, files: dict[str, bytes]
) -> None:
    folder = f"/opt/python/{VERSION}"
    common = {"version": VERSION, "executable": f"{folder}/bin/python{VERSION}", "packages": ()}
    if supply == "uv":
        python = Python(provided_by="uv", files=(remote(UV, files),), **common)  # type: ignore[arg-type]
    else:
        installer = remote(MICROMAMBA, files)
        python = Python(provided_by="conda", files=(remote(CONDA, files),), installer=installer, **common)  # type: ignore[arg-type]
    record = made(engine, place, workspace, python)
    try:
        asked = "import sys, ssl, numpy; print(sys.base_prefix, sys.prefix, numpy.__version__)"
        found = engine.run(record.image, ["/opt/env/bin/python", "-c", asked], network="none").output.split()
        assert found[-3:-1] == [folder, "/opt/env"], found
        look = f"ls {folder}; command -v curl micromamba; ls /tmp /opt/python; grep -rlsF file:///mirror /etc /opt"
        left = engine.run(record.image, ["sh", "-c", f"{look}; true"], network="none").output.split()
        assert [word for word in left if word not in ("/tmp:", "/opt/python:")] == ["bin", "lib", VERSION], left
        assert differences(engine, record.tags[0], python, scratch=place.home) == {}
        assert differences(engine, record.tags[0], python, *FAULTS, scratch=place.home) == {
            f"{folder}/bin/python{VERSION}": "was overwritten by a later step (of python-3.11)",
            f"{folder}/lib/python{VERSION}/this.py": "missing (of python-3.11)",
            f"{folder}/lib/python{VERSION}/evil.py": "was not there after the installation",
            f"{unpackaged_files.FOLDER}/python-{VERSION}": "was overwritten by a later step (of python-3.11)",
        }
    finally:
        for tag in record.tags:
            engine.remove_image(tag)


def test_a_file_that_is_not_the_locked_one_stops_the_build(
    engine: Engine, place: Workspace, workspace: Workspace, files: dict[str, bytes]
) -> None:
    python = Python(
        version=VERSION,
        provided_by="uv",
        executable=f"/opt/python/{VERSION}/bin/python{VERSION}",
        packages=(),
        files=(replace(remote(UV, files), sha256="0" * 64),),
    )
    with pytest.raises(BuildError, match="build step failed") as caught:
        made(engine, place, workspace, python)
    assert "did NOT match" in "\n".join([caught.value.message, *caught.value.details])
