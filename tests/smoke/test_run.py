"""Whole runs with the NumPy adapter: the answer, the same answer with every Python, and the places where it must work."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envbuild.smoke import stats

from .conftest import FAULTY, FEW, GUEST, PYTHONS, REPOSITORY, Answer, Guest

SCHEMA = json.loads((REPOSITORY / "envbuild/schemas/smoke-report.json").read_text())
SHORT = ("--train-images", "4096", "--test-images", "512", "--epochs", "1", "--min-accuracy", "0.7", "--rounds", "6")
SHORT += ("--round-seconds", "0.05", "--warmup-max", "12")
ORACLE = ("run", "--adapter", "numpy", "--phases", "oracle")


def valid(answer: Answer) -> dict[str, Any]:
    assert answer.report is not None, answer.err
    jsonschema.Draft202012Validator(SCHEMA).validate(answer.report)
    return answer.report


@pytest.fixture(scope="module")
def runs(guest_of: Callable[[str], Guest], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answer]:
    done: dict[str, Answer] = {}

    def run(version: str) -> Answer:
        if version not in done:
            done[version] = guest_of(version).run("run", "--adapter", "numpy", *SHORT, folder=tmp_path_factory.mktemp("run"))
        return done[version]

    return run


@pytest.mark.parametrize("version", FEW)
def test_a_healthy_framework_passes_on_one_and_two_workers(runs: Callable[[str], Answer], version: str) -> None:
    answer = runs(version)
    report = valid(answer)
    assert (answer.code, report["status"], answer.failed()) == (0, "pass", set()), answer.err
    assert report["framework"]["python"].startswith(version)
    for n in (1, 2):
        oracle = answer.check("ORACLE", n)
        assert oracle["value"] < oracle["limit"] / 2  # libraries round differently on other processors
    assert answer.check("REPLICA", 2)["status"] == answer.check("COLL", 2)["status"] == "pass"
    assert [training["n"] for training in report["training"]] == [1, 2]
    assert [run["n"] for run in report["runs"]] == [2]  # the run with two workers also times one worker
    assert answer.check("SPEED", 2)["status"] == "skip"
    assert report["allocator"]["set_by_test"] == sorted(report["allocator"]["variables"]) != []
    (plain,) = report["plain_runs"]  # the launch whose ranks do not get the allocator settings
    assert (plain["n"], plain["allocator"]) == (2, {})
    assert all(plain["images_per_s"][mode] > 0 for mode in ("solo", "dp"))
    assert plain["page_faults_per_step"] >= 0
    assert "page faults per step)" in answer.out
    assert "a plain training script without MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_:" in answer.out
    assert "1 CPU worker" in answer.out and "2 CPU workers" in answer.out and "PASS" in answer.out
    assert "2 workers: train" in answer.err
    assert (answer.out + answer.err).isascii()


def test_every_python_trains_on_the_same_data(runs: Callable[[str], Answer]) -> None:
    assert len({valid(runs(version))["data"]["sha256"] for version in FEW}) == 1


@pytest.mark.parametrize("version", FEW)
def test_figures_follow_from_the_laps(runs: Callable[[str], Answer], version: str) -> None:
    run = next(run for run in valid(runs(version))["runs"] if run["n"] == 2)
    ratios = [2 * lap["solo_s"] / lap["dp_s"] for lap in run["rounds"]]
    assert {key: run["speedup"][key] for key in stats.summary(ratios)} == pytest.approx(stats.summary(ratios))
    assert [lap["order"] for lap in run["rounds"][:2]] == ["solo,indep,dp,input", "input,dp,indep,solo"]
    assert run["harness_share"] > 0
    assert not run["judged"]


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda report: report.pop("checks"),
        lambda report: report.update(status="great"),
        lambda report: report["checks"][0].update(surprise=1),
        lambda report: report["runs"][0].pop("step_ms"),
        lambda report: report.update(exit_code=1),
        lambda report: report["checks"][0].update(status="fail"),
    ],
)
def test_the_schema_refuses(runs: Callable[[str], Answer], break_it: Callable[[dict[str, Any]], Any]) -> None:
    report = json.loads(json.dumps(runs(FEW[-1]).report))
    break_it(report)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(report))


def lock_of(folder: Path, **changes: Any) -> Path:
    framework = {"name": "numpy", "version": "0", "recipe": "numpy", "options": {}}
    environment = {
        "name": "numpy-0-x",
        "frameworks": [framework],
        "cuda": "12.4",
        "cudnn": None,
        "nccl": None,
        "driver_min": "550.54",
    }
    path = folder / "lock.json"
    path.write_text(json.dumps({"environment": {**environment, "compute_capability": None, **changes}}))
    return path


NO_DRIVER = {"ENVBUILD_SMOKE_LIBCUDA": "/nowhere/libcuda.so.1"}


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        ((), 3, "inconclusive"),
        (("--allow-cpu",), 3, "inconclusive"),
        (("--allow-cpu", "--expect", "cpu"), 0, "pass"),
        (("--expect", "gpu"), 1, "fail"),
    ],
)
def test_a_gpu_image_without_gpu_proves_nothing(
    guest: Guest, tmp_path: Path, arguments: tuple[str, ...], code: int, status: str
) -> None:
    numpy = guest.numpy.name.split("numpy")[1]
    lock = lock_of(
        tmp_path, frameworks=[{"name": "numpy", "version": numpy, "recipe": "numpy", "options": {"cuda_build": "12.4"}}]
    )
    answer = guest.run(
        "run", "--phases", "oracle", "--adapter", FAULTY, "--lock", lock, *arguments,
        folder=tmp_path, env=guest.env(**NO_DRIVER),
    )  # fmt: skip
    report = valid(answer)
    assert (answer.code, report["status"]) == (code, status), answer.err
    assert report["mode"]["gpu_image"] is True
    assert report["environment"]["name"] == "numpy-0-x"
    if "--allow-cpu" in arguments:
        assert answer.check("ORACLE", 2)["status"] == "pass"
        assert any("A GPU image was tested on the CPU" in note for note in report["notes"])


def test_a_cpu_build_in_a_gpu_image_fails_even_on_the_cpu(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(
        "run", "--phases", "oracle", "--counts", "1", "--lock", lock_of(tmp_path), "--allow-cpu", "--expect", "cpu",
        folder=tmp_path, env=guest.env(**NO_DRIVER),
    )  # fmt: skip
    assert answer.code == 1
    assert answer.failed() == {"BUILD", "VERSION"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--counts", "0"),
        ("run", "--adapter", "nonesuch"),
        ("run", "--phases", "dance", "--adapter", "numpy"),
        ("run", "--lock", "/nowhere/lock.json"),
        ("run", "--adapter", "numpy", "--min-speedup", "fast"),
        ("run", "--adapter", "numpy", "--min-speedup", "2:nan"),
        ("run", "--adapter", "numpy", "--min-accuracy", "nan"),
        ("run", "--adapter", "numpy", "--stall", "-1"),
        ("run", "--adapter", "numpy", "--round-seconds", "inf"),
        ("run", "--adapter", "numpy", "--seed", "-1"),
        ("run", "--adapter", "numpy", "--json", "/tmp"),
        ("dance",),
        ("--dance",),
    ],
)
def test_wrong_usage_is_told_apart(guest: Guest, arguments: tuple[str, ...]) -> None:
    process = guest.start(*arguments)
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "Traceback" not in err


def test_the_report_goes_to_the_target_of_a_link_and_into_a_pipe(guest: Guest, tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "report.json"
    target.write_text("an earlier report")
    link.symlink_to(target)
    quick = ("run", "--adapter", "numpy", "--phases", "coll", "--counts", "1", "--json")
    guest.start(*quick, str(link)).communicate(timeout=600)
    assert link.is_symlink() and json.loads(target.read_text())["status"] == "pass"
    out, _ = guest.start(*quick, "/dev/stdout").communicate(timeout=600)
    assert json.JSONDecoder().raw_decode(out)[0]["status"] == "pass"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    guest.start(*quick, "/dev/null").communicate(timeout=600)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_the_verb_may_be_left_out(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("--adapter", "numpy", "--counts", "1", "--phases", "oracle", folder=tmp_path)
    assert (answer.code, valid(answer)["status"]) == (0, "pass"), answer.err
    _out, err = guest.start().communicate(timeout=600)
    assert "names its framework" in err, "no run: nothing asked for the image's lock"


def test_a_numpy_that_cannot_be_imported_is_said_in_a_sentence(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('libcblas.so.3: cannot open shared object file')")
    process = guest.start("run", env=guest.env(PYTHONPATH=str(tmp_path)))
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "cannot import NumPy" in err
    assert "libcblas.so.3" in err
    assert "Traceback" not in err


def test_a_broken_adapter_is_an_error_that_leaves_a_report(guest: Guest, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("this is no Python\n")
    answer = guest.run("run", "--adapter", broken, folder=tmp_path)
    assert (answer.code, valid(answer)["status"]) == (1, "error")
    assert "SyntaxError" in valid(answer)["reason"]
    assert "the smoke test failed because" in answer.out


def test_a_report_that_cannot_be_written_is_told_at_once(guest: Guest) -> None:
    process = guest.start("run", "--adapter", "numpy", "--json", "/nowhere/report.json")
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "/nowhere/report.json" in err


def test_weak_and_strong_scaling_are_told_apart(guest: Guest, tmp_path: Path) -> None:
    bench = (
        "--phases",
        "bench",
        "--counts",
        "2",
        "--rounds",
        "3",
        "--round-seconds",
        "0.05",
        "--batch",
        "16",
        "--warmup-max",
        "10",
    )
    answer = guest.run("run", "--adapter", "numpy", *bench, "--scaling", "weak,strong", folder=tmp_path)
    weak, strong = valid(answer)["runs"]
    assert (weak["scaling"], weak["batch_per_device"], weak["global_batch"]) == ("weak", 16, 32)
    assert (strong["scaling"], strong["batch_per_device"], strong["global_batch"]) == ("strong", 8, 16)
    ratio = strong["rounds"][0]["solo_s"] / strong["rounds"][0]["dp_s"]
    assert min(strong["speedup"]["lo"], ratio) <= strong["speedup"]["median"] <= max(strong["speedup"]["hi"], ratio)
    assert "strong scaling" in answer.out


def test_of_several_frameworks_the_probe_needs_a_choice(guest: Guest, tmp_path: Path) -> None:
    two = [{"name": name, "version": "1", "recipe": "numpy", "options": {}} for name in ("a", "b")]
    process = guest.start("probe", "--lock", lock_of(tmp_path, frameworks=two, cuda=None))
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "--framework" in err


# Starts loopback (by ioctl if there is no `ip`), makes everything read-only, and runs a command as a user without HOME.
BARE = """
ip link set lo up 2>/dev/null || "$1" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 1, b""))'
mount -o remount,bind,ro / && exec setpriv --reuid 54321 --regid 54321 --clear-groups env -u HOME -u USER -u LOGNAME "$@"
"""


def test_bare_container_no_home_no_name_nothing_writable_but_tmp(guest_of: Callable[[str], Guest]) -> None:
    """A user id without a passwd entry, HOME unset, only the loopback network, a read-only root and a small /tmp."""
    if os.getuid() != 0:
        pytest.skip("only root can take everything away")
    if (
        tried := subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    ).returncode:
        pytest.skip(f"unshare is not allowed here: {tried.stderr.strip()}")
    open_to_all = [(v, Path(f"/usr/{where}/python{v}")) for v in PYTHONS for where in ("bin", "local/bin")]
    version, python = next(((v, python) for v, python in open_to_all if python.exists()), (None, None))
    if version is None:
        pytest.skip("every Python of this machine lives where only root can look")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(guest_of(version).numpy, place / "numpy")
        shutil.copytree(GUEST, place / "smoke", ignore=shutil.ignore_patterns("__pycache__"))
        (place / "tmp").mkdir()
        script = f"mount -t tmpfs -o size=256m,mode=1777 tmpfs {place}/tmp; {BARE}"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{place}/numpy", "TMPDIR": f"{place}/tmp"}
        argv = [
            "unshare",
            "--net",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            str(python),
            f"{place}/smoke",
            *ORACLE,
            "--counts",
            "2",
        ]
        done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout


def test_probe_tells_machine_and_framework(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("probe", "--adapter", "numpy", folder=tmp_path)
    assert answer.code == 0, answer.err
    assert answer.report is not None
    assert answer.report["schema"] == "envbuild-smoke-probe/1"
    assert answer.report["framework"]["version"] == guest.numpy.name.split("numpy")[1]
    assert answer.report["framework"]["cuda_build"] is None
    assert answer.report["host"]["cores_usable"] >= 1
    assert "processor" in answer.out


def test_collectives_alone(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("coll", "--adapter", "numpy", "--counts", "2", folder=tmp_path)
    report = valid(answer)
    assert answer.code == 0, answer.err
    sizes = [entry["bytes"] for entry in report["collectives"] if (entry["op"], entry["type"]) == ("allreduce", "float32")]
    assert sizes == sorted(sizes) and sizes[-1] == 64 << 20
    assert all(entry["wrong"] == 0 and entry["busbw_GBps"] > 0 for entry in report["collectives"])


def test_explain_knows_every_check_of_a_report(guest: Guest, runs: Callable[[str], Answer]) -> None:
    report = valid(runs(FEW[-1]))
    for key in {check["id"] for check in report["checks"]}:
        process = guest.start("explain", key)
        out, _err = process.communicate(timeout=600)
        assert process.returncode == 0
        assert out.startswith(f"{key}: ")
    unknown = guest.start("explain", "NONESUCH")
    unknown.communicate(timeout=600)
    assert unknown.returncode == 2
