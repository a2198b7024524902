"""`matrix measure` on files made here, on a real wheel, and compared with NVIDIA's own cuobjdump."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import archive_server
import jsonschema
import pytest
from program import ROOT, Answer, Program, own_program

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from elf_files import NATIVE, PTX, Shared, container, entry, wheel

from envbuild.measure import fatbin

# 5 MB, with GPU code in four libraries.
SMALL = "jax-cuda12-plugin==0.7.2"
# Wheels to compare with cuobjdump: compressed and plain code, old and new, with PTX and without.
JUDGED = ("cupy-cuda12x==13.3.0", "jax-cuda12-plugin==0.7.2", "jax-cuda13-plugin==0.10.2")


@pytest.fixture
def own(tmp_path: Path) -> Program:
    return own_program(tmp_path)


def valid(answer: Answer) -> list[dict]:
    schema = json.loads(resources.files("envbuild.schemas").joinpath("measurement.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(answer.document)
    return answer.document["files"]


def _tensor(folder: Path, native: tuple[int, ...]) -> Path:
    """A wheel with the name of a release in the matrix."""
    code = container(*(entry(NATIVE, each) for each in native), *(entry(PTX, each) for each in native))
    path = folder / "tensorflow_gpu-1.12.0-cp36-cp36m-manylinux1_x86_64.whl"
    library = Shared(fatbins={".nv_fatbin": code}, needed=["libcudart.so.9.0"], versions={"libc.so.6": ["GLIBC_2.14"]})
    path.write_bytes(wheel({"tensorflow/lib.so": library.data()}, project="tensorflow-gpu", version="1.12.0"))
    return path


def test_files_without_a_network(own: Program, tmp_path: Path) -> None:
    no_index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    downloads = own.home / "downloads"
    killed, running = downloads / ".measure-killed", downloads / ".measure-running"
    for each in (killed, running):
        each.mkdir(parents=True)
        (each / "part").write_bytes(b"x")
    os.utime(killed, (0, 0))
    path = _tensor(tmp_path, (35, 37, 52, 60, 61, 70))
    (measured,) = valid(own.run("matrix", "measure", "--json", "--record", str(path), env=no_index).expect(0))
    assert {each["field"]: each["verdict"] for each in measured["compared"]} == dict.fromkeys(
        ("native", "ptx", "glibc", "cuda"), "agrees"
    )
    record = json.loads((own.root / "matrix/measured/tensorflow-gpu.json").read_text())
    assert path.name in [each["filename"] for each in record["files"]]
    own.run("matrix", "check").expect(0)

    path = _tensor(tmp_path, (35, 70))
    refused = own.run("matrix", "measure", "--json", "--record", str(path), env=no_index).expect(5)
    assert json.loads((own.root / "matrix/measured/tensorflow-gpu.json").read_text()) == record, "it replaces nothing unasked"
    assert len(refused.document["files"]) == 1
    assert "another sha256" in refused.document["error"]["problems"][0]["message"]
    answer = own.run("matrix", "measure", str(path), env=no_index).expect(5)
    assert f"tensorflow 1.12.0 (gpu): the row says native 3.5 3.7 5.2 6.0 6.1 7.0, but {path.name} has 3.5 7.0" in answer.err
    assert "likely" not in answer.out
    assert "hint: Correct the row" in answer.err
    own.run("matrix", "measure", "--no-compare", str(path), env=no_index).expect(0)
    own.run("matrix", "measure", "--replace", str(path)).expect(2)

    other = tmp_path / "widget-1.0-py3-none-any.whl"
    other.write_bytes(wheel({"widget/code.py": b""}))
    answer = own.run("matrix", "measure", str(other)).expect(10)
    assert "not compared: no row of the matrix is for widget 1.0" in answer.out
    # If one target fails, the others are measured all the same.
    gone = str(tmp_path / "gone.so")
    some = own.run("matrix", "measure", "--json", "--record", "--no-compare", gone, str(other)).expect(5).document
    assert [each["filename"] for each in some["files"]] == [other.name]
    assert some["recorded"] == ["matrix/measured/widget.json"]
    assert [each["where"] for each in some["error"]["problems"]] == [gone]
    assert "Correct the row" not in some["error"]["hint"]

    path.write_bytes(path.read_bytes()[:-60])
    refused = own.run("matrix", "measure", "--json", str(path)).expect(5)
    assert refused.document["error"]["code"] == "measure-damaged"
    own.run("matrix", "measure").expect(2)
    own.run("matrix", "measure", "nonsense").expect(2)
    own.run("matrix", "measure", str(tmp_path / "none.so")).expect(2)
    assert list(downloads.iterdir()) == [running], "what a killed run left is removed, not what another one uses"


def test_wheels_of_locks_are_measured_once_and_only_if_they_are_the_pinned_ones(own: Program) -> None:
    """An index offers two wheels under names that a lock pins, of which one has the content that the lock pins."""
    name = "opencv-5.0.0.93-cpu-py311-debian12"
    path = own.root / "images/environments" / name / "lock.json"
    shutil.copytree(ROOT / "images/environments" / name, path.parent)
    lock = json.loads(path.read_text())
    pinned = {each["project"]: each for each in lock["prefixes"][0]["artifacts"] if not each["filename"].endswith("-any.whl")}
    numpy, opencv = pinned["numpy"], pinned["opencv-python"]
    for project in pinned:
        (own.root / "matrix/measured" / f"{project}.json").unlink()
    library = Shared(needed=["libm.so.6"], versions={"libc.so.6": ["GLIBC_2.14"]}).data()

    def measured(code: int) -> dict:
        path.write_text(json.dumps(lock))
        words = ("matrix", "measure", "--locked", "--record", "--json")
        return (
            own.run(*words, env={"PIP_INDEX_URL": f"{archive.url}/simple", "PIP_CONFIG_FILE": os.devnull}).expect(code).document
        )

    with archive_server.serve() as archive:
        for project, each in pinned.items():
            content = wheel({f"{project}/lib.so": library}, project=project, version=each["version"])
            archive.files[each["filename"]] = content
            archive.files[f"simple/{project}/"] = f'<a href="/{each["filename"]}">{each["filename"]}</a>'.encode()
        numpy["sha256"] = hashlib.sha256(archive.files[numpy["filename"]]).hexdigest()
        refused = measured(5)
        assert refused["recorded"] == ["matrix/measured/numpy.json"]
        (problem,) = refused["error"]["problems"]
        assert problem["where"] == opencv["filename"] and "but a lock pins" in problem["message"]
        assert not (own.root / "matrix/measured/opencv-python.json").exists()

        opencv["sha256"] = hashlib.sha256(archive.files[opencv["filename"]]).hexdigest()
        before = len(archive.asked)
        assert measured(0)["recorded"] == ["matrix/measured/opencv-python.json"]
        assert not any("numpy" in each for each in archive.asked[before:])
        assert measured(0)["files"] == []


@pytest.mark.network
def test_a_wheel_of_the_index(own: Program) -> None:
    """The expected GPUs are those that cuobjdump 13 lists."""
    answer = own.run("matrix", "measure", "--json", SMALL)
    if answer.code == 7:
        pytest.skip(f"no package index: {answer.err}")
    (measured,) = valid(answer.expect(0))
    assert {each["variant"] for each in measured["compared"]} == {"cuda12"}
    assert {each["verdict"] for each in measured["compared"]} == {"agrees"}
    assert measured["gpu_code"]["native"] == ["5.0", "6.0", "7.0", "8.0", "9.0", "10.0", "12.0"]
    assert measured["gpu_code"]["ptx"] == ["12.0"]
    assert measured["gpu_code"]["certainty"] == "certain"
    assert (measured["project"], measured["version"], measured["glibc"]) == ("jax-cuda12-plugin", "0.7.2", "2.16")
    assert own.run("matrix", "measure", "jax-cuda12-plugin==0.7.99").expect(4)


@pytest.mark.network
def test_records_are_compared_with_the_index(own: Program, tmp_path: Path) -> None:
    """A changed number in a record is found. A file of the same name in the current folder is not read."""
    folder = own.root / "matrix/measured"
    path = folder / "jax-cuda12-plugin.json"
    true = next(each for each in json.loads(path.read_text())["files"] if each["version"] == "0.7.2")
    for each in folder.iterdir():
        each.unlink()
    path.write_text(json.dumps({"schema": 1, "files": [{**true, "glibc": "2.99"}]}))
    here = tmp_path / "here"
    here.mkdir()
    (here / true["filename"]).write_bytes(b"no wheel")
    answer = own.run("matrix", "measure", "--recorded", "--json", cwd=here)
    if answer.code == 7:
        pytest.skip(f"no package index: {answer.err}")
    (problem,) = answer.expect(5).document["error"]["problems"]
    assert problem["where"] == "matrix/measured/jax-cuda12-plugin.json"
    assert problem["message"] == f"measured again: {true['filename']} now has a different glibc"
    own.run("matrix", "measure", "--recorded", "--record", cwd=here).expect(5)
    own.run("matrix", "measure", "--recorded", "--record", "--replace", cwd=here).expect(0)
    (again,) = json.loads(path.read_text())["files"]
    code = {key: again["gpu_code"][key] for key in true["gpu_code"]}
    assert {**{key: again[key] for key in true}, "gpu_code": code} == true, "only fields that the older entry lacks are added"


@pytest.mark.network
@pytest.mark.prove
@pytest.mark.parametrize("wanted", JUDGED)
def test_nvidia_counts_the_same(own: Program, tmp_path: Path, wanted: str) -> None:
    """cuobjdump 13 lists the same entries for each library and GPU."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(tmp_path)]
    judge = subprocess.run([*pip, "nvidia-cuda-cuobjdump==13.5.37"], capture_output=True, text=True, check=False)
    if judge.returncode:
        pytest.skip(f"no package index: {judge.stderr[-300:]}")
    with zipfile.ZipFile(next(tmp_path.glob("nvidia_cuda_cuobjdump*.whl"))) as archive:
        program = Path(archive.extract(next(name for name in archive.namelist() if name.endswith("/cuobjdump")), tmp_path))
    program.chmod(0o755)
    platform = ["--python-version", "3.11", "--platform", "manylinux_2_27_x86_64", "--platform", "manylinux2014_x86_64"]
    subprocess.run([*pip, *platform, wanted], check=True, capture_output=True)
    path = next(path for path in tmp_path.glob("*.whl") if not path.name.startswith("nvidia_cuda"))
    (measured,) = valid(own.run("matrix", "measure", "--json", "--no-compare", str(path)).expect(0))
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    judged = 0
    for library in measured["libraries"]:
        if library["entries"]:
            assert _listed(program, tmp_path / "unpacked" / library["path"]) == library["entries"][".nv_fatbin"], library[
                "path"
            ]
            judged += 1
    assert judged
    shutil.rmtree(tmp_path / "unpacked")


