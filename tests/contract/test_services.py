"""Every service that users' images can start is well formed, has a valid shell script, and is in the docs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild import workspace
from envbuild.custom import services
from envbuild.lock.target import Target, read_requirement

ROOT = Path(__file__).parents[2]
SERVICES = services.load_services(workspace.find(str(ROOT)))
SCRIPTS = sorted((ROOT / "images" / "services").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_shell_understands_the_script_and_stops_where_a_step_fails(script: Path) -> None:
    text = script.read_text()
    shell = text.splitlines()[0].removeprefix("#!")
    assert shell in ("/bin/sh", "/bin/bash")
    assert "\nset -eu" in text
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_script_is_that_of_a_service_or_the_one_that_starts_them() -> None:
    assert {script.stem for script in SCRIPTS} == {*SERVICES, "envbuild-start"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_documentation_tells_of_it(name: str) -> None:
    told = (ROOT / "docs" / "how-to" / "your-own-environment.md").read_text()
    assert f"| `{name}` | {', '.join(map(str, SERVICES[name].ports))} |" in told


def test_no_two_listen_on_one_port() -> None:
    ports = [port for service in SERVICES.values() for port in service.ports]
    assert len(ports) == len(set(ports))
    assert all(port > 1024 for port in ports), "a user without rights cannot listen below"


def test_jupyter_starts_under_python_2_too_whose_tornado_computes_what_it_requires() -> None:
    asked = [read_requirement(text) for text in SERVICES["jupyter"].pip]
    wanted = {
        version: {each.name for each in asked if Target(python=version, glibc="2.31").wants(each)}
        for version in ("2.7", "3.11")
    }
    assert wanted["2.7"] == {"jupyterlab", "futures", "singledispatch", "backports_abc"}
    assert wanted["3.11"] == {"jupyterlab"}
