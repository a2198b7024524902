"""Every GPU of the matrix is found by the spellings that people, cloud providers and nvidia-smi use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from real_matrix import FACTS

from envbuild.errors import UnknownNameError
from envbuild.matrix.types import Matrix
from envbuild.resolve.request.gpus import find_gpu

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "hyphens": lambda name: name.replace(" ", "-"),
    "underscores": lambda name: name.replace(" ", "_"),
    "glued": lambda name: name.replace(" ", ""),
    "vendor": lambda name: f"NVIDIA {name}",
    "cloud": lambda name: f"nvidia-{name.lower().replace(' ', '-')}",
    "memory": lambda name: f"{name} 24GB",
    "laptop": lambda name: f"{name} Laptop GPU",
    "max-q": lambda name: f"{name} with Max-Q Design",
    "lspci": lambda name: f"NVIDIA Corporation GX100 [{name}] (rev a1)",
    "several": lambda name: f"8x {name}",
}


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_gpu_is_found(facts: Matrix, spelling: str) -> None:
    wrong = {}
    for row in facts.gpus:
        for name in (row.name, *row.aliases):
            found, _ = find_gpu(facts, SPELLINGS[spelling](name))
            assert found.board is not None
            if (found.capability, found.board.host) != (row.capability, row.host):
                wrong[SPELLINGS[spelling](name)] = found.text
    assert not wrong


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("RTX 6000", "RTX 6000 Ada"),
        ("GT 730", "GeForce GT 730 (Fermi)"),
        ("GTX 860M", "(Kepler)"),
        ("Titan X", "TITAN X (Pascal)"),
    ],
)
def test_a_name_that_unlike_gpus_share_is_refused(facts: Matrix, name: str, shared: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu(facts, name)
    assert caught.value.code == "ambiguous-gpu" and shared in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["Tesla", "24GB", "Z", "GPU", "90", "\\d", "(", "[]", "é", "RTX 3090; ls", "x" * 5000])
def test_what_names_no_gpu_is_refused(facts: Matrix, name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_gpu(facts, name)
    assert caught.value.code == "unknown-gpu" and len(caught.value.message) < 120


def test_no_name_of_another_vendor_takes_a_gpu_of_ours(facts: Matrix) -> None:
    """The patterns for other vendors match no name of an NVIDIA GPU, even if its row is removed."""
    for row in facts.gpus:
        without = facts._replace(gpus=())
        with pytest.raises(UnknownNameError) as caught:
            find_gpu(without, row.name)
        assert caught.value.code == "unknown-gpu", row.name
