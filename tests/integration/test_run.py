"""`envbuild run` and `export` with a real engine.

A plain Debian with the tag of a locked environment stands in for its image.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from program import ROOT, Program, fresh_root
from signing import write_pair
from stand_in_registry import Registry

from envbuild.engine import bases
from envbuild.engine.client import Engine
from envbuild.files import sha256_of
from envbuild.pipeline import plan
from envbuild.pipeline.batch import Job
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
GPU = "tf-2.21.0-cuda12.5-py311-debian12"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder, so that the matrix is compiled only once for all copies of the checkout."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def program(tmp_path: Path, home: Path) -> Program:
    root = fresh_root(tmp_path / "root")
    for name in (NAME, GPU):
        shutil.copytree(ROOT / "images/environments" / name, root / "images/environments" / name)
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock", "DOCKER_CONFIG": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    return Program(root=root, home=home, environment=nowhere)


def tag_of(program: Program, name: str = NAME) -> str:
    workspace = Workspace(root=program.root, output=program.root / "images", home=program.home)
    (each,), _ = plan.candidates(Tools(workspace), [Job(name=name, request=name)])
    return each.tags[2]


@pytest.fixture
def built(program: Program, engine: Engine, debian12: bases.RealisedBase) -> Iterator[Program]:
    """The program with an engine that has an image with the tag of the environment."""
    program.environment["DOCKER_HOST"] = engine.endpoint
    tag = tag_of(program)
    engine.tag(debian12.image_id, tag)
    yield program
    engine.remove_unused(tag)


@pytest.mark.engine
def test_the_command_runs_in_the_folder_as_its_owner_and_its_exit_code_is_ours(built, folder):
    script = "cat; id -u > made; pwd; test -t 0 || echo no terminal; exit 7"
    done = subprocess.run(
        built.argv("run", NAME, "sh", "-c", script),
        input="read\n",
        capture_output=True,
        text=True,
        env=built.env(),
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == "read\n/workspace\nno terminal\n"
    made = folder / "made"
    assert made.stat().st_uid == folder.stat().st_uid and made.read_text() == f"{folder.stat().st_uid}\n"


@pytest.mark.engine
def test_the_plain_command_does_the_same_when_it_is_pasted(built, folder):
    told = built.run(
        "run", "--dry-run", "--env", "A=b c", NAME, "--", "sh", "-c", 'echo "$A" > pasted; exit 5', cwd=folder
    ).expect(0)
    pasted = subprocess.run(
        ["bash", "-c", told.out], cwd="/", env=built.env(), capture_output=True, text=True, timeout=300, check=False
    )
    assert pasted.returncode == 5, pasted.stderr
    assert (folder / "pasted").read_text() == "b c\n" and (folder / "pasted").stat().st_uid == folder.stat().st_uid


@pytest.mark.engine
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 41), (signal.SIGINT, 42)])
def test_a_signal_reaches_the_command(built, folder, number, code):
    script = "trap 'exit 41' TERM; trap 'exit 42' INT; touch ready; while :; do sleep 0.05; done"
    argv = built.argv("run", NAME, "bash", "-c", script)
    process = subprocess.Popen(argv, env=built.env(), cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + 300
        while not (folder / "ready").exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(300) == code
    finally:
        process.kill()


@pytest.mark.engine
def test_a_terminal_is_given_where_there_is_one(built, folder):
    import pty

    main, other = pty.openpty()
    argv = built.argv("run", "--no-mount", NAME, "sh", "-c", "test -t 0 && test -t 1 && echo yes")
    done = subprocess.Popen(argv, env=built.env(), cwd=folder, stdin=other, stdout=other, stderr=subprocess.DEVNULL)
    os.close(other)
    assert done.wait(300) == 0
    assert os.read(main, 100).strip() == b"yes"


def dry(program: Program, *argv: str, name: str = NAME, code: int = 0):
    return program.run("run", "--dry-run", "--json", *argv, name, cwd=program.root).expect(code).document


def test_without_an_engine_the_command_can_still_be_printed(program):
    told = dry(program)
    jsonschema.validate(told, json.loads(resources.files("envbuild.schemas").joinpath("run.json").read_text()))
    assert (told["origin"], told["built"], told["argv"][0]) == ("engine", False, "docker")
    assert told["argv"][-1] == tag_of(program)
    assert not any(word.startswith("--gpus") for word in told["argv"])
    asked = dry(program, "--gpus", "0,1", "--port", "9000:80", "--user", "image", name=GPU)["argv"]
    assert '--gpus="device=0,1"' in asked and "--publish=127.0.0.1:9000:80" in asked and "--ulimit=memlock=-1" in asked
    assert not any(word.startswith("--user") for word in asked)
    assert "--device=nvidia.com/gpu=all" in dry(program, "--gpus", "all", "--cdi", name=GPU)["argv"]
    podman = dry(program, "--with", "podman")
    assert [step[:2] for step in podman["steps"]] == [["envbuild", "save"], ["podman", "load"]]
    assert dry(program, "--with", "apptainer")["argv"][-2].startswith("oci:")


def test_a_published_image_is_named_by_its_digest_and_only_with_the_right_signature(program, registry: Registry, tmp_path):
    import composed

    from envbuild.compose.outputs.push import Tags, push
    from envbuild.compose.store import LayerStore
    from envbuild.model.progress import ignore_progress

    store = LayerStore(tmp_path / "store")
    tag = tag_of(program).rpartition(":")[2]
    source = f"{registry.host}/lab/dl"

    def published(name: str, lock: str) -> str:
        image = composed.image([composed.add(store, "base")], Labels={"org.envbuild.name": name, "org.envbuild.lock": lock})
        return push(image, store, source, Tags(moving=[tag], fixed=[]), ignore_progress).digest

    lock = sha256_of(program.root / "images/environments" / NAME / "lock.json")
    for labels in ((GPU, lock), (NAME, "0" * 64)):
        # Whoever may write to the registry can put the tag on another image, which has a valid signature of its own.
        published(*labels)
        for words in ((), ("--with", "podman"), ("--with", "apptainer")):
            refused = dry(program, "--from", source, *words, code=11)["error"]
            assert refused["code"] == "image-of-another-environment"
        refused = program.run("export", NAME, "--format", "compose", "--from", source, "--json").expect(11).document
        assert refused["error"]["code"] == "image-of-another-environment"
    digest = published(NAME, lock)
    told = dry(program, "--from", source)
    assert (told["origin"], told["digest"], told["argv"][-1]) == ("registry", digest, tag_of(program))
    assert told["steps"] == [["envbuild", "pull", NAME, "--from", source]]
    assert dry(program, "--from", source, "--with", "apptainer")["argv"][-2] == f"docker://{source}@{digest}"
    assert "--tls-verify=false" in dry(program, "--from", source, "--with", "podman")["argv"]
    program.environment["ENVBUILD_REGISTRY"] = source
    assert dry(program)["origin"] == "registry"
    _, public = write_pair(tmp_path)
    assert dry(program, "--key", str(public), code=11)["error"]["code"] == "unsigned"
    compose = program.run("export", NAME, "--format", "compose", "--from", source).expect(0).out
    assert f"image: {source}@{digest}" in compose
    assert dry(program, "--from", f"{registry.host}/lab/none")["origin"] == "engine"


def test_a_mounted_folder_gets_its_whole_path(program):
    """Docker takes a relative path for the name of a volume, and makes an empty one."""
    assert f"--volume={program.root}/images:/images:ro" in dry(program, "--mount", "images:/images:ro")["argv"]


@pytest.mark.parametrize("before", [[], ["--json"]])
def test_options_of_the_command_are_its_own(program, before):
    argv = [*before, "run", "--dry-run", "--no-mount", NAME, "pytest", "-v", "--json"]
    told = program.run(*argv).expect(0)
    words = told.document["argv"] if before else told.out.split()
    assert words[0] == "docker" and words[-3:] == ["pytest", "-v", "--json"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_bug(program, closed):
    script = f'"$@" {closed}'
    argv = ["bash", "-c", script, "bash", *program.argv("run", "--dry-run", "--no-mount", NAME)]
    done = subprocess.run(argv, env=program.env(), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "bug" in done.stderr) == (0, False), done.stderr
    assert closed.startswith((">", "<&- >")) or done.stdout.startswith("docker run"), done.stdout


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--gpus", "a b"], 2),
        (["--user", "me"], 2),
        (["--port", "0"], 2),
        (["--mount", "here"], 2),
        (["--shm-size", "much"], 2),
        (["--env", "1=2"], 2),
        (["--no-mount", "--folder", "/"], 2),
        (["--from", "nowhere"], 11),
        (["--from", "h.example/r", "--key", "/nowhere"], 5),
        (["--key", "/nowhere"], 2),
        (["--mount", "/no/such/folder:/x"], 2),
        (["--with", "apptainer", "--user", "1:1"], 2),
        (["--with", "apptainer", "--env", "HOME"], 2),
    ],
)
def test_what_cannot_be_meant_is_refused(program, argv, code):
    assert dry(program, *argv, code=code)["error"]["message"]


def test_json_without_a_dry_run_is_refused_before_anything_starts(program):
    """Standard output belongs to the command, so there is no place for a document."""
    for argv in (["run", "--json", NAME, "true"], ["--json", "run", NAME, "true"]):
        told = program.run(*argv).expect(2).document["error"]
        assert "--dry-run" in told["message"] and "leave --json out" in told["hint"]


def test_an_option_behind_the_name_is_no_command(program):
    assert "before NAME" in program.run("run", NAME, "--dry-run").expect(2).err


def test_files_are_written_once_and_not_over_others(program, tmp_path):
    argv = ["export", NAME, "--format", "devcontainer", "-o", str(tmp_path / "here")]
    program.run(*argv).expect(0)
    path = tmp_path / "here/.devcontainer/devcontainer.json"
    told = json.loads(path.read_text())
    assert told["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == "/opt/env/bin/python"
    program.run(*argv).expect(0)
    path.write_text("{}")
    assert program.run(*argv, "--json").expect(2).document["error"]["code"] == "file-exists"
    program.run(*argv, "--force").expect(0)
    assert json.loads(path.read_text()) == told


def test_what_is_in_the_way_is_told(program, tmp_path):
    argv = ["export", NAME, "-o", str(tmp_path), "--json", "--format"]
    (tmp_path / ".devcontainer").write_text("a file")
    (tmp_path / "compose.yaml").mkdir()
    for form in ("devcontainer", "compose"):
        assert program.run(*argv, form).expect(2).document["error"]["code"] == "not-writable"
    assert program.run(*argv, "compose", "--shm-size", "much").expect(2).document["error"]["code"] == "usage"


def test_a_taken_port_is_replaced_by_a_free_one(program, tmp_path):
    from envbuild.run_commands.model import Port

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        from envbuild.pipeline import running

        assert running.free_port(port) not in (port, 0)
    assert running.free_port(port) == port
    assert Port(host=1, container=2).host == 1


@pytest.mark.prove
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.parametrize("name", [NAME, GPU])
def test_the_programs_that_read_the_files_accept_them(program, name, engine, tmp_path):
    """check-jsonschema has the schema of Compose files; the program for development containers asks the engine for old
    containers.
    """
    program.run("export", name, "--format", "compose", "-o", str(tmp_path)).expect(0)
    program.run("export", name, "--format", "devcontainer", "-o", str(tmp_path)).expect(0)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    subprocess.run([tmp_path / "venv/bin/pip", "install", "-q", "check-jsonschema"], check=True, timeout=600)
    judge = [tmp_path / "venv/bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml"]
    subprocess.run(judge, check=True, timeout=300)
    npm = ["npm", "install", "--silent", "--prefix", tmp_path / "npm", "@devcontainers/cli"]
    subprocess.run(npm, check=True, timeout=600)
    reader = [tmp_path / "npm/node_modules/.bin/devcontainer", "read-configuration", "--workspace-folder", tmp_path]
    surroundings = {**os.environ, "DOCKER_HOST": engine.endpoint}
    done = subprocess.run(reader, check=True, timeout=300, capture_output=True, text=True, env=surroundings)
    assert json.loads(done.stdout)["configuration"]["workspaceFolder"] == "/workspace"
