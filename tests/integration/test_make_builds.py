"""Real builds that are trained in their containers; the program is run as a person would run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import Answer, Program, own_program, share_bases
from pythons import of_pyenv

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, engine_endpoint: str) -> Iterator[Program]:
    """One workspace for all builds, so that they download and build shared parts only once."""
    folder = tmp_path_factory.mktemp("builds")
    share_bases(folder / "home")
    yield own_program(folder, {"DOCKER_HOST": engine_endpoint})
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _little_disk(forget_builds: Callable[[], None]) -> Iterator[None]:
    """No test here needs the steps that an earlier one built; they fill several GB of the disk."""
    yield
    forget_builds()


def run_docker(program: Program, *words: str) -> subprocess.CompletedProcess[str]:
    from envbuild.engine.choice import connect
    from envbuild.workspace import Workspace

    home = Workspace(root=program.root, output=program.root, home=program.home)
    cli = connect(home, {**os.environ, **program.environment}).cli.path
    return subprocess.run([cli, *words], capture_output=True, text=True, env=program.env(), check=False)


def docker(program: Program, *words: str) -> str:
    done = run_docker(program, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def can_pull(program: Program, image: str) -> bool:
    """Whether the engine can pull the image. Afterwards the image is removed."""
    if run_docker(program, "pull", "--quiet", image).returncode:
        return False
    docker(program, "rmi", "-f", image)
    return True


def remove_images(program: Program, name: str) -> None:
    tags = [line for line in docker(program, "images", "--format", "{{.Repository}}:{{.Tag}}").split() if f":{name}" in line]
    if tags:
        docker(program, "rmi", "-f", *tags)


def containers(program: Program, name: str) -> list[str]:
    return docker(program, "ps", "-aq", "--filter", f"label=org.envbuild.name={name}").split()


def workers(report: dict) -> dict[int, dict]:
    return {run["n"]: run for run in report["training"]}


def passed_on_cpu(answer: Answer) -> dict:
    """The JSON document of a ``make`` that passed. Checks what the report of every pass must contain."""
    document = answer.expect(0).document
    report = document["report"]
    assert document["status"] == "pass"
    assert {1, 2} <= workers(report).keys()
    for run in workers(report).values():
        assert run["accuracy"] >= 0.97
    checks = {(check["id"], check.get("n")): check["status"] for check in report["checks"]}
    assert checks[("ORACLE", 2)] == "pass"
    assert checks[("REPLICA", 2)] == "pass"
    assert {(run["n"]) for run in report["runs"]} >= {2}
    for kind in ("json", "html", "markdown", "junit"):
        assert Path(document["reports"][kind]).stat().st_size > 500
    return document


def evidence_of(program: Program, name: str) -> set[str]:
    content = json.loads((program.home / f"evidence/{name}.json").read_text())
    lock = program.run("show", name, "--json").expect(0).document["lock"]["sha256"]
    assert all(proof["lock"] == lock for proof in content["proofs"])
    return {proof["kind"] for proof in content["proofs"]}


def test_a_current_build_survives_being_killed_in_every_stage_and_then_does_nothing_twice(program):
    """kill -9 while locking, kill -9 while building, Ctrl-C while training.

    Then the command passes, and the next run has nothing to do.
    """
    words = ("make", "tf-2.21-cpu", "--progress", "plain", "-v")
    cut = program.interrupt(signal.SIGKILL, lambda text: "[lock] reading" in text, *words)
    assert cut.code == -signal.SIGKILL
    assert not list((program.root / "images").rglob("lock.json"))

    cut = program.interrupt(signal.SIGKILL, lambda text: text.count("[build]") > 12, *words)
    assert cut.code == -signal.SIGKILL
    program.run("lock", "--all", "--check").expect(0)
    program.run("render", "--all", "--check").expect(0)

    cut = program.interrupt(signal.SIGINT, lambda text: text.count("[smoke]") > 2, *words)
    cut.expect(130)
    assert cut.err.count("interrupted: ") == 1
    name = program.run("resolve", "tf-2.21-cpu", "--json").expect(0).document["name"]
    assert containers(program, name) == []
    assert evidence_of(program, name) == {"locked", "rendered", "built", "verified", "linked"}

    first = program.run("make", "tf-2.21-cpu", "--json")
    made = passed_on_cpu(first)
    assert made["name"] == name
    outcomes = {note["stage"]: note["outcome"] for note in made["stages"]}
    assert outcomes == {
        "resolve": "kept", "lock": "kept", "render": "kept", "build": "kept", "verify": "replayed", "linkcheck": "replayed",
        "smoke": "done",
    }  # fmt: skip
    assert evidence_of(program, name) == {"locked", "rendered", "built", "verified", "linked", "smoke-cpu"}
    assert program.leftovers() == []

    again = program.run("make", "tf-2.21-cpu", "--json")
    document = passed_on_cpu(again)
    assert document["nothing_to_do"]
    assert document["replayed"]
    assert document["report"] == made["report"]
    assert again.seconds < first.seconds  # the first run trained for a minute; benchmarks/repeated_verbs.py has the time limit

    text = program.run("make", "tf-2.21-cpu").expect(0)
    assert "stored verdict" in text.err
    assert "accuracy" in text.out.lower()
    assert str(document["reports"]["html"]) in text.out


def test_the_image_of_a_current_build_is_tagged_labelled_and_unprivileged(program):
    document = program.run("make", "tf-2.21-cpu", "--json").expect(0).document
    name = document["name"]
    assert {f"envbuild:{name}", "envbuild:tf-2.21-cpu"} <= set(document["tags"])
    assert any(re.fullmatch(rf"envbuild:{re.escape(name)}-[0-9a-f]{{8}}", tag) for tag in document["tags"])
    (image,) = json.loads(docker(program, "image", "inspect", document["image"]))
    assert image["Config"]["Labels"]["org.envbuild.lock"] == document["lock"]
    assert image["Config"]["User"] not in ("", "0", "root")
    who = docker(program, "run", "--rm", "--network", "none", document["image"], "sh", "-c", "id -u; cat /proc/1/comm")
    assert who.split()[0] != "0"
    assert who.split()[1] == "tini"
    # Two requests that mean the same environment are one job, and the image gets a tag for each.
    several = program.run("build", "tf-2.21-cpu", "tf-2.21.0-cpu", "--json").expect(0).document["environments"]
    assert [(each["request"], each["also"]) for each in several] == [("tf-2.21-cpu", ["tf-2.21.0-cpu"])]
    (tagged,) = json.loads(docker(program, "image", "inspect", "envbuild:tf-2.21.0-cpu"))
    assert tagged["Id"] == document["image"]


def test_verify_and_report_work_alone_on_a_built_image(program, tmp_path):
    program.run("verify", "tf-2.21-cpu").expect(0)
    for form in ("table", "markdown", "junit", "html"):
        target = tmp_path / form
        program.run("report", "tf-2.21-cpu", "--format", form, "-o", str(target)).expect(0)
        assert target.stat().st_size > 200
    path = program.run("make", "tf-2.21-cpu", "--json").expect(0).document["reports"]["json"]
    assert "the same" in program.run("report", path, path).expect(0).out
    slow = program.run("smoke", "tf-2.21-cpu", "--timeout", "3").expect(124)
    assert slow.seconds < 300


def test_the_reported_times_agree_with_a_stopwatch_outside_and_a_speedup_that_was_asked_for_counts(program):
    """Compare the times at which output lines arrive with the times that the container reports."""
    words = ("smoke", "tf-2.21-cpu", "--counts", "1,2", "--min-speedup", "2:50")
    answer, lines = program.timed(*words, "-v", "--progress", "plain", "--json")
    report = answer.expect(10).document["report"]
    assert "is required" in answer.document["error"]["message"] + answer.err

    def between(first: str, last: str) -> float:
        start = next(at for at, line in lines if line.endswith(first))
        return next(at for at, line in lines if line.endswith(last) and at > start) - start

    for n, phrase in ((1, "1 worker"), (2, "2 workers")):
        watched = between(f"{phrase}: train mnist", f"{phrase}: end" if n == 1 else f"{phrase}: train mnist check")
        reported = workers(report)[n]["seconds"]
        # A line can arrive late on a loaded machine. Only the time measured here includes evaluation and start.
        assert 0.4 * watched - 2 <= reported <= 1.1 * watched + 2, (n, reported, watched)

    (run,) = [run for run in report["runs"] if run["n"] == 2]
    watched = between("2 workers: bench weak", "2 workers: bench weak check")
    rounds = sum(each["solo_s"] + each["indep_s"] + each["dp_s"] for each in run["rounds"])
    assert 0.6 * watched - 2 <= rounds <= 1.1 * watched + 2
    ratios = [2 * each["solo_s"] / each["dp_s"] for each in run["rounds"]]
    assert statistics.median(ratios) == pytest.approx(run["speedup"]["median"], rel=1e-6)
    solo = statistics.median(each["solo_s"] for each in run["rounds"])
    assert run["images_per_s"]["solo"] == pytest.approx(run["batch_per_device"] * run["steps_per_round"] / solo, rel=0.02)


def test_an_image_that_is_gone_is_said_to_be_gone(program):
    remove_images(program, "tf-2.21")
    answer = program.run("smoke", "tf-2.21-cpu").expect(7)
    assert "envbuild build" in answer.err


def test_the_old_framework_trains_on_python_2_7(program):
    document = passed_on_cpu(program.run("make", "tf-1.12-cpu-py27-debian11", "--json"))
    assert document["report"]["framework"]["python"].startswith("2.7")
    assert document["report"]["framework"]["version"].startswith("1.12")
    remove_images(program, "tf-1.12")


@pytest.mark.prove  # the committed environment's evidence proves the same
def test_mxnet_trains(program):
    document = passed_on_cpu(program.run("make", "mxnet-1.9-cpu-py39-debian11", "--json"))
    assert document["report"]["framework"]["version"].startswith("1.9.1")
    remove_images(program, "mxnet-1.9")


@pytest.fixture(scope="module")
def base_with_python36(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local base image: a bootstrapped Debian of this machine's release, with this machine's Python 3.6 copied into it.

    It is made once, because a lock names the image's digest, and a second image would have another one.
    """
    if not (found := of_pyenv("3.6")):
        pytest.skip("this machine has no Python 3.6 to make a local base image of")
    source = found[-1].parents[1]
    rootfs = tmp_path_factory.mktemp("base") / "rootfs.tar"
    libraries = "libssl3,libffi8,libsqlite3-0,libreadline8,libbz2-1.0,liblzma5,zlib1g,libncursesw6,libgdbm6,libuuid1,libexpat1"
    subprocess.run(
        ["mmdebstrap", "--variant=minbase", f"--include=ca-certificates,{libraries}", "bookworm", str(rootfs)], check=True
    )
    with tarfile.open(rootfs, "a") as tar:
        tar.add(source, "opt/python3.6", filter=lambda info: None if info.name.endswith((".a", ".pyc", "/test")) else info)
        # The interpreter looks for its library in the folder where it was built. In the loader's folder it is found, too.
        for library in source.glob("lib/libpython3.6*.so.*"):
            tar.add(library, f"usr/lib/x86_64-linux-gnu/{library.name}")
    name = "envbuild-test/python36:latest"
    docker(
        program,
        "import",
        "--change",
        "ENV PATH=/opt/python3.6/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        str(rootfs),
        name,
    )
    rootfs.unlink()
    yield name
    docker(program, "rmi", "-f", name)


