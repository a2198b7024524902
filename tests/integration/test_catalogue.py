"""``envbuild catalogue`` as a person runs it, and its site in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from program import ROOT, Program, fresh_root
from widget_world import make_root

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE, NPM = shutil.which("node"), shutil.which("npm")
BROWSE = Path(__file__).parent / "site" / "browse.mjs"
# One environment for GPUs with a full lock, and one for CPU with proofs.
SOME = ("tf-2.21.0-cpu-py311-debian12", "pytorch-1.12.1-cuda10.2-py39-debian11")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program, with two environments of the checkout and their evidence."""
    root = fresh_root(tmp_path / "root")
    (root / "images/evidence").mkdir(exist_ok=True)
    for name in SOME:
        shutil.copytree(ROOT / "images/environments" / name, root / "images/environments" / name)
        if (evidence := ROOT / f"images/evidence/{name}.json").exists():
            shutil.copy(evidence, root / "images/evidence")
    (root / "images/environments.yaml").write_text(f'schema: 1\nenvironments:\n  {SOME[0]}: "the <newest>"\n')
    return Program(root=root, home=tmp_path / "home")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_small_checkout_gives_a_site_and_other_files_stop_it(tmp_path: Path) -> None:
    program = Program(root=make_root(tmp_path), home=tmp_path / "home")
    site = tmp_path / "site"
    told = program.run("catalogue", "-o", str(site), "--json").expect(0).document
    assert (told["environments"], told["names"], told["folder"]) == (0, 1, str(site))
    assert "widget-1.2.0-cpu-py36-plain1" in (site / "data/catalogue.js").read_text(encoding="utf-8")
    before = tree(site)
    (site / "own.txt").write_text("mine")
    refused = program.run("catalogue", "-o", str(site)).expect(2)
    assert "own.txt" in refused.err
    (site / "own.txt").unlink()
    wrong = program.run("catalogue", "-o", str(site), "--since", str(program.root / "matrix.yaml")).expect(5)
    assert "no catalogue.json" in wrong.err
    program.run("catalogue", "-o", str(site), "-q").expect(0)
    assert tree(site) == before


@pytest.mark.prove
def test_the_same_checkout_gives_the_same_bytes(program: Program, tmp_path: Path) -> None:
    site, again = tmp_path / "site", tmp_path / "again"
    told = program.run("catalogue", "-o", str(site), "--json").expect(0).document
    assert told["environments"] == 2
    assert told["names"] > 3000
    other = Program(root=program.root, home=tmp_path / "other-home")
    other.run("catalogue", "-o", str(again), "-q").expect(0)
    assert tree(site) == tree(again)
    document = json.loads((site / "catalogue.json").read_text(encoding="utf-8"))
    schema = json.loads(resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    assert {entry["name"] for entry in document["entries"]} == {*SOME}
    page = (site / "environments" / f"{SOME[0]}.html").read_text(encoding="utf-8")
    assert "the &lt;newest&gt;" in page
    assert "Not checked." in page
    assert all((site / entry["sbom"]).is_file() for entry in document["entries"])


@pytest.mark.prove
@pytest.mark.network
@pytest.mark.skipif(not (BROWSER and NODE and NPM), reason="no Chromium, node or npm here: apt-get install chromium nodejs npm")
def test_the_site_of_the_checkout_in_a_real_browser(tmp_path: Path) -> None:
    """Both widths, both themes, axe's rules, the keyboard alone, and each key press with all names under 50 ms."""
    program = Program(root=ROOT, home=tmp_path / "home")
    site, drawn, modules = tmp_path / "site", tmp_path / "drawn", tmp_path / "npm"
    for folder in (drawn, modules):
        folder.mkdir()
    program.run("catalogue", "-o", str(site)).expect(0)
    argv = [str(NPM), "install", "--prefix", str(modules), "--no-audit", "--no-fund", "puppeteer-core@24", "axe-core@4"]
    subprocess.run(argv, check=True, timeout=300, capture_output=True)
    shown = [f"environments/{name}.html" for name in SOME]
    argv = [str(NODE), str(BROWSE), str(modules / "node_modules"), str(BROWSER), str(site), str(drawn), *shown]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert (said["axe"], said["console"], said["elsewhere"], said["wide"]) == ([], [], [], [])
    assert said["found"]["names"] >= 3000
    assert max(said["keys"]) < 50, said["keys"]
    assert all(visible for _, visible in said["focus"]), said["focus"]
    reached = [name for name, _ in said["focus"]]
    assert [name for name in reached if name in ("gpu", "driver", "none", "q", "framework", "all", "clear")] == [
        "gpu", "driver", "none", "q", "framework", "all", "clear",
    ]  # fmt: skip
    assert said["found"]["opened"] == said["found"]["typed"][0]
    assert "driver 535.104.05" in said["found"]["pasted"]
    assert said["found"]["nonsense"][1] == 0
    assert said["found"]["asked"] == "mxnet"
    assert said["found"]["plain"] > 100
