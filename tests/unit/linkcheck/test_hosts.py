"""The glibc that libraries of a host need in a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from linked_trees import elf

from envbuild.errors import InvalidInputError
from envbuild.linkcheck import hosts
from envbuild.workspace import HOST_LIBRARIES

IMAGES = Path(__file__).parents[3] / "images"
REAL = hosts.load(IMAGES)


def image(glibc: str, *needed: str, **more: tuple[str, ...]) -> dict[str, object]:
    objects = {
        "/lib/libc.so.6": elf("libc.so.6", defines=("libc.so.6", "GLIBC_2.2.5", f"GLIBC_{glibc}", "GLIBC_PRIVATE")),
        "/a.so": elf("", *needed, **more),
    }
    return hosts.check(objects, REAL)


def test_libraries_of_a_newer_system_do_not_fit_an_older_image():
    told = image("2.27", "libGL.so.1")
    assert told["glibc"] == "2.27"
    assert {each["host"]: each["too_new"] for each in told["bound"] if each["too_new"]} == {
        "debian12": ["libGLX.so.0", "libGLdispatch.so.0"],
        "debian13": ["libGLX.so.0", "libGLdispatch.so.0"],
    }
    (first, second) = hosts.notes(told)
    assert "debian12" in first and "glibc 2.34" in first and "the image has glibc 2.27" in second
    assert hosts.notes(image("2.36", "libGL.so.1")) == [second.replace("2.27", "2.36")]
    assert hosts.notes(image("2.41", "libGL.so.1")) == []


def test_libraries_that_nobody_uses_do_not_count():
    assert hosts.notes(image("2.17")) == []


def test_libraries_of_the_driver_need_an_old_glibc():
    told = image("2.12", opens=("libcuda.so", "libnvidia-ml.so"))
    (newest,) = (each for each in told["bound"] if each["host"] == "driver 550.163.01")
    assert newest == {
        "host": "driver 550.163.01",
        "libraries": ["libcuda.so.1", "libnvidia-ml.so.1"],
        "glibc": "2.9",
        "too_new": [],
    }
    assert "libcuda.so.1" in hosts.notes(image("2.5", "libcuda.so.1"))[-1]


def test_a_damaged_file_is_refused(tmp_path: Path):
    (tmp_path / HOST_LIBRARIES).write_text('{"hosts": {"x": {"libc.so": "new"}}, "loads": {}}')
    with pytest.raises(InvalidInputError):
        hosts.load(tmp_path)
