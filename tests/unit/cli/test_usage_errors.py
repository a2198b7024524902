"""Errors of the command line name what the user wrote, and only options that the command has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import widget_world

from envbuild.cli import catalogue, frame, run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run a command that must end with a usage error, and return its message."""
    code = frame.run(["--json", *argv])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["exit_code"]) == (2, 2)
    return error["message"]


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        ("registry", "list, prune"),
        ("matrix", "check, measure, show, update"),
        ("engine", "down, status, up"),
        ("data", "fetch, list"),
        ("cache", "list, prune, verify"),
    ],
)
def test_a_group_without_a_command_names_its_commands(group: str, commands: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, group) == f"`envbuild {group}` needs a command: {commands}."
    assert frame.run([group, "--json"]) == 2
    assert f"needs a command: {commands}." in json.loads(capsys.readouterr().out)["error"]["message"]
    assert frame.run([group]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: `envbuild {group}` needs a command: {commands}."


@pytest.mark.parametrize("argv", [("bake", "--to", "h.example/r"), ("check", "--policy", "POLICY")])
def test_without_names_only_options_of_the_command_are_named(
    argv: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("schema: 1\nevidence: {required: [{kind: linked}]}\n")
    root = widget_world.make_root(tmp_path)
    words = [str(policy) if word == "POLICY" else word for word in argv]
    assert refused(capsys, *words, "--root", str(root)) == "Name environments, or use --all or --match."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--service", "nosuch"), "--service: 'nosuch' is not a service; there are web."),
        (("--apt", "A_B"), "--apt: 'A_B' does not have the expected form."),
        (("--name", "X_Y"), "--name: 'X_Y' does not have the expected form."),
        (("--pip", ""), "--pip: text expected, found nothing."),
    ],
)
def test_init_names_its_options_and_not_lines_of_a_file_that_it_did_not_write(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = widget_world.make_root(tmp_path)
    folder = tmp_path / "x3"
    assert refused(capsys, "init", str(folder), "--framework", "wd-1.2-cpu", *words, "--root", str(root)) == message
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prune", "--check"), "--check writes nothing, so it cannot be combined with --prune."),
        (("--start-engine",), "--start-engine cannot be used without --prove."),
        (("--prove", "--kinds", ""), "--kinds names no kind of proof."),
        (("--prove", "--kinds", " , "), "--kinds names no kind of proof."),
    ],
)
def test_options_of_evidence_that_would_have_no_effect(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "evidence", "wd-1.2-cpu", *words, "--root", str(widget_world.make_root(tmp_path))) == message


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "notaurl",
        "ftp://a.example",
        "https://",
        "https:///path",
        "http://a.example:99999",
        "http://[::1",
        'https://a.example/"><script>',
    ],
)
def test_the_address_of_a_catalogue_is_one_of_a_web_site(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "catalogue", "-o", str(tmp_path / "site"), "--url", url)
    assert message == f"--url must be the address of a web site, not {url!r}."


@pytest.mark.parametrize("url", ["", "https://a.example", "http://localhost:8000/x/", "https://[::1]:8443/lab"])
def test_a_web_address_is_accepted(url: str) -> None:
    catalogue.require_web_address(url)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "NAME", "--format", "compose", "--force"), "--force cannot be used without -o."),
        (("bake", "NAME", "--to", "h.example/r", "--force"), "--force cannot be used without -o."),
        (("run", "--gpus", "x", "NAME"), "--gpus cannot be 'x'."),
        (("run", "--gpus=-1", "NAME"), "--gpus cannot be '-1'."),
        (("run", "--gpus=all,0", "NAME"), "--gpus cannot be 'all,0'."),
        (("run", "--with", "apptainer", "--shm-size", "4g", "NAME"), "--shm-size cannot be used with Apptainer."),
        (
            ("run", "--with", "apptainer", "--cdi", "--shm-size", "4g", "NAME"),
            "--cdi and --shm-size cannot be used with Apptainer.",
        ),
        (("run", "--no-mount", "--folder", "/", "NAME"), "--no-mount and --folder cannot be combined."),
    ],
)
def test_options_that_would_have_no_effect(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(widget_world.make_root(tmp_path))
    argv = ["wd-1.2-cpu" if word == "NAME" else word for word in words]
    assert refused(capsys, argv[0], "--root", root, *argv[1:]) == message


@pytest.mark.parametrize("text", ["auto", "all", "none", "0", "0,1", "GPU-1a2b3c4d-0000", "MIG-1a2b,GPU-3c"])
def test_gpus_are_indexes_or_uuids(text: str) -> None:
    assert run.GPUS.fullmatch(text)