@pytest.mark.parametrize("verb", ["build", pytest.param("make", marks=pytest.mark.prove)])
def test_the_old_framework_is_built_upon_python_3_6_of_a_local_base(program, base_with_python36, verb):
    """The image is verified.

    Only the long variant also trains, because another test trains the same framework on Python 2.7.
    """
    words = ("tf-1.12-cpu-py36-debian12", "--base", base_with_python36, "--json")
    if verb == "build":
        program.run("lock", *words).expect(0)
    answer = program.run(verb, *words)
    document = passed_on_cpu(answer) if verb == "make" else answer.expect(0).document
    assert "py36" in document["name"]
    remove_images(program, document["name"])


# CUDA inside the framework's wheel, and CUDA as separate wheels, which are three times as large. test_smoketest.py has a small
# image for the same verdicts.
@pytest.mark.prove
@pytest.mark.parametrize("request_", ["pytorch-1.8-cuda10.2-py39-debian11", "pytorch-2.15-cuda13"])
def test_a_gpu_image_without_a_gpu_is_inconclusive_and_on_the_cpu_labelled_so(program, request_):
    answer = program.run("make", request_, "--json")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU: the image would use it")
    answer.expect(10)
    document = answer.document
    assert document["status"] == "inconclusive"
    assert document["error"]["exit_code"] == 10
    name = document["name"]
    assert not {"smoke-gpu", "smoke-cpu"} & evidence_of(program, name)
    again = program.run("make", request_, "--json").expect(10)
    assert again.document["nothing_to_do"]

    # Without `--expect cpu` this run is inconclusive, too: test_smoketest.py.
    expected = passed_on_cpu(program.run("make", request_, "--allow-cpu", "--expect", "cpu", "--json"))
    assert "A GPU image was tested on the CPU" in json.dumps(expected["report"].get("notes", ""))
    assert "A GPU image was tested on the CPU" in Path(expected["reports"]["html"]).read_text()
    assert evidence_of(program, name) >= {"smoke-cpu"}
    (image,) = json.loads(docker(program, "image", "inspect", expected["image"]))
    assert any(each.startswith("NVIDIA_VISIBLE_DEVICES=") for each in image["Config"]["Env"])
    remove_images(program, name)


