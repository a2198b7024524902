"""ChainerMN on two processes with Open MPI, healthy and with faults planted in its communicator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import GUEST, INSIDE, PYTHONS, REPOSITORY, Guest

CHAINER = ("chainer==7.8.1", "mpi4py==4.1.2", "numpy==1.23.5", "setuptools==69.5.1")
# Fault → (the checks that must fail, the cause that must be named).
FAULTS = {
    "": (set(), None),
    "not-exchanged": ({"ORACLE", "REPLICA"}, "no-exchange"),
    "summed": ({"ORACLE"}, "gradients-summed"),
}


@pytest.fixture(scope="module")
def with_chainer(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """Chainer and mpi4py for Python 3.9, and a copy of the guest with Chainer's adapter and the faulty one."""
    if "3.9" not in PYTHONS:
        pytest.skip("this machine has no Python 3.9")
    said = (
        subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False) if shutil.which("mpirun") else None
    )
    if said is None or "(Open MPI) 4." not in said.stdout:
        pytest.skip("this machine has no mpirun of Open MPI 4")
    folder = tmp_path_factory.mktemp("chainer")
    install = [PYTHONS["3.9"], "-m", "pip", "install", "--quiet", "--target", str(folder), *CHAINER]
    subprocess.run(install, check=True)
    guest = tmp_path_factory.mktemp("guest") / "smoke"
    shutil.copytree(GUEST, guest, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "images/recipes/chainer/smoke.py", guest / "adapters/chainer.py")
    shutil.copy(INSIDE / "faulty_chainermn.py", guest / "adapters/faulty_chainermn.py")
    return Guest("3.9", PYTHONS["3.9"], folder, guest=guest)


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS)
def test_chainermn_averages_and_its_faults_are_named(with_chainer: Guest, tmp_path: Path, fault: str) -> None:
    chosen = ("--option", "exchange=chainermn", "--option", f"fault={fault}", "--counts", "2", "--phases", "coll,oracle")
    answer = with_chainer.run("run", "--adapter", "faulty_chainermn", *chosen, folder=tmp_path)
    failed, cause = FAULTS[fault]
    assert (answer.code, answer.failed()) == (1 if failed else 0, failed), answer.out
    assert answer.check("COLL", 2)["status"] == "pass"
    assert ((answer.check("ORACLE", 2)["detail"]["hypothesis"] or {}).get("id")) == cause
    assert answer.report is not None
    assert answer.report["framework"]["semantics"]["exchange"] == "ChainerMN, create_multi_node_optimizer"
