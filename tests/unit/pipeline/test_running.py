"""What `run` starts: never an image that failed its smoke test, never another image than the one that was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild import build, procs
from envbuild.errors import EngineError, SmokeFailedError, UsageError
from envbuild.pipeline import image_checks, image_labels, running, saving
from envbuild.pipeline.running import RunOptions
from envbuild.workspace import Workspace

TAG = "envbuild:widget-1.2-11111111-22222222"
LOCK: Any = SimpleNamespace(environment=SimpleNamespace(name="widget-1.2"))
EACH: Any = SimpleNamespace(name="widget-1.2", tags=("", "", TAG), locked=SimpleNamespace(digest="1" * 64, lock=LOCK))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tools whose engine has the image. All ports of the machine are free."""
    monkeypatch.setattr(running, "free_port", lambda port: port or 40000)
    engine = SimpleNamespace(image=lambda reference: SimpleNamespace(id="sha256:a") if reference == TAG else None)
    return SimpleNamespace(
        engine=engine,
        policy=None,
        engine_or_none=lambda: engine,
        workspace=Workspace(root=tmp_path, output=tmp_path, home=tmp_path),
        cli_name=lambda name: name,
        say=lambda stage, message: None,
    )


def never() -> None:
    raise AssertionError("the image is there")


@pytest.mark.parametrize(("code", "is_refused"), [(0, False), (10, False), (9, True), (None, False)])
def test_an_image_that_failed_its_smoke_test_does_not_start_the_next_time_either(tools, monkeypatch, code, is_refused):
    verdict = None if code is None else SimpleNamespace(exit_code=code, sentence="no", hint="")
    monkeypatch.setattr(image_checks, "stored_verdict", lambda *_: verdict)
    if is_refused:
        with pytest.raises(SmokeFailedError):
            running.obtain(tools, EACH, RunOptions(), never)
    else:
        assert running.obtain(tools, EACH, RunOptions(), never).reference == TAG


