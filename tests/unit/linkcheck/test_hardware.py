"""What an image needs of the driver, and its GPU code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from linked_trees import elf, layer

from envbuild.errors import InvalidInputError
from envbuild.linkcheck import hardware, image_driver
from envbuild.linkcheck.hardware import DriverSymbols
from envbuild.linkcheck.model import NO_DRIVER, RequiredDriver
from envbuild.linkcheck.rules import DriverLibrary, LinkRules
from envbuild.workspace import DRIVER_SYMBOLS

IMAGES = Path(__file__).parents[3] / "images"
RULES = LinkRules(driver=(DriverLibrary(name="RequiredDriver", library="libdriver.so.1", symbols="drv[A-Z]"),))
KNOWN = DriverSymbols(
    libraries={"libdriver.so.1": {"drvOld": "1.0", "drvNew": "2.10", "drvLast": "3.0", "drvBetween": "3.0"}},
    drivers=("1.0", "2.10", "3.0"),
    headers={"libdriver.so.1": {"drvBetween": "12.3", "drvNext": "13.0", "drvLater": "99.0"}},
)
TOOLKITS = {"12.3": "2.50", "13.0": "4.0"}


def named(version: str) -> RequiredDriver:
    return RequiredDriver(version=version, whose="the driver that you named", is_named=True)


def needs(*wanted: str, offers: tuple[str, ...] = ()) -> list[dict[str, object]]:
    objects = {
        "/a.so": elf("", "libdriver.so.1", wanted=wanted),
        "/b.so": elf("", offers=offers, opens=("libdriver.so",)),
        "/c.so": elf("", wanted=("drvLast",)),
    }
    return hardware.driver_needs(objects, RULES, KNOWN, TOOLKITS)


def test_the_oldest_driver_with_all_symbols_is_found():
    (told,) = needs("drvOld", "drvNew")
    assert (told["driver"], told["lacks"], told["newest"], told["unknown"]) == ("2.10", "1.0", ["drvNew"], [])
    assert told["linked"] == ["/a.so"] and told["opened"] == ["/b.so"] and told["symbols"] == 2
    assert told["by"] == "/a.so"


def test_stubs_of_the_driver_count_for_nothing():
    wants = elf("", "libdriver.so.1", wanted=("drvNew",))
    stub = elf("libcuda.so.1", offers=("drvNew",))
    objects = {"/a.so": elf("", "libdriver.so.1"), "/b.so": wants, "/usr/local/cuda/lib64/stubs/libcuda.so": stub}
    (told,) = hardware.driver_needs(objects, RULES, KNOWN, TOOLKITS)
    assert told["newest"] == ["drvNew"] and told["by"] == "/b.so"
    cuda = elf("libcudart.so.12")
    assert hardware.cuda_of({**objects, "/c.so": cuda}, {"12": "525.60.13"}) == {"12": "/c.so"}


def test_headers_make_the_driver_more_exact():
    (told,) = needs("drvOld", "drvBetween")
    assert (told["driver"], told["lacks"]) == ("2.50", "2.10")
    (told,) = needs("drvBetween", "drvNext", "drvLater")
    assert (told["driver"], told["lacks"], told["unknown"]) == ("4.0", "3.0", ["drvLater"])


def test_symbols_of_other_libraries_of_the_image_do_not_count():
    (told,) = needs("drvOld", "drvFile", offers=("drvFile",))
    assert (told["driver"], told["lacks"], told["unknown"]) == ("1.0", "", [])
    (told,) = needs("drvOld", "drvFile")
    assert told["unknown"] == ["drvFile"]


def test_a_driver_in_the_image_counts_only_if_the_loader_finds_it():
    compat = "/usr/local/cuda-13.0/compat/libdriver.so.1"
    objects = {
        "/opt/a.so": elf("", "libdriver.so.1", wanted=("drvNew",)),
        "/opt/libcudart.so.13": elf("libcudart.so.13", opens=("libdriver.so",)),
        compat: elf("libdriver.so.1", offers=("drvNew",)),
        "/usr/local/cuda/lib64/stubs/libdriver.so.1": elf("libdriver.so.1", offers=("drvNew",)),
    }
    for environment, files in (({}, set()), ({"LD_LIBRARY_PATH": "/usr/local/cuda-13.0/compat"}, {compat})):
        found = image_driver.loaded([layer(objects)], objects, environment, RULES)
        assert found == ({path: files for path in ("/opt/a.so", "/opt/libcudart.so.13")} if files else {})
        (told,) = hardware.driver_needs(objects, RULES, KNOWN, TOOLKITS, found)
        assert told["symbols"] == (0 if files else 1) and told["driver"] == ("" if files else "2.10")
        assert hardware.cuda_of(objects, {"13": "580"}, found) == ({} if files else {"13": "/opt/libcudart.so.13"})
    own = objects | {"/opt/a.so": elf("", "libdriver.so.1", rpath=("$ORIGIN/../usr/local/cuda-13.0/compat",))}
    assert image_driver.loaded([layer(own)], own, {}, RULES) == {"/opt/a.so": {compat}}
    stubs = {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"}
    assert image_driver.loaded([layer(objects)], objects, stubs, RULES) == {}


@pytest.mark.parametrize(("driver", "gaps"), [("1.0", 1), ("0.9", 1), ("1.5", 0), ("2.9", 0), ("2.10", 0), ("", 0)])
def test_a_driver_that_is_too_old_is_a_gap_only_where_that_is_known(driver: str, gaps: int):
    found = hardware.driver_gaps(needs("drvNew"), named(driver))
    assert len(found) == gaps
    if found:
        assert found[0].needs == "libdriver.so.1: drvNew" and "2.10 has it" in found[0].cause


@pytest.mark.parametrize(
    ("soname", "driver", "needed"),
    [
        ("libcudart.so.12", "470.256.02", "CUDA 12"),
        ("libcudart.so.12", "525.60.13", ""),
        ("libcudart.so.11.0", "440.33", "CUDA 11"),
        ("libcudart.so.10.1", "410.48", "CUDA 10.1"),
        ("libcudart-5a077122.so.12.0.107", "470.256.02", "CUDA 12"),  # auditwheel adds a hash to the names of libraries
        ("libcudart-80664282.so.10.1.243", "410.48", "CUDA 10.1"),
        ("libcudart.3eda8113.so.12", "470.256.02", "CUDA 12"),
        ("libcublas.so.10", "410.48", ""),  # of CUDA 10.1 or 10.2: the version is not known
        ("libcudart.so.14", "410.48", ""),  # newer than the matrix
        ("libcufft.so.11", "470.256.02", ""),  # of CUDA 12, and named 11
    ],
)
def test_a_driver_older_than_the_cuda_of_the_image_is_a_gap(soname: str, driver: str, needed: str):
    floors = {"10.1": "418.39", "11": "450.80.02", "12": "525.60.13"}
    objects = {"/opt/lib.so": elf(soname)}
    cuda = hardware.cuda_of(objects, floors)
    found = hardware.cuda_gaps(cuda, floors, named(driver))
    assert [each.needs for each in found] == ([needed] if needed else [])
    assert all(driver in each.cause and each.object == "/opt/lib.so" for each in found)
    compat = {"/usr/local/cuda/compat/libcuda.so.1": elf("libcuda.so.1")}
    assert hardware.cuda_of(objects | compat, floors) == cuda
    assert hardware.cuda_of(objects | compat, floors, {"/opt/lib.so": frozenset(compat)}) == {}
    assert hardware.cuda_gaps(cuda, floors, NO_DRIVER) == []
    assert hardware.lowest_driver(cuda, floors) == floors.get(next(iter(cuda), ""), "")


def test_the_cuda_that_an_object_opens_counts_although_the_image_lacks_it():
    floors, opened = {"12": "525.60.13", "13": "580.65.06"}, {"/plugin.so": ("libcudart.so.13", "libcublas.so.12")}
    objects = {"/plugin.so": elf("plugin.so")}
    assert hardware.cuda_of(objects, floors) == {}
    assert hardware.cuda_of(objects, floors, {}, opened) == {"13": "/plugin.so"}
    assert hardware.cuda_of(objects, floors, {"/plugin.so": frozenset({"/compat"})}, opened) == {}
    assert hardware.cuda_of({**objects, "/a.so": elf("libcudart.so.13")}, floors, {}, opened) == {"13": "/a.so"}


def test_a_cuda_without_a_known_driver_is_said():
    floors = {"10.1": "418.39", "12": "525.60.13"}
    objects = {"/a.so": elf("libcudart.so.12"), "/b.so": elf("libcudart.so.14"), "/c.so": elf("libcublas.so.10")}
    cuda = hardware.cuda_of(objects, floors)
    assert cuda == {"10": "/c.so", "12": "/a.so", "14": "/b.so"}
    assert hardware.lowest_driver(cuda, floors) == "525.60.13"
    notes = hardware.cuda_notes(cuda, floors)
    assert [note for note in notes if "CUDA 14" in note and "/b.so" in note] and len(notes) == 2


def test_the_newest_cuda_decides_about_the_lowest_driver():
    floors = {"11": "450.80.02", "12": "525.60.13"}
    cuda = hardware.cuda_of({"/a.so": elf("libcudart.so.11.0"), "/b.so": elf("libcublas.so.12")}, floors)
    assert cuda == {"11": "/a.so", "12": "/b.so"} and hardware.lowest_driver(cuda, floors) == "525.60.13"


def test_what_is_not_checked_for_a_named_driver_is_said():
    (between, opened) = hardware.driver_notes(needs("drvNew"), named("2.0"))
    assert "not known whether its libdriver.so.1 has all symbols (1)" in between and "by 1 object" in opened
    assert len(hardware.driver_notes(needs("drvNew"), named("2.10"))) == 1
    assert any("drvFile" in note for note in hardware.driver_notes(needs("drvFile"), named("3.0")))
    (nothing,) = hardware.driver_notes(hardware.driver_needs({"/a.so": elf("")}, RULES, KNOWN, {}), named("2.0"))
    assert "no object of the image uses a library of the driver" in nothing
    assert hardware.driver_notes(needs("drvNew"), replace(named("2.0"), is_named=False)) == ()


def test_the_real_symbols_are_those_of_four_drivers(tmp_path: Path):
    real = hardware.load(IMAGES)
    assert real.drivers == ("470.256.02", "535.261.03", "550.163.01", "580.159.04")
    cuda = real.libraries["libcuda.so.1"]
    # cuda.h of CUDA 12.0, 12.4 and 12.8: https://docs.nvidia.com/cuda/archive/12.8.0/cuda-driver-api/
    names = ("cuInit", "cuGetProcAddress_v2", "cuGreenCtxCreate", "cuCheckpointProcessCheckpoint")
    assert tuple(cuda[name] for name in names) == real.drivers
    (tmp_path / DRIVER_SYMBOLS).write_text("{}")
    with pytest.raises(InvalidInputError):
        hardware.load(tmp_path)