def test_a_base_that_cannot_be_reached_stops_the_build_with_plan_lock_and_rendering_valid(program):
    from_registry = program.run("lock", "tf-1.12-cuda9", "--json").expect(0).document["locks"][0]
    name = from_registry["name"]
    folder = program.root / "images/environments" / name
    lock = json.loads((folder / "lock.json").read_text())
    base = f"{lock['base']['image'].partition(':')[0]}@{lock['base']['digest']}"
    if can_pull(program, base):
        pytest.skip("this machine's engine reaches the registry of the base: nothing is unreachable here")
    answer = program.run("make", "tf-1.12-cuda9")
    answer.expect(7)
    for part in ("ubuntu:16.04", "apt", "local"):
        assert part in answer.err
    program.run("lock", "--all", "--check").expect(0)
    program.run("render", "--all", "--check").expect(0)
    artifacts = [artifact for prefix in lock["prefixes"] for artifact in prefix["artifacts"]]
    assert len(artifacts) > 10
    assert all(len(artifact["sha256"]) == 64 for artifact in artifacts)
    assert lock["missing"]
    dockerfile = folder / "Dockerfile"
    assert "cuda" in dockerfile.read_text()
    linter = shutil.which("hadolint") or str(Path(program.argv()[0]).parent / "hadolint")
    config = Path(__file__).parents[2] / ".hadolint.yaml"
    done = subprocess.run([linter, "--config", str(config), str(dockerfile)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    again = program.run("make", "tf-1.12-cuda9", "--json").expect(7)
    assert again.document["error"]["code"] == "base-unreachable"
    assert json.loads((folder / "lock.json").read_text()) == lock


def test_the_engine_is_left_without_containers(program):
    names = [folder.name for folder in (program.root / "images/environments").iterdir()]
    assert len(names) >= 4
    assert [found for name in names for found in containers(program, name)] == []
