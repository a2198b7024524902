"""A user's own recipe with the real program: created, locked, refused; in `make prove` also built and started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Program, own_program, share_bases

pytestmark = [pytest.mark.network]

PROBE = Path(__file__).parent / "custom_probe.sh"
RECIPE = """\
schema: 1
name: envbuild-test-lab
frameworks: [opencv-4-cpu]
pip: [tqdm, termcolor==1.1.0]
apt: [file]
files:
  - {source: hello.py, target: /workspace/}
user: alice
services: [jupyter, tensorboard, ssh]
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    share_bases(tmp_path / "home")
    return own_program(tmp_path)


def test_from_init_to_a_lock_that_is_kept_and_a_package_that_is_refused(program: Program, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    begun = program.run("init", str(lab), "--framework", "opencv-4-cpu", "--pip", "tqdm", "--json").expect(0).document
    assert begun["path"] == str(lab / "envbuild.yaml")
    locked = program.run("lock", "--json", cwd=lab).expect(0).document["locks"][0]
    assert (locked["name"], locked["path"], locked["kept"]) == ("lab", "envbuild.lock.json", False)
    assert program.run("lock", "--json", cwd=lab).expect(0).document["locks"][0]["kept"]
    pinned = {artifact["name"] for artifact in json.loads((lab / "envbuild.lock.json").read_text())["prefixes"][0]["artifacts"]}
    assert {"tqdm", "numpy"} <= pinned
    program.run("render", cwd=lab).expect(0)
    program.run("render", "--check", cwd=lab).expect(0)
    assert program.run("show", ".", "--json", cwd=lab).expect(0).document["rendering"]["state"] == "current"

    file = lab / "envbuild.yaml"
    file.write_text(file.read_text().replace('["tqdm"]', '["tqdm", "numpy<1.20"]'))
    stale = program.run("build", "./envbuild.yaml", "--json", cwd=lab).expect(5).document["error"]
    assert stale["code"] == "stale-lock"
    refused = program.run("lock", "./envbuild.yaml", "--relock", "--json", cwd=lab).expect(3).document["error"]
    assert refused["code"] == "added-package"
    assert refused["message"].startswith("numpy<1.20 cannot be installed together with opencv 4.")
    assert any(conflict["row"] == "envbuild.yaml pip" for conflict in refused["conflicts"])
    assert json.loads((lab / "envbuild.lock.json").read_text())["environment"]["name"] == "lab", (
        "what is refused changes nothing"
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, engine_endpoint: str) -> Iterator[tuple[Program, Path, str]]:
    """Build the environment once for all tests of this module; remove the image at the end."""
    folder = tmp_path_factory.mktemp("own")
    share_bases(folder / "home")
    program = own_program(folder, {"DOCKER_HOST": engine_endpoint})
    lab = folder / "lab"
    lab.mkdir()
    (lab / "envbuild.yaml").write_text(RECIPE)
    (lab / "hello.py").write_text("print('hello')\n")
    program.run("lock", cwd=lab).expect(0)
    image = program.run("build", "--json", cwd=lab).expect(0).document["tags"][0]
    yield program, lab, image
    docker = shutil.which("docker", path="/usr/bin") or "docker"
    tags = [image, *program.run("show", "--json", cwd=lab).expect(0).document["image"]["tags"]]
    subprocess.run([docker, "rmi", "-f", *dict.fromkeys(tags)], env=program.env(), capture_output=True, check=False)


@pytest.mark.prove
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("user", ["", "4242:0", "5555:5555", "0:0"], ids=["usual", "group-0", "any", "root"])
def test_the_image_holds_what_was_asked_and_its_services_answer(built: tuple[Program, Path, str], user: str) -> None:
    program, lab, image = built
    program.run("verify", cwd=lab).expect(0)
    docker = shutil.which("docker", path="/usr/bin") or "docker"
    words = ["run", "-i", "--rm", "--network", "none", *(["--user", user] if user else []), image, "bash", "-s"]
    done = subprocess.run(
        [docker, *words],
        input=PROBE.read_text(),
        env={**os.environ, **program.env()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything answered" in done.stdout


@pytest.mark.prove
@pytest.mark.engine
@pytest.mark.slow
def test_a_changed_file_builds_anew_and_an_unknown_package_is_named(built: tuple[Program, Path, str]) -> None:
    program, lab, _ = built
    assert program.run("build", "--json", cwd=lab).expect(0).document["kept"]
    (lab / "hello.py").write_text("print('changed')\n")
    assert not program.run("build", "--json", cwd=lab).expect(0).document["kept"]
    (lab / "envbuild.yaml").write_text(RECIPE.replace("[file]", "[file, no-such-thing]"))
    before = (lab / "envbuild.lock.json").read_bytes()
    refused = program.run("lock", "--json", cwd=lab).expect(7).document["error"]
    assert refused["code"] == "unknown-package"
    assert "no-such-thing" in refused["message"]
    assert (lab / "envbuild.lock.json").read_bytes() == before
