"""``envbuild catalogue`` as a person runs it, and its site in a real browser."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import judges
import pytest
from program import ROOT, Program, own_program
from stand_in_registry import MANIFEST, Registry
from widget_world import make_root

from envbuild.catalogue import model
from envbuild.cli import frame
from envbuild.pipeline import cataloguing, image_labels, plan, site_folder
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

BROWSER, NODE, NPM = map(judges.path_of, ("chromium", "node", "npm"))
BROWSE = Path(__file__).parent / "site" / "browse.mjs"
# One environment for GPUs with a full lock, and one for CPU with proofs.
SOME = ("tf-2.21.0-cpu-py311-debian12", "pytorch-1.12.1-cuda10.2-py39-debian11")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """envbuild with two environments of the checkout and their evidence."""
    program = own_program(tmp_path)
    (program.root / "images/evidence").mkdir(exist_ok=True)
    for name in SOME:
        shutil.copytree(ROOT / "images/environments" / name, program.root / "images/environments" / name)
        if (evidence := ROOT / f"images/evidence/{name}.json").exists():
            shutil.copy(evidence, program.root / "images/evidence")
    (program.root / "images/environments.yaml").write_text(f'schema: 1\nenvironments:\n  {SOME[0]}: "the <newest>"\n')
    return program


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
    assert "is not a catalogue.json" in wrong.err
    program.run("catalogue", "-o", str(site), "-q").expect(0)
    assert tree(site) == before


@pytest.mark.prove
@pytest.mark.parametrize(
    ("words", "module", "work"),
    [(("catalogue", "-o", "site", "--registry"), cataloguing, "gather"), (("plan", "--against"), plan, "candidates")],
)
def test_a_malformed_repository_is_refused_before_any_work(tmp_path, monkeypatch, capsys, words, module, work):
    def too_late(*_words: Any) -> None:
        raise AssertionError("the name is checked too late")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, work, too_late)
    assert frame.run([*words, "Not/A Name", "--root", str(ROOT), "--json"]) == 11
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "repository-name"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "module", "work"),
    [(("catalogue", "-o", "site", "--registry"), cataloguing, "_locks"), (("plan", "--against"), plan, "candidates")],
)
def test_a_dead_registry_is_told_before_any_work(tmp_path, monkeypatch, capsys, words, module, work):
    def too_late(*_words: Any) -> None:
        raise AssertionError("the registry is asked too late")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, work, too_late)
    with socket.socket() as taken:  # the port is bound, but nothing listens
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        assert frame.run([*words, f"{host}/lab/dl", "--root", str(ROOT), "--json"]) == 11
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["message"]) == (
        "registry-unreachable",
        f"The registry of {host}/lab/dl cannot be reached: Connection refused.",
    )
    assert f"Check that {host} is the name" in error["hint"] and "layers" not in error["hint"]
    assert list(tmp_path.iterdir()) == []


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


def write_database(folder: Path) -> Path:
    """An OSV database with one advisory, about every release of NumPy."""
    affected = {
        "package": {"ecosystem": "PyPI", "name": "numpy"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
    }
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps({"id": "PYSEC-2026-1", "summary": "words", "affected": [affected]}))
    return folder


def put_image(registry: Registry, program: Program, name: str) -> tuple[bytes, str]:
    """Put an image of the lock of ``name`` into the registry. Return its manifest, and the digest of the lock."""
    lock = hashlib.sha256((program.root / "images/environments" / name / "lock.json").read_bytes()).hexdigest()
    config = json.dumps({"config": {"Labels": {image_labels.NAME: name, image_labels.LOCK: lock}}}).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    registry.blobs.setdefault("team/dl", {})[digest] = config
    layers = [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{'5' * 64}", "size": 1_234_567}]
    about = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": len(config)}
    image = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": layers}).encode()
    registry.manifests[f"team/dl:{name}-{lock[:8]}"] = image
    return image, lock


def test_why_system_packages_were_not_audited_is_true_of_each_image(
    program: Program, registry: Registry, tmp_path: Path
) -> None:
    """One image is in the registry. The evidence says that both were built."""
    put_image(registry, program, SOME[0])
    words = ["--registry", f"{registry.host}/team/dl", "--database", str(write_database(tmp_path / "osv"))]
    program.run("catalogue", "-o", str(tmp_path / "site"), *words).expect(0)
    document = json.loads((tmp_path / "site" / "catalogue.json").read_text(encoding="utf-8"))
    found = {entry["name"]: entry["vulnerabilities"] for entry in document["entries"]}
    assert "PYSEC-2026-1" in [each["advisory"] for each in found[SOME[0]]["findings"]]
    assert {name: each["unchecked"][0] for name, each in found.items()} == {
        SOME[0]: "the packages of debian12: the contents of the published image were not read",
        SOME[1]: "the packages of debian11: this catalogue was made without `--this-machine`, so no image was read",
    }


@pytest.mark.prove
def test_what_else_is_asked_is_told(program: Program, registry: Registry, tmp_path: Path) -> None:
    """The catalogue uses a registry, a vulnerability database, this machine's report, and an earlier catalogue."""
    first, site = tmp_path / "first", tmp_path / "site"
    program.run("catalogue", "-o", str(first)).expect(0)
    earlier = json.loads((first / "catalogue.json").read_text(encoding="utf-8"))
    (lock,) = (entry["lock"] for entry in earlier["entries"] if entry["name"] == SOME[0])
    numpy = next(file for part in lock["parts"] for file in part["files"] if file["name"] == "numpy")
    numpy["version"] = "0.1"  # as if the earlier catalogue had an older numpy
    lock["sha256"] = "0" * 64
    (tmp_path / "last.json").write_text(json.dumps(earlier))
    database = write_database(tmp_path / "osv")
    image, digest = put_image(registry, program, SOME[0])
    reports = program.home / "reports" / SOME[0]
    reports.mkdir(parents=True)
    report = json.loads((ROOT / "tests/unit/data/report-pass.json").read_text(encoding="utf-8"))
    report["environment"]["lock"] = digest
    (reports / "report.json").write_text(json.dumps(report))
    stages = program.home / "stages" / SOME[0]
    stages.mkdir(parents=True)
    (stages / "smoke.json").write_text(json.dumps({"key": {}, "result": {"paths": {"json": str(reports / "report.json")}}}))

    asked = [
        "--registry",
        f"{registry.host}/team/dl",
        "--database",
        str(database),
        "--since",
        str(tmp_path / "last.json"),
    ]
    program.run("catalogue", "-o", str(site), "--this-machine", *asked).expect(0)
    document = json.loads((site / "catalogue.json").read_text(encoding="utf-8"))
    schema = json.loads(resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    told = {entry["name"]: entry for entry in document["entries"]}
    assert told[SOME[0]]["published"]["digest"] == f"sha256:{hashlib.sha256(image).hexdigest()}"
    assert [each["vulnerabilities"]["unchecked"][0] for each in (told[SOME[0]], told[SOME[1]])] == [
        "the packages of debian12: the contents of the published image were not read; "
        f"no image of this lock was built here; `envbuild build {SOME[0]}` builds it",
        f"the packages of debian11: no image of this lock was built here; `envbuild build {SOME[1]}` builds it",
    ]
    assert told[SOME[1]]["published"] is None
    assert told[SOME[1]]["changes"] == []
    assert any("numpy 0.1 → " in change for change in told[SOME[0]]["changes"])
    page = (site / "environments" / f"{SOME[0]}.html").read_text(encoding="utf-8")
    for text in (
        "PYSEC-2026-1",
        "1 MB to pull, in 1 layer.",
        "sha256:" + "5" * 64,
        "Speedup",
        "numpy 0.1 →",
        f"docker pull {registry.host}/team/dl@sha256:",
    ):
        assert text in page, text
    assert "The registry has no image of this lock" in (site / "environments" / f"{SOME[1]}.html").read_text(encoding="utf-8")
    assert "changed" in (site / "feed.xml").read_text(encoding="utf-8")


@pytest.mark.prove
@pytest.mark.network
@pytest.mark.judges("chromium", "node", "npm")
def test_the_site_of_the_checkout_in_a_real_browser(tmp_path: Path) -> None:
    """Both widths, both themes, the rules of axe, the keyboard alone; each key press takes less than 50 ms with all names."""
    site, drawn, modules = tmp_path / "site", tmp_path / "drawn", tmp_path / "npm"
    for folder in (drawn, modules):
        folder.mkdir()
    write_site(site, tmp_path / "home")
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
    links = said["found"]["links"]
    assert {*links["before"]} == {"python", "all", "misfits", "q", "gpu", "driver", "pasted", "says"}
    assert links["part"] == links["before"] and links["link"] == {"q": "mxnet"}
    assert links["after"] == {"q": "caffe", "cuda": "cpu"} and links["none"] == {}
    assert links["late"] == [{"os": "debian11"}, "#os=debian11"]
    assert said["found"]["plain"] > 100
    (first, is_proved), (_, other_is) = said["found"]["proved"]
    assert (first, is_proved, other_is) == (SOME[1], True, False)


def write_site(site: Path, home: Path) -> None:
    """Write the site of the checkout, as if a registry had a signed image of ``SOME[1]`` that was proved on a GTX 1080 Ti."""
    tools = Tools(Workspace(root=ROOT, output=ROOT / "images", home=home))
    gathered = cataloguing.gather(tools, cataloguing.Sources())
    board = (("GeForce GTX 1080 Ti", "6.1"),)
    signed = model.PublishedImage(
        reference="h.example/lab/dl:t", digest=f"sha256:{'1' * 64}", layers=(), signed_by=("a key",), others=2,
        statements=(model.Stated(kind="https://example.org/statement", signer="a key"),),
    )  # fmt: skip
    report = model.Smoke(verdict="pass", sentence="It trained.", started="", machine="a GPU", rows=(), signer="another key")
    whole = gathered.catalogue
    entries = tuple(
        replace(each, published=signed, reports=(report,), proved_on=board) if each.name == SOME[1] else each
        for each in whole.entries
    )
    rows = tuple(replace(each, proved_on=board) if each.name == SOME[1] else each for each in whole.rows)
    gathered = replace(gathered, catalogue=replace(whole, entries=entries, rows=rows))
    site_folder.write(site, cataloguing.files_of(gathered, cataloguing.Sources()))