# Targets: a GPU, exactly one GPU (a), and two families of GPUs (f).
TARGETS = {"75": "7.5", "90a": "9.0a", "100f": "10.0f", "120f": "12.0f"}


@pytest.mark.network
@pytest.mark.prove
def test_nvidias_compiler_marks_exact_gpus_and_families_so(tmp_path: Path) -> None:
    """NVIDIA's assembler compiles the same kernel for each target, and `fatbinary` packs the results."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(tmp_path)]
    got = subprocess.run([*pip, "nvidia-cuda-nvcc==13.5.37"], capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"no package index: {got.stderr[-300:]}")
    with zipfile.ZipFile(next(tmp_path.glob("nvidia_cuda_nvcc*.whl"))) as archive:
        archive.extractall(tmp_path)
    programs = next(tmp_path.rglob("ptxas")).parent
    images = []
    for target in TARGETS:
        source, compiled = tmp_path / f"{target}.ptx", tmp_path / f"{target}.cubin"
        source.write_text(f".version 9.0\n.target sm_{target}\n.address_size 64\n.visible .entry k(.param .u64 p) {{ ret; }}\n")
        for program in ("ptxas", "fatbinary"):
            (programs / program).chmod(0o755)
        subprocess.run([programs / "ptxas", f"-arch=sm_{target}", source, "-o", compiled], check=True)
        images += [f"--image3=kind={kind},sm={target},file={path}" for kind, path in (("elf", compiled), ("ptx", source))]
    packed = tmp_path / "all.fatbin"
    subprocess.run([programs / "fatbinary", "--64", f"--create={packed}", *images], check=True)
    content = packed.read_bytes()
    (found,) = fatbin.containers(lambda at, size: content[at : at + size], 0, len(content))
    told = {(each.kind, each.capability) for each in found.entries}
    assert told == {(kind, capability) for kind in (NATIVE, PTX) for capability in TARGETS.values()}


def _listed(program: Path, library: Path) -> dict[str, int]:
    found: collections.Counter[str] = collections.Counter()
    for option, suffix in (("--list-elf", ""), ("--list-ptx", " PTX")):
        out = subprocess.run([program, option, library], capture_output=True, text=True, check=False).stdout
        for number, letter in re.findall(r"\.sm_(\d+)([af]?)\.", out):
            found[f"{number[:-1]}.{number[-1]}{letter}{suffix}"] += 1
    return dict(found)


def test_a_folder_is_called_a_folder(own: Program, tmp_path: Path) -> None:
    answer = own.run("matrix", "measure", str(tmp_path)).expect(2)
    assert f"{tmp_path} is a folder." in answer.err and "PROJECT==VERSION" in answer.err
