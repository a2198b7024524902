"""Bad input and faults: the program gives one clear error and the documented exit code, and leaves no unfinished file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from program import ROOT, Program, own_program

CURRENT = "tf-2.21-cpu"
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
# An unreachable index: nothing listens on the discard port of loopback, so connections fail at once.
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("faults")
    return own_program(folder)


@pytest.fixture
def own(tmp_path: Path) -> Program:
    """A program whose facts the test may damage."""
    return own_program(tmp_path)


def one_error(err: str) -> str:
    """The only error of a run, as one text."""
    assert err.count("error: ") == 1, err
    assert "hint: " in err
    return err[err.index("error: ") :]


VERBS = ["show", "resolve", "explain", "lock", "render", "build", "verify", "smoke", "make"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelt_name_is_4_and_names_the_nearest(program, verb):
    answer = program.run(verb, "tensorfow-2.21-cpu", timeout=60).expect(4)
    assert "tensorflow" in one_error(answer.err)


def test_an_unknown_version_is_4_and_lists_the_known_ones(program):
    answer = program.run("make", "tf-99.1", timeout=60).expect(4)
    text = one_error(answer.err)
    assert "99.1" in text
    assert "2.21" in text


def test_an_impossible_combination_is_3_with_rows_sources_and_alternatives(program):
    answer = program.run("make", "tf-1.12-cuda10", "--json", timeout=60).expect(3)
    error = answer.document["error"]
    assert error["conflicts"]
    assert all(conflict["row"] and conflict["reason"] and conflict["source"] for conflict in error["conflicts"])
    assert error["alternatives"]
    for alternative in error["alternatives"]:
        program.run("resolve", alternative["name"], timeout=60).expect(0)


def test_a_driver_that_is_too_old_is_3_and_says_what_it_would_take(program):
    answer = program.run("resolve", "tf-1.12-cuda9", "--driver", "375.26", timeout=60).expect(3)
    assert "384" in one_error(answer.err)


def test_a_refusal_validates_against_the_published_schema(program):
    import jsonschema

    schema = json.loads((Path(__file__).parents[2] / "envbuild/schemas/refusal.json").read_text())
    for words, code in ((["resolve", "tf-1.12-cuda10"], 3), (["resolve", "nothing-1"], 4), (["resolve"], 2)):
        document = program.run(*words, "--json", timeout=60).expect(code).document
        jsonschema.Draft202012Validator(schema).validate(document)


def test_broken_yaml_is_5_with_file_and_line_and_all_problems_at_once(own):
    path = own.root / "matrix/drivers.yaml"
    lines = len(path.read_text().splitlines())
    path.write_text(path.read_text() + "surprise: 1\nunheard: 12.10\n")
    answer = own.run("list", timeout=60).expect(5)
    text = one_error(answer.err)
    assert f"drivers.yaml:{lines + 1}" in text
    assert f"drivers.yaml:{lines + 2}" in text
    for verb in ("make", "resolve"):
        own.run(verb, CURRENT, timeout=60).expect(5)
    own.run("matrix", "check", timeout=60).expect(5)


def test_a_broken_lock_is_5_and_says_how_to_make_it_again(own):
    name = own.run("resolve", CURRENT, "--json", timeout=60).expect(0).document["name"]
    lock = own.root / "images/environments" / name / "lock.json"
    lock.parent.mkdir(parents=True)
    lock.write_text('{"environment": {')
    answer = own.run("make", CURRENT, timeout=60).expect(5)
    assert "lock" in one_error(answer.err)
    assert lock.read_text() == '{"environment": {'


def test_evidence_that_cannot_be_read_is_5(own):
    name = own.run("resolve", CURRENT, "--json", timeout=60).expect(0).document["name"]
    own.run("lock", CURRENT, env=NO_ENGINE, timeout=300).expect(0)
    path = own.root / f"images/evidence/{name}.json"  # the path of the committed evidence
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[")
    one_error(own.run("show", CURRENT, timeout=60).expect(5).err)


def test_no_engine_is_6_and_plan_lock_and_rendering_stand(own):
    answer = own.run("make", CURRENT, env=NO_ENGINE, timeout=300).expect(6)
    assert "DOCKER_HOST" in one_error(answer.err)
    own.run("render", "--all", "--check", timeout=60).expect(0)
    own.run("lock", "--all", "--check", timeout=60).expect(0)
    for verb in ("build", "verify", "smoke"):
        own.run(verb, CURRENT, env=NO_ENGINE, timeout=60)
    answer = own.run("engine", "status", "--json", env=NO_ENGINE, timeout=60).expect(6)
    assert answer.document["error"]["exit_code"] == 6


def test_an_unreachable_index_is_7_at_once_and_leaves_no_lock(own):
    answer = own.run("make", CURRENT, env={**NO_INDEX, **NO_ENGINE}, timeout=120).expect(7)
    text = one_error(answer.err)
    assert "index" in text
    assert answer.seconds < 60
    assert not list((own.root / "images").rglob("lock.json"))


def test_build_verify_and_smoke_say_what_comes_first(own):
    answer = own.run("build", CURRENT, timeout=60).expect(5)
    assert "envbuild lock" in one_error(answer.err)


@pytest.mark.network
def test_a_stale_lock_is_5_names_the_row_and_is_never_relocked(own):
    own.run("lock", CURRENT, env=NO_ENGINE, timeout=300).expect(0)
    (lock,) = (own.root / "images/environments").glob("*/lock.json")
    before = lock.read_bytes()
    decision = json.loads(before)
    decision["environment"]["python"]["version"] = "3.4"
    lock.write_text(json.dumps(decision, indent=2) + "\n")
    changed = lock.read_bytes()
    answer = own.run("make", lock.parent.name, env=NO_ENGINE, timeout=60).expect(5)
    assert "--relock" in one_error(answer.err)
    assert "3.4" in answer.err
    assert lock.read_bytes() == changed
    own.run("lock", "--all", "--check", timeout=60).expect(5)
    own.run("lock", CURRENT, "--relock", env=NO_ENGINE, timeout=300).expect(0)
    assert lock.read_bytes() == before


@pytest.mark.network
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_lock_cut_short_leaves_nothing_half_written_and_the_next_goes_on(own, number, code):
    cut = own.interrupt(number, lambda text: "[lock] reading" in text or "[lock] asking" in text, "lock", CURRENT)
    assert cut.code == code
    assert "Traceback" not in cut.err
    if code == 130:
        assert cut.err.count("interrupted: ") == 1
    assert not list((own.root / "images").rglob("lock.json"))
    own.run("lock", CURRENT, env=NO_ENGINE, timeout=300).expect(0)
    own.run("lock", "--all", "--check", timeout=60).expect(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.network
def test_no_space_is_7_and_leaves_no_lock(own):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(own.home)], check=True)
    out = own.root / "images/environments"
    out.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(out)], check=True)
    try:
        answer = own.run("lock", CURRENT, env=NO_ENGINE, timeout=300).expect(7)
        assert "space" in one_error(answer.err)
        assert not list(out.rglob("lock.json"))
    finally:
        subprocess.run(["umount", str(out)], check=True)
        subprocess.run(["umount", str(own.home)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.engine
@pytest.mark.parametrize("verb", ["build", "make"])
def test_a_disk_too_small_for_one_build_is_7_before_any_download(own, engine_endpoint, verb):
    name = own.run("resolve", CURRENT, "--json", timeout=60).expect(0).document["name"]
    shutil.copytree(ROOT / "images/environments" / name, own.root / "images/environments" / name)
    own.home.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=700", "tmpfs", str(own.home)], check=True)
    try:
        answer = own.run(verb, name, "--json", timeout=300, env={"DOCKER_HOST": engine_endpoint}).expect(7)
        error = answer.document["error"]
        assert error["code"] == "no-space" and f"the build of {name} needs" in error["message"].lower()
        assert f"mounted at {own.home}" in error["message"] and "--match" not in error["hint"]
        assert not (own.home / "downloads").exists()
    finally:
        subprocess.run(["umount", str(own.home)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.engine
@pytest.mark.network
def test_a_disk_that_gets_full_while_a_build_downloads_is_7_and_not_the_archives_fault(own, engine_endpoint):
    """The hidden option skips the check before the build."""
    name = own.run("resolve", CURRENT, "--json", timeout=60).expect(0).document["name"]
    shutil.copytree(ROOT / "images/environments" / name, own.root / "images/environments" / name)
    own.home.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=700", "tmpfs", str(own.home)], check=True)
    try:
        words = ("build", name, "--space-checked", "--json")
        error = own.run(*words, timeout=600, env={"DOCKER_HOST": engine_endpoint}).expect(7).document["error"]
        assert error["code"] == "no-space" and f"file system mounted at {own.home} while writing" in error["message"]
        assert "ENVBUILD_HOME" in error["hint"] and "--relock" not in error["hint"]
    finally:
        subprocess.run(["umount", str(own.home)], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--json"],
        ["resolve", CURRENT],
        ["explain", CURRENT],
        ["show", CURRENT],
        ["matrix", "check"],
        ["render", "--all", "--check"],
        ["lock", "--all", "--check"],
        ["completion", "bash"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_planning_needs_neither_network_nor_engine(program, words):
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip("this machine does not let us make a network namespace")
    alone = Program(root=program.root, home=program.home, prefix=("unshare", "-rn"), environment=NO_ENGINE)
    answer = alone.run(*words, timeout=60)
    # doctor may report that no engine answers; no other command may need one
    answer.expect(answer.code if words == ["doctor"] and answer.code == 6 else 0)


def test_lists_into_a_closed_pipe_without_complaint(program):
    pipeline = f"{' '.join(program.argv('list'))} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipeline], capture_output=True, text=True, env=program.env(), check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_full_disk_behind_standard_output_is_an_error(program):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program.argv("list"), stdout=full, stderr=subprocess.PIPE, text=True, env=program.env(), check=False
        )
    assert done.returncode == 7
    one_error(done.stderr)


def test_json_is_one_document_and_progress_goes_elsewhere(program):
    for words in (["list"], ["resolve", CURRENT], ["show", CURRENT], ["explain", CURRENT], ["doctor"], ["completion", "zsh"]):
        answer = program.run(*words, "--json", env=NO_ENGINE, timeout=60)
        assert isinstance(answer.document, dict), words
        assert answer.document["schema"] == 1


def test_no_colour_codes_reach_a_pipe(program):
    for words in (["list"], ["resolve", CURRENT], ["make", "nothing-1"]):
        answer = program.run(*words, timeout=60, env={"FORCE_COLOR": "<unset>"})
        assert "\x1b[" not in answer.out + answer.err


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("envbuild ma", "1", "make"),
        ("envbuild make tf-1.12", "2", "tf-1.12.3-cuda9.0"),
        ("envbuild make --al", "2", "--allow-cpu"),
    ],
)
def test_the_shell_completes_verbs_names_and_options(program, words, position, expected):
    asked = {"_ENVBUILD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    answer = program.run(env=asked, timeout=60).expect(0)
    assert expected in answer.out
    assert answer.err == ""
