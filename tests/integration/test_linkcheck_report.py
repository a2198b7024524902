"""The report of `linkcheck` about a small OCI image layout: with gaps, it is as complete as without."""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from composed import tarred
from oci_layouts import write_layout
from program import Program, own_program

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from elf_files import NATIVE, Shared, container, entry

SITE = "opt/env/lib/python3.11/site-packages"
CODE = {".nv_fatbin": container(entry(NATIVE, 80))}
OBJECTS = {
    f"{SITE}/widget/_a.so": Shared(needed=["libbrush.so.1"], runpath="$ORIGIN/lib", fatbins=CODE, is_loadable=True).data(),
    f"{SITE}/widget/lib/libbrush.so.1": Shared(soname="libbrush.so.1", is_loadable=True).data(),
    "opt/other/libbrush.so.1": Shared(soname="libbrush.so.1", is_loadable=True).data(),
}


@pytest.fixture
def own(tmp_path: Path) -> Program:
    return own_program(tmp_path)


def layout(folder: Path, objects: dict[str, bytes]) -> Path:
    layer = tarred(objects)
    digest = hashlib.sha256(layer).hexdigest()
    return write_layout(folder, layer, "application/vnd.oci.image.layer.v1.tar", digest, os="linux", architecture="amd64")


def test_the_report_of_an_image_with_gaps_is_whole(own: Program, tmp_path: Path) -> None:
    schema = json.loads(resources.files("envbuild.schemas").joinpath("linkcheck.json").read_text(encoding="utf-8"))
    check = jsonschema.Draft202012Validator(schema).validate
    healthy = own.run("linkcheck", "--json", "--image", f"oci:{layout(tmp_path / 'healthy', OBJECTS)}").expect(0).document
    check(healthy)
    broken = {f"{SITE}/widget/_{number}.so": Shared(needed=[f"libgone{number}.so"], is_loadable=True) for number in range(50)}
    lacking = {path: library.data() for path, library in broken.items()}
    image = f"oci:{layout(tmp_path / 'lacking', OBJECTS | lacking)}"
    told = own.run("linkcheck", "--json", "--image", image).expect(8).document
    check(told)
    assert (told["error"]["code"], told["error"]["exit_code"], len(told["error"]["problems"])) == ("not-linked", 8, 40)
    assert len(told["report"]["gaps"]) == 50 and (told["name"], told["image"]) == (image, image)
    for key in ("duplicates", "facts", "notes"):
        assert told["report"][key] == healthy["report"][key] and told["report"]["duplicates"]
    shown = own.run("linkcheck", "--image", image).expect(8)
    assert "53 objects" in shown.out and "libbrush.so.1" in shown.out and "GPU 8.0: native: widget" in shown.out
    assert "50 libraries are missing" in shown.err and "and 10 more" in shown.err


def test_a_folder_without_its_scheme_is_recognised(own: Program, tmp_path: Path) -> None:
    answer = own.run("linkcheck", "--image", str(tmp_path)).expect(2)
    assert f"write oci:{tmp_path}" in answer.err


@pytest.mark.parametrize("image", ["-x", "widget@sha256:12"])
def test_a_bad_name_of_an_image_is_called_bad(own: Program, image: str) -> None:
    answer = own.run("linkcheck", "--image", image).expect(2)
    assert f"'{image}' is not the name of an image." in answer.err
