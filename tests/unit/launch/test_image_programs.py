"""Programs that launchers need in an image."""

import pytest
from launch_orders import HERE, LAUNCHERS

from envbuild.errors import UsageError
from envbuild.launch.image_programs import Contents, load_programs, require_programs
from envbuild.launch.launchers import choose

PROGRAMS = load_programs(HERE)


def refusal(via, kind, contents, vouched=()):
    chosen = choose(LAUNCHERS, via, kind)
    try:
        require_programs(LAUNCHERS, PROGRAMS, chosen, contents, name="x-1.0", vouched=vouched)
    except UsageError as error:
        return error
    return None


NOTHING = Contents(packages={}, apt=frozenset())


TORCH = Contents(packages={"torch": ("2.14.1+cpu",)}, apt=frozenset())


OLD_TORCH = Contents(packages={"torch": ("1.9.1",)}, apt=frozenset())


OPEN_MPI = Contents(packages={}, apt=frozenset({"openmpi-bin"}))


BOTH = Contents(packages={}, apt=frozenset({"openmpi-bin", "openssh-server"}))


@pytest.mark.parametrize(
    ("via", "kind", "contents", "lacking"),
    [
        ("torchrun", "docker", TORCH, []),
        ("torchrun", "docker", OLD_TORCH, ["torchrun"]),
        ("torchrun", "docker", NOTHING, ["torchrun"]),
        ("kubernetes", "mpijob", NOTHING, ["mpirun", "ssh", "sshd"]),
        ("kubernetes", "mpijob", OPEN_MPI, ["sshd"]),
        ("kubernetes", "mpijob", BOTH, []),
        ("mpirun", "inside", OPEN_MPI, ["sshd"]),
        ("mpirun", "docker", NOTHING, []),
        ("slurm", "pyxis", NOTHING, []),
        ("kubernetes", "pytorchjob", NOTHING, []),
    ],
)
def test_a_program_that_the_image_lacks_is_refused_with_what_serves(via, kind, contents, lacking):
    error = refusal(via, kind, contents)
    if not lacking:
        assert error is None
        return
    assert error is not None and error.code == "program-not-in-image"
    assert all(f"--has {name}" in error.hint for name in lacking)
    assert "--via slurm (docker, pyxis, apptainer, inside)" in error.hint and "--via mpirun (docker, apptainer" in error.hint
    assert refusal(via, kind, contents, lacking) is None


def test_a_program_that_no_launcher_asks_for_cannot_be_vouched_for():
    error = refusal("mpirun", "docker", NOTHING, ("bsub",))
    assert error is not None and "torchrun" in error.hint


def test_every_program_that_a_kind_needs_is_described():
    assert {name for launcher in LAUNCHERS.values() for kind in launcher.kinds for name in kind.needs} <= set(PROGRAMS)
