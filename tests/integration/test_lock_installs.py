"""From a name to a framework that can be imported: a lock of the real matrix is installed by its hashes into a fresh prefix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from test_lock_real import interpreter, requirements

from envbuild import workspace
from envbuild.index.client import Index
from envbuild.lock import making
from envbuild.model.lock import Missing
from envbuild.pipeline import resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools

pytestmark = [pytest.mark.network, pytest.mark.slow]

# One case for each way to install a lock, with the oldest and newest Pythons.
SMALL = [("opencv-cpu-py313", "cv2")]
CASES = [
    ("theano-1.0.4-cpu-py27", "theano"),
    ("keras-2.2.4-cpu-py27", "keras"),
    ("tf-1.12.3-cpu-py36", "tensorflow"),
    ("chainer-7.8.1-cpu-py36", "chainer"),
    ("mxnet-1.9.1-cpu-py39", "mxnet"),
    ("pytorch-1.13.1-cuda11.7-py39", "torch"),
    ("opencv-4.11-cpu-py311", "cv2"),
    ("tf-2.21-cpu-py311", "tensorflow"),
    ("jax-cpu-py313", "jax"),
    ("tf-2.21-cpu-py313", "tensorflow"),
]


def locked(request: str, downloads: Path):
    """The lock that ``envbuild lock`` would write, with packages only."""
    tools = Tools(workspace.find(None, []))
    environment = resolving.resolve_buildable(tools, [request], Constraints()).environment
    known = tools.recipes
    return making.make(
        environment,
        making.LockInputs(
            recipe_requirements={each.name: known[each.recipe].requirements for each in environment.frameworks},
            ignored={each.name: known[each.recipe].ignore for each in environment.frameworks},
            index=tools.index,
            pin_base=lambda _: Missing(what="base", why="not part of this test"),
            downloads=downloads,
        ),
    )


def run(*argv: object, **more: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    env |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"} | more
    done = subprocess.run(list(map(str, argv)), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(prefix, house: Path, into: Path) -> Path:
    """Install the pinned files of ``prefix`` into a fresh prefix with the installer of images; return its Python."""
    ours = into / "v" / "bin" / "python"
    python = interpreter(prefix.python.version)
    tools, packages = (requirements(into / f"{kind}.txt", getattr(prefix, kind)) for kind in ("build_artifacts", "artifacts"))
    if prefix.backend == "pip":
        run(python, "-m", "virtualenv", "--no-download", into / "v", PYTHONPATH=str(next(house.glob("virtualenv-*"))))
        install = [ours, "-m", "pip", "install", "--no-index", "--find-links", house, "--require-hashes", "--no-deps"]
    else:
        run(python, "-m", "venv", "--without-pip", into / "v")
        uv = Path(sys.executable).with_name("uv")
        install = [uv, "pip", "install", "--python", ours, "--no-index", "--find-links", house, "--require-hashes", "--no-deps"]
    if prefix.build_artifacts:
        run(*install, "-r", tools)
    run(*install, "--no-build-isolation", "-r", packages)
    return ours


def prefix_of(request: str, folder: Path):
    """The lock of a request, and the Python of a fresh prefix with its packages."""
    made = locked(request, folder / "downloads")
    assert [gap.what for gap in made.missing] == ["base"]
    (prefix,) = made.prefixes
    house, index = folder / "house", Index()
    for artifact in (*prefix.artifacts, *prefix.build_artifacts):
        index.fetch_artifact(artifact, house)
    return made, installed(prefix, house, folder)


@pytest.mark.parametrize(
    ("request_", "module"), [*SMALL, *(pytest.param(*case, marks=pytest.mark.prove) for case in CASES)], ids=lambda value: value
)
def test_a_lock_of_any_python_installs_by_its_hashes_alone_and_imports(tmp_path, request_, module):
    made, python = prefix_of(request_, tmp_path)
    program = f"import sys, {module}; print('%d.%d %s' % (sys.version_info[:2] + ({module}.__version__,)))"
    python_version, version = run(python, "-c", program, CUDA_VISIBLE_DEVICES="", HOME=str(tmp_path)).split()[-2:]
    assert python_version == made.environment.python.version
    # The version of opencv-python has a build number that cv2.__version__ lacks.
    assert Version(version).release[:2] == Version(made.environment.frameworks[0].version).release[:2]


@pytest.mark.prove
@pytest.mark.parametrize("request_", ["chainer-2.0.0-cpu-py27", "chainer-3.5.0-cpu-py27"])
def test_releases_far_from_those_that_an_adapter_was_written_for_train_with_it(tmp_path, request_):
    made, python = prefix_of(request_, tmp_path)
    tools = workspace.find(None, [])
    adapter = tools.recipes / made.environment.frameworks[0].recipe / "smoke.py"
    options = ["--counts", "1,2", "--phases", "oracle,train", "--workload", "mnist", "--train-images", "2048"]
    assert "PASS" in run(python, tools.guest, "run", "--adapter", adapter, *options, HOME=str(tmp_path))
    # Only a few steps of the deeper network, so the test does not check whether it learns.
    report = tmp_path / "report.json"
    options = ["--counts", "1", "--phases", "train", "--workload", "cifar", "--train-images", "128", "--test-images", "64"]
    argv = [python, tools.guest, "run", "--adapter", adapter, *options, "--epochs", "1", "--json", report]
    subprocess.run(list(map(str, argv)), env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, check=False)
    checks = {check["id"]: check["status"] for check in json.loads(report.read_text())["checks"]}
    assert checks["RUN"] == "pass"