@pytest.mark.parametrize(("last", "is_made"), [("sha256:a", False), ("sha256:b", True), (None, True)])
def test_other_programs_get_the_image_that_was_asked_for_and_not_the_last_one(tools, monkeypatch, last, is_made):
    """`save` writes the image that was last built of a name, whose inputs may be others."""
    record = None if last is None else SimpleNamespace(image=last)
    made: list[str] = []
    monkeypatch.setattr(build, "read_record", lambda *_: record)
    monkeypatch.setattr(image_checks, "stored_verdict", lambda *_: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    found = running.obtain(tools, EACH, RunOptions(program="podman"), lambda: made.append("image"))
    assert bool(made) == is_made and not found.missing


@pytest.mark.parametrize("program", ["podman", "apptainer"])
def test_the_printed_steps_save_the_image_of_this_checkout_by_this_matrix_and_policy(tools, program):
    words = ("--root=/here", "--matrix=/own.yaml", "--policy=/p.yaml")
    tools.workspace = replace(tools.workspace, options=words)
    step = running.local(tools, EACH, RunOptions(program=program)).steps[0]
    assert step[:-1] == ("envbuild", *words, "save", EACH.name, "--to")


DIGEST = f"sha256:{'2' * 64}"
OPTIONS = RunOptions(repository="h.example/lab/dl", key_file=Path("/keys/cosign.pub"))


def publish(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make every image published. Return the list of the images that are looked up from now on."""
    asked: list[str] = []

    def published(repository: str, tag: str) -> tuple[str, dict[str, str]]:
        asked.append(f"{repository}:{tag}")
        return DIGEST, {image_labels.NAME: EACH.name, image_labels.LOCK: EACH.locked.digest}

    monkeypatch.setattr(image_labels, "published", published)
    monkeypatch.setattr(image_checks, "stored_verdict", lambda *_: None)
    return asked


def test_docker_is_planned_to_start_its_own_image_and_no_registry_is_asked(tools, monkeypatch):
    asked = publish(monkeypatch)
    found = running.planned(tools, EACH, OPTIONS)
    assert (found.origin, found.reference, found.steps, asked) == ("engine", TAG, (), [])
    assert running.obtain(tools, EACH, OPTIONS, never) == found


def test_docker_is_planned_to_start_a_published_image_after_envbuild_has_pulled_it(tools, monkeypatch):
    publish(monkeypatch)
    tools.engine.image = lambda _reference: None
    found = running.planned(tools, EACH, OPTIONS)
    pull = ("envbuild", "pull", EACH.name, "--from", OPTIONS.repository, "--key", "/keys/cosign.pub")
    assert (found.origin, found.reference, found.digest, found.steps) == ("registry", TAG, DIGEST, (pull,))
    pulled = SimpleNamespace(pulled=SimpleNamespace(digest=DIGEST))
    monkeypatch.setattr("envbuild.pipeline.pulling.pull", lambda *_: pulled)
    assert running.obtain(tools, EACH, OPTIONS, never) == replace(found, steps=())


def test_podman_is_planned_to_pull_a_published_image_itself(tools, monkeypatch):
    publish(monkeypatch)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    options = replace(OPTIONS, program="podman")
    found = running.planned(tools, EACH, options)
    assert (found.origin, found.reference, found.steps) == ("registry", f"{OPTIONS.repository}@{DIGEST}", ())
    assert running.obtain(tools, EACH, options, never) == found


def test_an_image_that_failed_its_smoke_test_is_not_planned_to_start(tools, monkeypatch):
    verdict = SimpleNamespace(exit_code=9, sentence="no", hint="")
    monkeypatch.setattr(image_checks, "stored_verdict", lambda *_: verdict)
    with pytest.raises(SmokeFailedError):
        running.planned(tools, EACH, RunOptions())


def test_a_program_that_is_not_installed_is_told_before_anything_is_made(tools, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError) as error:
        running.obtain(tools, EACH, RunOptions(program="apptainer"), never)
    assert error.value.code == "missing-program"


@pytest.mark.parametrize("code", [0, 125])
def test_the_steps_save_with_the_same_tools_and_tell_who_failed(tools, monkeypatch, tmp_path, code):
    saved: list[Any] = []

    def save(used: object, name: str, target: saving.SaveTarget, compression: object) -> str:
        saved.append((used, name, compression))
        target.path.write_text("image")
        return "sha256:a"

    monkeypatch.setattr(saving, "save", save)
    monkeypatch.setattr(procs, "run", lambda argv, on_line: procs.Result(argv=tuple(argv), code=code, output="no space\n"))
    file = tmp_path / "image.tar"
    steps = (("envbuild", "save", "other words", "--to", f"docker-archive:{file}"), ("podman", "load", "--input", str(file)))
    found = running.Found(reference="localhost/image", origin="engine", steps=steps)
    if code:
        with pytest.raises(EngineError) as error:
            running.run_steps(tools, EACH, found, print)
        assert (error.value.code, error.value.details) == ("step-failed", ("no space",))
    else:
        running.run_steps(tools, EACH, found, print)
    assert saved == [(tools, EACH.name, None)]
    assert file.exists() == bool(code), "the copy for Podman is removed when it has the image"


@pytest.mark.parametrize(("origin", "is_named"), [("DOCKER_HOST", False), ("default socket", True), ("private engine", True)])
def test_docker_is_told_which_engine_has_the_image(tools, origin, is_named):
    """Its own context may lead to another one."""
    tools.engine.origin, tools.engine.endpoint = origin, "unix:///here.sock"
    tools.engine.cli, tools.engine.info = SimpleNamespace(path="/bin/docker"), SimpleNamespace(is_rootless=False)
    each = SimpleNamespace(name=EACH.name, lock=SimpleNamespace(environment=SimpleNamespace(cuda=None, custom=None)))
    started = running.start(tools, each, RunOptions(), running.Found(reference=TAG, origin="engine"))
    assert started.variables == ({"DOCKER_HOST": "unix:///here.sock"} if is_named else {})


CPU: Any = SimpleNamespace(
    name=EACH.name,
    lock=SimpleNamespace(
        environment=SimpleNamespace(cuda=None, custom=SimpleNamespace(ports=(), services=(SimpleNamespace(ports=(8888,)),)))
    ),
)
LOCAL = running.Found(reference=TAG, origin="engine")


def started(tools: Any, options: RunOptions, found: running.Found = LOCAL, *, is_rootless: bool = False) -> running.Start:
    tools.engine.origin, tools.engine.endpoint = "default socket", "unix:///here.sock"
    tools.engine.cli, tools.engine.info = SimpleNamespace(path=""), SimpleNamespace(is_rootless=is_rootless)
    return running.start(tools, CPU, options, found)


@pytest.mark.parametrize(("user", "told"), [("auto", "--user=0:0"), ("1234:5", "--user=1234:5"), ("image", "")])
def test_rootless_docker_runs_as_its_root_unless_another_user_is_asked_for(tools, tmp_path, user, told):
    argv = started(tools, RunOptions(user=user, folder=tmp_path), is_rootless=True).argv
    assert [word for word in argv if word.startswith("--user")] == ([told] if told else [])


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1:5000", True),
        ("localhost:5000", True),
        ("[::1]:5000", True),
        ("127.evil.example.org", False),
        ("h.org", False),
    ],
)
def test_only_a_registry_of_this_machine_may_be_without_tls(tools, host, is_here):
    """The name of any host may begin with 127."""
    found = running.Found(reference=f"{host}/lab@sha256:1", origin="registry")
    argv = started(tools, RunOptions(program="podman", repository=f"{host}/lab"), found).argv
    assert ("--tls-verify=false" in argv) == is_here


def test_a_port_that_the_user_takes_is_not_given_to_a_service(tools):
    """Docker refuses to publish one port twice."""
    ready = started(tools, RunOptions(ports=(running.Port(host=8888, container=80),)))
    first, second = (word for word in ready.argv if word.startswith("--publish"))
    assert (first, second) == ("--publish=127.0.0.1:8888:80", "--publish=127.0.0.1:40000:8888")
    assert "Port 8888 of this machine is in use" in ready.notes[0]


@pytest.mark.parametrize("name", ["a,b", 'a"b'])
def test_apptainer_is_given_no_mount_that_it_would_split(tools, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    mount = f"{folder}:/data"
    assert f"--volume={mount}" in started(tools, RunOptions(mounts=(mount,))).argv
    for options in (RunOptions(program="apptainer", mounts=(mount,)), RunOptions(program="apptainer", folder=folder)):
        with pytest.raises(UsageError, match="cannot be mounted"):
            started(tools, options)


def test_apptainer_gets_its_variables_by_two_ways(tools):
    ready = started(tools, RunOptions(program="apptainer", variables=("A=1,B=2", "C=3")))
    assert ready.variables == {"APPTAINERENV_A": "1,B=2"} and "--env=C=3" in ready.argv
