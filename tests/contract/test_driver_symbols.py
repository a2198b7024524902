"""The symbols of the driver against NVIDIA's tables, which the matrix has."""

from __future__ import annotations

from pathlib import Path

from real_matrix import FACTS

from envbuild.linkcheck import hardware
from envbuild.matrix.versions import numbers

ROOT = Path(__file__).parents[2]


def test_headers_and_libraries_agree_with_the_drivers_of_the_matrix():
    """A function is in the first driver that was read and is no older than the driver of the CUDA that declares it."""
    real, compared = hardware.load(ROOT / "images"), 0
    toolkits = {row.version: (row.releases[-1].driver_min if row.releases else "") or row.driver_min for row in FACTS.cuda}
    for library, symbols in real.headers.items():
        for symbol, cuda in symbols.items():
            first = real.libraries[library].get(symbol)
            came = numbers(toolkits[cuda])
            if first is None:
                assert came > numbers(real.drivers[-1]), symbol
            else:
                compared += 1
                # NVML's functions come with drivers, so a later release of an older branch may have them, too.
                assert library != "libcuda.so.1" or numbers(real.before(first)) < came <= numbers(first), symbol
    assert compared > 150
