"""Real locks from the real index: versions of the right time, the same bytes twice, and packages that can be imported."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from packaging.utils import canonicalize_name
from pythons import interpreter

import envbuild
from envbuild.errors import BuildError
from envbuild.index.client import Index
from envbuild.index.tool_settings import uv_variables
from envbuild.lock import checking, lock_file, making
from envbuild.model.environment import Base, Environment, Framework, Python, System
from envbuild.model.lock import Missing
from envbuild.model.progress import ignore_progress

pytestmark = [pytest.mark.network, pytest.mark.slow]

SCHEMA = json.loads((Path(envbuild.__file__).parent / "schemas" / "lock.json").read_text())
GLIBC = {"ubuntu16.04": "2.23", "ubuntu18.04": "2.27", "debian11": "2.31", "debian12": "2.36"}


def environment(package, version, python, system, newer, *, requirement="", constraints=()):
    """An environment like those of the resolver.

    It is written here, so that these tests depend on no row of the matrix.
    """
    framework = Framework(
        name=package, version=version, package=package, variant="x", requirements=(requirement or f"{package}=={version}",),
        constraints=constraints, recipe=package, released=newer, index="default", cuda_libraries="none", options={},
    )  # fmt: skip
    return Environment(
        name=f"{package}-{version}-py{python.replace('.', '')}-{system}", frameworks=(framework,),
        python=Python(version=python, provided_by="distribution", executable=f"/usr/bin/python{python}", packages=()),
        system=System(
            name=system, family=system.rstrip(".0123456789"), version="0", codename="", image=system, glibc=GLIBC[system],
            bootstrap_suite="", init_package="tini", init="/usr/bin/tini", packages=(),
        ),
        cuda=None, cudnn=None, nccl=None,
        base=Base(provider="distribution", image=system, is_default=True, repositories=(), packages=(), other_providers=()),
        driver_min=None, compute_capability=None, require_cuda=None, exclude_newer=newer,
    )  # fmt: skip


ENVIRONMENTS = {
    "tf-py27": environment("tensorflow", "1.12.0", "2.7", "debian11", "2019-01-04", constraints=("h5py<3",)),
    "tf-py36": environment("tensorflow", "1.12.0", "3.6", "ubuntu18.04", "2019-01-04", constraints=("h5py<3",)),
    "tf-gpu-py35": environment("tensorflow-gpu", "1.12.3", "3.5", "ubuntu16.04", "2019-08-20", constraints=("h5py<3",)),
    "tf-today": environment("tensorflow", "2.21.0", "3.11", "debian12", "2026-05-05"),
    "tf-cuda": environment(
        "tensorflow", "2.21.0", "3.11", "debian12", "2026-05-05", requirement="tensorflow[and-cuda]==2.21.0"
    ),
    "mxnet": environment("mxnet", "1.9.1", "3.9", "debian11", "2022-07-16", constraints=("numpy<1.24",)),
    "torch": environment("torch", "2.15.0", "3.11", "debian12", "2026-11-15"),
}


def no_base(target):
    return Missing(what=f"base {target.base.image}", why="not part of this test")


def make(env, downloads, on_progress=ignore_progress):
    asked = {each.name: ("numpy",) for each in env.frameworks}
    return making.make(
        env,
        making.LockInputs(
            recipe_requirements=asked, index=Index(), pin_base=no_base, downloads=downloads, on_progress=on_progress
        ),
    )


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def locks(downloads):
    """The lock of each environment; each is made only once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = make(ENVIRONMENTS[name], downloads)
        return made[name]

    return of


def versions(made, *, tools=False):
    prefix = made.prefixes[0]
    return {a.name: a.version for a in (prefix.build_artifacts if tools else prefix.artifacts)}


