"""The checks of the driver, with small C libraries instead of libcuda and NVML: every answer that a real driver can give."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import FAULTY, FEW, REPOSITORY, Answer, Guest, compiled
from .test_run import lock_of, valid

TWO = "Tesla A|8|0|40;Tesla A|8|0|40"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """A function that returns the environment variables which replace the driver by the stand-ins."""
    folder = tmp_path_factory.mktemp("stubs")
    compiled(folder, "libcuda", "libnvml", "libcudnn", "libnccl", "libcublas")
    libraries = {"ENVBUILD_SMOKE_LIBCUDA": str(folder / "libcuda.so"), "ENVBUILD_SMOKE_LIBNVML": str(folder / "libnvml.so")}
    libraries |= {"ENVBUILD_SMOKE_LIBCUBLAS": str(folder / "libcublas.so"), "STUB_LIBRARIES": str(folder)}

    def make(**settings: str) -> dict[str, str]:
        return libraries | {f"STUB_{key.upper()}": value for key, value in settings.items()}

    return make


@pytest.mark.parametrize("version", FEW)
def test_probe_reads_devices_links_and_memory(
    guest_of: Callable[[str], Guest], driver: Callable[..., dict[str, str]], tmp_path: Path, version: str
) -> None:
    guest = guest_of(version)
    env = guest.env(**driver(devices=TWO, driver="550.54", count="2"))
    env.pop("CUDA_VISIBLE_DEVICES", None)
    report = guest.run("probe", folder=tmp_path, env=env).report
    assert report is not None
    assert (report["host"]["driver"], report["host"]["driver_cuda"]) == ("550.54", "12.4")
    first, second = report["devices"]
    assert (first["name"], first["cc"], first["mem_bytes"], first["peers"]) == ("Tesla A", "8.0", 40 << 30, [1])
    assert (second["uuid"], second["power_limit_w"], second["pcie_gen"], second["pcie_width"]) == ("GPU-1", 250.0, 3, None)
    assert report["topology"] == {"gpus": [0, 1], "links": [["X", "PXB"], ["PXB", "X"]]}


def test_a_hidden_device_is_not_mixed_up_with_another(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    stubs = driver(devices="Tesla A|8|0|40", driver="550.54", count="2", first="1")
    report = guest.run("probe", folder=tmp_path, env=guest.env(**stubs, CUDA_VISIBLE_DEVICES="1")).report
    assert report is not None
    assert [(device["name"], device["uuid"]) for device in report["devices"]] == [("Tesla A", "GPU-1")]
    assert report["variables"]["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("settings", "code", "check", "words"),
    [
        ({"init": "803"}, 1, "DRIVER", "does not match the driver in the kernel"),
        ({"init": "804"}, 1, "DRIVER", "forward-compatibility"),
        ({"init": "802"}, 1, "DRIVER", "not ready"),
        ({"init": "999"}, 1, "DRIVER", "unknown error"),
        ({"init": "100"}, 3, "DEVICES", "the driver sees no GPU"),
        ({"devices": ""}, 3, "DEVICES", "reports no GPU"),
        ({"devices": TWO, "version": "11080"}, 1, "DRIVER", "supports CUDA 11.8, and the image needs CUDA 12.4"),
        ({"devices": "Old|3|5|12"}, 1, "ARCH", "cannot run this framework"),
    ],
)
def test_an_unusable_driver_is_told_with_its_cause(
    guest: Guest,
    driver: Callable[..., dict[str, str]],
    tmp_path: Path,
    settings: dict[str, str],
    code: int,
    check: str,
    words: str,
) -> None:
    lock = lock_of(tmp_path, compute_capability={"sass": ["7.0", "8.0"], "ptx": []})
    answer = guest.run("run", "--lock", lock, "--phases", "oracle", folder=tmp_path, env=guest.env(**driver(**settings)))
    found = next(c for c in valid(answer)["checks"] if c["id"] == check and c["status"] != "pass")
    assert answer.code == code, answer.err
    assert words in found["message"]
    assert found["next_step"]
    assert answer.report is not None
    assert answer.report["framework"] is None  # no rank was started


def _on_gpus(guest: Guest, folder: Path, env: dict[str, str], *arguments: str, **how: Any) -> Answer:
    """Run the guest with the NumPy adapter, which claims to use GPUs: a CUDA run without CUDA arithmetic."""
    numpy = guest.numpy.name.split("numpy")[1]
    options = {"fault": "elsewhere", "cuda_build": "12.4", "load": "cuda,cudnn,nccl"}
    framework = {"name": "f", "version": numpy, "recipe": "numpy", "options": options}
    promised = {"compute_capability": {"sass": ["8.0"], "ptx": ["8.0"]}, "cudnn": "8.9.7", "nccl": "2.21.5"}
    lock = lock_of(folder, frameworks=[framework], **promised)
    return guest.run("run", "--adapter", FAULTY, "--lock", lock, *arguments, folder=folder, env=guest.env(**env), **how)


def test_a_run_on_two_gpus(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    stubs = driver(devices=TWO, driver="550.54", count="2", near="3", lanes="16", links="4")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "coll,oracle")
    report = valid(answer)
    assert (answer.code, report["mode"]["device"], report["notes"]) == (0, "cuda", []), answer.err
    assert {check['id'] for check in report['checks'] if check['n'] is None} == {
        'ARCH', 'BUILD', 'BUSY', 'CORES', 'DEVICES', 'DRIVER', 'ENV', 'HEALTH', 'LOOPBACK', 'MEMLOCK', 'MEMORY', 'MIG', 'MIXED',
        'MPS', 'NUMA', 'PCIE', 'PEER', 'PEERCOPY', 'RAM', 'SHM', 'THROTTLE', 'TIME', 'VERSION', 'VISIBLE',
    }  # fmt: skip
    assert {answer.check(key, 2)["status"] for key in ("CUDNN", "LIBS", "NCCL", "USED")} == {"pass"}
    assert answer.check("PEER")["detail"] == {"pairs": {"0-1": "NV4"}}
    assert "2 GPUs" in answer.out


def test_two_ranks_may_share_a_gpu(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    stubs = driver(devices="Tesla A|8|0|40", driver="550.54", count="1")
    bench = ("--rounds", "2", "--round-seconds", "0.02", "--batch", "8", "--warmup-max", "5", "--workload", "mnist")
    answer = _on_gpus(guest, tmp_path, stubs, "--devices", "0,0", "--counts", "2", "--phases", "coll,oracle,bench", *bench)
    report = valid(answer)
    assert (answer.code, answer.check("ORACLE", 2)["status"], report["link"]) == (0, "pass", None), answer.err
    assert answer.check("DEVICES")["message"] == "2 ranks share 1 GPU"
    assert [(run["judged"], run["why_not_judged"]) for run in report["runs"]] == [(False, "ranks share a GPU")]


def test_a_framework_with_one_process_cannot_share_a_gpu(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    stubs = driver(devices="Tesla A|8|0|40", driver="550.54", count="1")
    adapter = REPOSITORY / "images/recipes/tensorflow/smoke.py"
    arguments = ("--adapter", adapter, "--device", "cuda", "--devices", "0,0")
    answer = guest.run("run", *arguments, folder=tmp_path, env=guest.env(**stubs))
    assert (answer.code, answer.report) == (2, None)
    assert "--devices names a GPU twice, but tensorflow cannot run several ranks on one GPU" in answer.err


def test_warm_up_waits_for_the_clocks_of_the_gpus(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    stubs = driver(devices=TWO, driver="550.54", count="2", near="3", lanes="16", links="4", rise="25")
    quick = ("--counts", "2", "--workload", "mnist", "--batch", "4", "--rounds", "2", "--round-seconds", "0.2")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "bench", *quick)
    (run,) = valid(answer)["runs"]
    assert {mode["clocks_settled"] for mode in run["warmup"].values()} == {True}, answer.err
    assert run["warmup"]["solo"]["steps"] > run["warmup"]["indep"]["steps"]  # then the clock has settled
    assert {gpu["sm_clock_mhz"] for lap in run["rounds"] for gpu in lap.get("gpus", ())} == {1380}
    assert "clocks" in run["warmup_rule"]


# A machine with many faults. Each is reported by its own check before any rank is started.
WRONG = {
    'devices': ';'.join([*['A|8|0|40'] * 4, *['B|8|0|16'] * 2]), 'count': '6', 'apart': '0-1', 'level': '50', 'mig_5': '1',
    'used_2': '15900', 'load_1': '88', 'remap_3': '1', 'held_1': '64', 'lanes': '16', 'lanes_1': '4',
}  # fmt: skip
TOLD = {
    "PEER": (
        "warn",
        "The first pair is GPU 0 and 1 (SYS: from one processor to another",
    ),
    "MIG": ("warn", "MIG is on for GPU 5"),
    "MEMORY": ("fail", "GPU 2 has the least free memory: 0.1 of"),
    "BUSY": ("warn", "another program already uses GPU 1: its load is 88 %"),
    "HEALTH": ("fail", "GPU 3 has faulty memory"),
    "THROTTLE": ("warn", "the clock of GPU 1 is kept low by heat (limited by hardware), at 61 degrees C"),
    "PCIE": ("warn", "GPU 1 uses 4 of its 16 PCIe lanes"),
    "MIXED": ("warn", "used: 4 x A with 43 GB (GPU 0, 1, 2, 3); left out: 2 x B with 17 GB (GPU 4, 5)"),
}


def test_each_fault_of_the_gpus_is_told(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    answer = _on_gpus(guest, tmp_path, driver(driver="550.54", **WRONG), "--phases", "oracle")
    for key, (status, words) in TOLD.items():
        found = answer.check(key)
        assert (found["status"], words in found["message"]) == (status, True), found
        assert found["next_step"]
    assert answer.code == 1
    assert valid(answer)["framework"] is None  # no rank was started


def test_a_run_uses_the_largest_set_of_equal_gpus(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    stubs = driver(devices="B|8|0|16;A|8|0|40;A|8|0|40", driver="550.54", count="3")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", "--counts", "2")
    assert (answer.code, answer.check("DEVICE", 2)["message"]) == (0, "used: cuda:1, cuda:2"), answer.err
    assert [gpu["index"] for gpu in answer.check("USED", 2)["detail"]["gpus"]] == [1, 2]
    assert "left out: 1 x B with 17 GB (GPU 0)" in answer.check("MIXED")["message"]


LITTLE_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh")


def test_docker_s_shared_memory_is_told_to_be_little(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    if subprocess.run([*LITTLE_SHM, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system")
    stubs = driver(devices=TWO, driver="550.54", count="2", used="15900")  # fails before any rank starts
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", prefix=LITTLE_SHM)
    found = answer.check("SHM")
    assert (found["status"], found["value"]) == ("warn", 64 << 20)
    assert "--shm-size=1g" in found["next_step"]


def test_gpus_that_sleep_and_libraries_of_another_version_fail(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    stubs = driver(devices=TWO, driver="550.54", count="2", asleep="1", cudnn="7104", nccl="2408")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", "--counts", "1")
    assert (answer.code, answer.failed()) == (1, {"USED", "CUDNN", "NCCL"}), answer.err
    assert "GPU 0 was not used" in answer.check("USED", 1)["message"]
    assert "cuDNN 7.1.4 is loaded, from" in answer.check("CUDNN", 1)["message"]
    assert "NCCL 2.4.8 is loaded, from" in answer.check("NCCL", 1)["message"]


# Unusual answers of NVML and CUDA about a working GPU: (answers, words of the verdict).
WORKING = {
    "no-load": ({"load_then": "-1"}, "memory use rose by 400 MB; NVML does not report the load"),
    "vgpu": ({"load_then": "0", "virtual": "2"}, "memory use rose by 400 MB; NVML does not report the load"),
    "short": ({"load_then": "0"}, "memory use rose by 400 MB; the load was 0 %, but this run may be too short"),
    "no-memory": ({"memory": "-1", "load_then": "-1", "active": "1"}, "1 rank computed on it; NVML does not report the load"),
    "others-left": ({"work": "-50", "active": "1"}, "1 rank computed on it; load reached 93 %"),
    "process": ({"work": "0", "processes_then": "1"}, "1 new process appeared; load reached 93 %"),
    "no-nvml": ({"driver": ""}, "1 rank computed on it; NVML does not report the load"),
}


@pytest.mark.parametrize("kind", WORKING)
def test_a_gpu_that_works_is_seen_whatever_nvml_knows(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path, kind: str
) -> None:
    settings, words = WORKING[kind]
    stubs = driver(**{"devices": "Tesla A|8|0|40", "driver": "550.54", "count": "1", "active": "0", **settings})
    if kind == "no-nvml":
        stubs |= {"ENVBUILD_SMOKE_LIBNVML": "/nowhere", "STUB_ACTIVE": "1"}
    arguments = ("--phases", "oracle", "--counts", "1")
    answer = _on_gpus(guest, tmp_path, stubs, *arguments)
    found = answer.check("USED", 1)
    assert (answer.code, found["status"]) == (0, "pass"), answer.err + str(found)
    assert words in found["message"], found["message"]


def test_a_gpu_that_holds_memory_through_a_training_and_does_nothing_fails(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    stubs = driver(devices="Tesla A|8|0|40", driver="550.54", count="1", active="1", load_then="0")
    bench = ("--rounds", "3", "--round-seconds", "1.2", "--batch", "8", "--warmup-max", "10", "--workload", "mnist")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "bench", "--counts", "1", *bench)
    assert (answer.code, answer.failed()) == (1, {"USED"}), answer.err
    assert "did no work there: the load stayed 0 %" in answer.check("USED", 1)["message"]


@pytest.mark.parametrize(("settings", "n"), [({"ecc_1": "3"}, None), ({"ecc_then_1": "3"}, 2)])
def test_memory_errors_that_were_not_corrected_fail(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path, settings: dict[str, str], n: int | None
) -> None:
    """They fail if they were counted before the test, and if they were counted during it."""
    stubs = driver(devices=TWO, driver="550.54", count="2", **settings)
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", "--counts", "2")
    assert (answer.code, answer.failed()) == (1, {"HEALTH"}), answer.err
    assert "GPU 1" in answer.check("HEALTH", n)["message"] and "3 memory errors" in answer.check("HEALTH", n)["message"]


def test_gpus_asked_for_without_a_lock_are_checked_as_well(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """`--device cuda` in an image that envbuild did not make: driver, variables and MIG slices are checked, too."""
    planted = ("run", "--adapter", FAULTY, "--option", "fault=elsewhere", "--device", "cuda", "--phases", "oracle")

    def look(*arguments: str, visible: str = "", **settings: str) -> Answer:
        env = guest.env(**driver(**settings), **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}))
        return guest.run(*planted, *arguments, folder=tmp_path, env=env)

    told = look(devices=TWO, driver="550.54", count="2", init="803")
    assert (told.code, "DRIVER" in told.failed()) == (1, True), told.err
    hidden = look(devices="Tesla A|8|0|40", driver="550.54", count="1", visible="0,7")
    assert (hidden.code, hidden.failed()) == (1, {"VISIBLE"}), hidden.err
    cut = look("--counts", "1", devices=TWO, driver="550.54", count="2", mig="1")
    assert cut.check("MIG")["status"] == "warn"
    assert "no lock says which CUDA the framework needs" in cut.check("DRIVER")["message"]
    none = look(devices="")
    assert (none.code, none.check("DEVICES")["message"][:39]) == (3, "--device cuda needs a GPU, but there is")


def test_ptx_that_is_newer_than_the_driver_is_named(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """Native code of the libraries runs, because the driver has the same major version.

    The driver refuses the PTX that XLA makes at run time.
    """
    stubs = driver(devices="Tesla A|8|0|40", driver="535.54", count="1", version="12020")
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", "--counts", "1", "--option", "fault=newer-ptx")
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    found = answer.check("RUN", 1)
    assert "for a newer CUDA than this driver supports" in found["message"]
    assert "Update the driver" in found["next_step"]
    assert "cannot compile its PTX" in answer.check("DRIVER")["message"]


@pytest.mark.parametrize(
    ("settings", "stall", "words"),
    [
        ({"corrupt": "0-1"}, "60", "copies between GPU 0 and GPU 1 change 1 numbers"),
        ({"stuck": "0-1"}, "5", "copies between GPU 0 and 1: no result within 5 s"),
    ],
)
def test_copies_between_gpus_that_go_wrong_stop_the_test(
    guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path, settings: dict[str, str], stall: str, words: str
) -> None:
    stubs = driver(devices=TWO, driver="550.54", count="2", **settings)
    answer = _on_gpus(guest, tmp_path, stubs, "--phases", "oracle", "--counts", "2", "--stall", stall)
    assert (answer.code, answer.failed()) == (1, {"PEERCOPY"}), answer.err
    found = answer.check("PEERCOPY")
    assert words in found["message"]
    assert "NCCL_P2P_DISABLE=1" in found["next_step"]
    assert valid(answer)["framework"] is None


def test_ranks_that_load_different_libraries_fail(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    stubs = driver(devices=TWO, driver="550.54", count="2")
    answer = _on_gpus(guest, tmp_path, stubs, "--counts", "2", "--phases", "coll", "--option", "other-nccl-on-rank-1=2408")
    assert (answer.code, "NCCL" in answer.failed()) == (1, True), answer.err
    assert "rank 1 has NCCL 2.4.8" in answer.check("NCCL", 2)["message"]


def test_one_gpu_leaves_data_parallelism_unproved(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    env = driver(devices="Tesla A|8|0|40", driver="550.54", active="1")
    answer = _on_gpus(guest, tmp_path, env, "--phases", "oracle")
    assert (answer.code, valid(answer)["status"]) == (3, "inconclusive"), answer.err
    assert answer.check("ORACLE", 1)["status"] == "pass"
    alone = _on_gpus(guest, tmp_path, env, "--phases", "oracle", "--counts", "1")
    assert (alone.code, valid(alone)["status"]) == (0, "pass"), alone.err


def test_a_floor_for_the_speedup_is_judged_on_gpus(guest: Guest, driver: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    few = (
        "--phases",
        "bench",
        "--counts",
        "2",
        "--rounds",
        "3",
        "--round-seconds",
        "0.05",
        "--batch",
        "8",
        "--warmup-max",
        "10",
    )
    answer = _on_gpus(guest, tmp_path, driver(devices=TWO, active="1"), *few, "--min-speedup", "2:50000")
    assert (answer.code, answer.failed()) == (1, {"SPEED"}), answer.err
    assert "required: speedup 50000.00" in answer.check("SPEED", 2)["message"]
