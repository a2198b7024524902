"""What `matrix measure` prints about a file."""

from __future__ import annotations

import _ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import widget_world
from elf_files import EXACT, NATIVE, Shared, container, entry, wheel

from envbuild.cli import frame


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Measure a wheel with these files, and return the printed lines without their indentation."""
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    root = widget_world.make_root(tmp_path)

    def run(members: dict[str, bytes]) -> list[str]:
        path = tmp_path / "other-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
        path.write_bytes(wheel(members, project="other", version="1.0"))
        assert frame.run(["matrix", "measure", "--no-compare", str(path), "--root", str(root)]) == 0
        return [line.strip() for line in capsys.readouterr().out.splitlines()]

    return run


def library(*lists: tuple[int, ...], flags: int = 0x11) -> bytes:
    code = b"".join(container(*(entry(NATIVE, each, flags=flags) for each in native)) for native in lists)
    return Shared(fatbins={".nv_fatbin": code}).data()


def test_libraries_for_different_gpus_get_a_line_each(printed: Callable[..., list[str]]) -> None:
    """As xformers 0.0.30: most kernels are in a library for exactly 9.0, and the other library is for six GPUs."""
    lines = printed({"w/_C.so": library((70, 80)), "w/_hopper.so": library(*[(90,)] * 5, flags=0x11 | EXACT)})
    at = next(number for number, line in enumerate(lines) if line.startswith("GPU code"))
    assert [line.removeprefix("GPU code").strip() for line in lines[at : at + 4]] == [
        "most kernels: native 9.0a; PTX none",
        "likely: 83% of the fat binaries that do not belong to CUDA's libraries",
        "w/_C.so: native 7.0 8.0; PTX none (certain)",
        "w/_hopper.so: native 9.0a; PTX none (certain)",
    ]


def test_the_line_about_the_processor_says_what_was_read(printed: Callable[..., list[str]]) -> None:
    lines = printed({"w/_ctypes.so": Path(_ctypes.__file__).read_bytes()})
    (line,) = [line for line in lines if line.startswith("processor")]
    assert re.fullmatch(
        r"processor +not known: [1-9]\d* initialisers and the functions that they call use no more than x86-64; "
        "other code was not read",
        line,
    )


def test_libraries_for_equal_gpus_get_one_line(printed: Callable[..., list[str]]) -> None:
    lines = printed({"w/_C.so": library((70, 80)), "w/_D.so": library((70, 80))})
    assert "GPU code   native 7.0 8.0; PTX none" in lines
    assert not any(line.startswith("w/") for line in lines)
