"""Run the tests of the guest's parts (folder inside) with every Python of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from .conftest import EVERY, FEW, INSIDE, NEWEST, OLDEST, Guest

MEASURING = [
    "check_refnet",
    "check_reported",
    "check_synth",
    "check_stats",
    "check_group",
    "check_exchange",
    "check_ranks",
    "check_starvation",
    "check_fullness",
    "check_hosts",
    "check_nets",
    "check_mpi",
    "check_buckets",
]
JUDGING = [
    "check_checks",
    "check_machine_checks",
    "check_speed",
    "check_timed",
    "check_later_steps",
    "check_schemes",
    "check_baseline",
    "check_clocks",
    "check_stored",
    "check_data",
    "check_adapters",
    "check_horovod",
]

# They simulate every fault, which takes minutes.
DIAGNOSING = ["check_diagnose", "check_faults"]

TIMEOUT_S = 1800  # longer than that is a hang; a loaded machine needs ten times as long as an idle one


def _unittest(guest: Guest, *names: str) -> None:
    command = [guest.executable, "-m", "unittest", *names]
    done = subprocess.run(command, cwd=INSIDE, env=guest.env(), capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-6000:]
    assert "OK" in done.stderr
    assert "Ran 0 tests" not in done.stderr


@pytest.mark.parametrize("version", EVERY)
def test_reference_data_statistics_and_group(guest_of: Callable[[str], Guest], version: str) -> None:
    _unittest(guest_of(version), *MEASURING)


_ENDS = [pytest.param(version, marks=() if version in {OLDEST, NEWEST} else pytest.mark.prove) for version in FEW]


@pytest.mark.parametrize("version", _ENDS)
def test_verdicts(guest_of: Callable[[str], Guest], version: str) -> None:
    _unittest(guest_of(version), *JUDGING)


_NEWEST = [pytest.param(version, marks=() if version == NEWEST else pytest.mark.prove) for version in FEW]


@pytest.mark.parametrize("version", _NEWEST)
def test_diagnoses(guest_of: Callable[[str], Guest], version: str) -> None:
    _unittest(guest_of(version), *DIAGNOSING)