def sources(made):
    return {a.name for a in made.prefixes[0].artifacts if not a.filename.endswith(".whl")}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_real_locks_hold_and_fit_the_schema(locks, name):
    made = locks(name)
    assert checking.check(made, []) == []
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(lock_file.dumps(made)))
    assert "numpy" in versions(made)
    assert all(a.size and a.size > 500 for a in made.prefixes[0].artifacts)
    # A lock must mean the same everywhere, so it contains no host and no path of this machine.
    assert re.findall(r"https?://|file:|/opt/(?!env)", lock_file.dumps(made).replace(str(Path.home()), "file:")) == []


@pytest.mark.parametrize("name", ["tf-py27", "torch"])
def test_two_runs_with_nothing_in_common_write_the_same_bytes(locks, tmp_path, name):
    program = (
        "import json, sys; from pathlib import Path; from test_lock_real import *\n"
        "made = make(ENVIRONMENTS[sys.argv[1]], Path(sys.argv[2])); sys.stdout.write(lock_file.dumps(made))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(Path(__file__).parent), "TZ": "Asia/Tokyo"}
    again = subprocess.run(
        [sys.executable, "-c", program, name, str(tmp_path)], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert again.stdout == lock_file.dumps(locks(name))


def test_old_environments_get_the_packages_of_their_time(locks):
    assert versions(locks("tf-py36")).items() >= {"numpy": "1.15.4", "protobuf": "3.6.1", "tensorboard": "1.12.2"}.items()
    for name in ("tf-py27", "tf-py36", "tf-gpu-py35"):
        assert {"absl-py", "gast", "termcolor"} <= sources(locks(name))
        assert {"pip", "setuptools", "wheel"} <= versions(locks(name), tools=True).keys()
    assert {"enum34", "futures", "mock", "backports-weakref"} <= versions(locks("tf-py27")).keys()
    assert not {"enum34", "futures"} & versions(locks("tf-py36")).keys()
    assert versions(locks("tf-py27"), tools=True)["pip"] == "20.3.4"
    assert [locks(n).prefixes[0].backend for n in ("tf-py27", "tf-gpu-py35", "tf-py36")] == ["pip", "pip", "uv"]


def test_cuda_from_wheels_is_locked_file_by_file(locks):
    made = versions(locks("torch"))
    assert {"nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "triton"} <= made.keys()
    assert sources(locks("torch")) == set()
    assert "nvidia-cudnn-cu12" in versions(locks("tf-cuda"))
    assert "nvidia-cudnn-cu12" not in versions(locks("tf-today"))
    assert len(locks("mxnet").prefixes[0].artifacts) == len(versions(locks("mxnet")))


@pytest.mark.parametrize("name", ["tf-today", "tf-cuda", "torch", "mxnet"])
def test_another_resolver_chooses_the_same_versions(locks, tmp_path, name):
    """uv, which shares no code with envbuild, resolves the same requirements."""
    made = locks(name)
    env, framework = made.environment, made.environment.frameworks[0]
    (tmp_path / "constraints.txt").write_text("\n".join(framework.constraints))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("uv")), "pip", "compile", "-", "--python-version", env.python.version,
            "--python-platform", f"x86_64-manylinux_{env.system.glibc.replace('.', '_')}", "--exclude-newer", env.exclude_newer,
            "--only-binary", ":all:", "--no-header", "--no-annotate", "--constraints", str(tmp_path / "constraints.txt"),
        ],
        input="\n".join([*framework.requirements, "numpy"]),
        env={**os.environ, **uv_variables(Index().settings)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    assert {canonicalize_name(n): v for n, v in theirs.items()} == versions(made)


def test_progress_is_never_silent_for_long(tmp_path):
    times = [time.monotonic()]
    make(ENVIRONMENTS["tf-gpu-py35"], tmp_path, lambda _news: times.append(time.monotonic()))
    assert len(times) > 20
    longest = max(after - before for before, after in itertools.pairwise(times))
    assert longest < max(5.0, (times[-1] - times[0]) / 2)  # on a slow machine or index all times are longer


def test_without_a_network_it_ends_within_seconds_and_says_which_host(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], check=False).returncode:
        pytest.skip("this machine lets us make no network namespace")
    program = (
        "import sys; from pathlib import Path; from test_lock_real import *\n"
        "try:\n    make(ENVIRONMENTS['tf-today'], Path(sys.argv[1]))\n"
        "except BuildError as error:\n    print(error.code, error.exit_code, error.message)"
    )
    started = time.monotonic()
    done = subprocess.run(
        [unshare, "-n", sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    from urllib.parse import urlsplit

    host = urlsplit(Index().settings.index_url).hostname
    assert done.stdout.startswith(f"index-unreachable 7 The package index at {host} could not be used: ")
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("after_s", [1.2, 2.0, 3.0])
def test_killed_at_any_moment_the_next_run_goes_on(locks, tmp_path, after_s):
    place, cache = tmp_path / ENVIRONMENTS["tf-py27"].name / "lock.json", tmp_path / "cache"
    program = (
        "import sys; from pathlib import Path; from test_lock_real import *\n"
        "lock_file.write(Path(sys.argv[1]), make(ENVIRONMENTS['tf-py27'], Path(sys.argv[2])))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(place), str(cache)], env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    )
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not place.exists() or lock_file.dumps(lock_file.read(place)) == lock_file.dumps(locks("tf-py27"))
    for kept in cache.rglob("*"):
        if kept.is_file() and kept.parent.name != "metadata" and not kept.name.startswith("."):
            from envbuild.files import sha256_of

            assert sha256_of(kept) == kept.parent.name
    assert lock_file.dumps(make(ENVIRONMENTS["tf-py27"], cache)) == lock_file.dumps(locks("tf-py27"))


def requirements(path, artifacts):
    path.write_text("".join(f"{a.name}=={a.version} --hash=sha256:{a.sha256}\n" for a in artifacts))
    return str(path)


@pytest.mark.parametrize("name", ["tf-py27", "tf-py36"])
def test_an_old_lock_installs_by_its_hashes_alone_and_the_framework_computes(locks, tmp_path, name):
    prefix = locks(name).prefixes[0]
    python = interpreter(prefix.python.version)
    house, index = tmp_path / "house", Index()
    for artifact in prefix.artifacts + prefix.build_artifacts:
        index.fetch_artifact(artifact, house)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")} | {"PIP_CONFIG_FILE": os.devnull}

    def run(*argv, **more):
        done = subprocess.run(list(map(str, argv)), env=env | more, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if prefix.backend == "pip":
        run(python, "-m", "virtualenv", "--no-download", tmp_path / "v", PYTHONPATH=str(next(house.glob("virtualenv-*"))))
    else:
        run(python, "-m", "venv", tmp_path / "v")
    ours = tmp_path / "v" / "bin" / "python"
    install = [ours, "-m", "pip", "install", "--no-index", "--find-links", house, "--require-hashes", "--no-deps"]
    run(*install, "-r", requirements(tmp_path / "tools.txt", prefix.build_artifacts))
    run(*install, "--no-build-isolation", "-r", requirements(tmp_path / "all.txt", prefix.artifacts))
    assert "No broken requirements" in run(ours, "-m", "pip", "check")
    program = (
        "import tensorflow as tf, numpy\n"
        "print(' '.join([tf.__version__, numpy.__version__, str(tf.Session().run(tf.constant(2) + 3))]))"
    )
    said = run(ours, "-c", program)
    assert said.split() == ["1.12.0", versions(locks(name))["numpy"], "5"]


def test_a_lock_from_an_index_that_stops_answering_is_an_error_not_a_part(monkeypatch, downloads):
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    with pytest.raises(BuildError) as caught:
        make(ENVIRONMENTS["tf-today"], downloads)
    assert caught.value.code == "index-unreachable"
