"""The real matrix: every row has a source, the tables agree with each other, and requests get the known answers."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from real_matrix import FACTS

from envbuild.errors import BuildError, ConflictError, UsageError
from envbuild.index.client import Index
from envbuild.matrix import checks
from envbuild.matrix.platform import Provenance
from envbuild.matrix.types import FrameworkTable, Matrix, Release, Variant
from envbuild.model.environment import Environment
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "matrix.yaml"
FILES = ["matrix.yaml", *yaml.safe_load(ENTRY.read_text())["include"]]
SCHEMA = json.loads((ROOT / "envbuild" / "schemas" / "matrix.json").read_text())
FRAMEWORKS = sorted(Path(name).stem for name in FILES if "/frameworks/" in name)
SDIST = "source"
STATUSES = {"ok", "known-bad", "unknown", "base-deleted", "end-of-life"}
TABLES = (
    *("systems", "pythons", "archives", "build_tools", "source_archives", "architectures", "drivers"),
    "driver_rules",
    *("repositories", "wheel_sets", "package_sets", "cuda", "cudnn", "nccl", "gpus", "gpu_vendors"),
)


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def rows_below(value: object, where: str) -> Iterator[tuple[str, Provenance]]:
    """Every provenance in a value, at any depth, with its path."""
    if isinstance(value, Provenance):
        yield where, value
    elif hasattr(value, "_fields"):  # a row
        for name in value._fields:
            yield from rows_below(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            name = getattr(item, "key", "") or getattr(item, "version", "") or getattr(item, "name", "") or number
            yield from rows_below(item, f"{where}[{name}]")


def builds(facts: Matrix) -> Iterator[tuple[FrameworkTable, Release, Variant]]:
    for framework in facts.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                yield framework, release, variant


def answer(facts: Matrix, *words: str, **options: str) -> Environment:
    return resolve(facts, parse(words, matrix=facts, **options)).environment


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


# Provenance


def test_every_row_has_source_date_and_status(facts: Matrix) -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date() + datetime.timedelta(days=1)
    rows = list(rows_below(facts, "matrix"))
    assert len(rows) > 1000, "the walk over the matrix misses its rows"
    for where, origin in rows:
        assert origin.sources, where
        assert all(source.startswith(("https://", "http://", "pkg:")) for source in origin.sources), where
        assert datetime.date.fromisoformat(origin.checked) <= today, where
        assert origin.status in STATUSES, where
        assert origin.status != "known-bad" or origin.note, where


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def citations(value: Any) -> Iterator[str]:
    """The sources that the rows of a document cite."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item) if key in ("source", "field_source") else citations(item)
    elif isinstance(value, list):
        for item in value:
            yield from citations(item)


def test_no_source_is_defined_in_vain_or_twice() -> None:
    defined: list[str] = []
    cited: set[str] = set()
    for name in FILES:
        document = yaml.safe_load((ROOT / name).read_text())
        defined.extend(document.pop("sources", {}))
        cited.update(citations(document))
    assert len(defined) == len(set(defined))
    assert {name for name in cited if not name.startswith(("https://", "http://", "pkg:"))} == set(defined)


def test_the_entry_includes_every_file() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "matrix").rglob("*.yaml")}
    assert found == set(FILES[1:])


def test_the_files_stay_small() -> None:
    """envbuild reads all files at every cold start without a cache."""
    assert sum((ROOT / name).stat().st_size for name in FILES) < 700_000


# The published schema


@pytest.mark.parametrize("name", FILES)
def test_file_is_valid_by_the_published_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(yaml.safe_load((ROOT / name).read_text()), SCHEMA)


def _unquoted(document: Any) -> None:
    document["cuda"][0]["version"] = 12.10


def _unknown_key(document: Any) -> None:
    document["cuda"][0]["drivermin"] = "418.39"


def _deep_unknown_key(document: Any) -> None:
    next(row for row in document["cuda"] if "providers" in row)["providers"][0]["sytem"] = "ubuntu16.04"


def _known_bad_without_reason(document: Any) -> None:
    document["cuda"][0]["status"] = "known-bad"
    document["cuda"][0].pop("note", None)


def _tag_without_image(document: Any) -> None:
    next(row for row in document["cuda"] if "providers" in row)["providers"] = [{"provider": "tag", "system": "ubuntu16.04"}]


@pytest.mark.parametrize("spoil", [_unquoted, _unknown_key, _deep_unknown_key, _known_bad_without_reason, _tag_without_image])
def test_schema_refuses(spoil: Any) -> None:
    document = yaml.safe_load((ROOT / "matrix" / "cuda.yaml").read_text())
    jsonschema.validate(document, SCHEMA)
    spoilt = copy.deepcopy(document)
    spoil(spoilt)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoilt, SCHEMA)


def test_schema_and_loader_know_the_same_tables() -> None:
    assert set(TABLES) <= set(SCHEMA["properties"])
    assert {*Matrix._fields} == {*TABLES, "policy", "frameworks", "fingerprint", "driver_limit"}


# Agreement between the tables


def test_the_checks_of_the_program_find_nothing(facts: Matrix) -> None:
    assert checks.check(facts) == []


def test_compute_capabilities_are_known(facts: Matrix) -> None:
    window = {capability: row for row in facts.architectures for capability in row.capabilities}
    for gpu in facts.gpus:
        assert window[gpu.capability].name == gpu.architecture, gpu.name
    for framework, release, variant in builds(facts):
        assert {*variant.sass, *variant.ptx} <= set(window), f"{framework.name} {release.version} {variant.name}"


def test_native_code_lies_within_what_the_toolkit_can_build(facts: Matrix) -> None:
    window = {capability: row for row in facts.architectures for capability in row.capabilities}
    for framework, release, variant in builds(facts):
        for capability in variant.sass:
            row, where = window[capability], f"{framework.name} {release.version} {variant.name}: {capability}"
            assert version(row.first_cuda) <= version(variant.cuda), where
            assert not row.last_cuda or version(variant.cuda) <= version(row.last_cuda), where


def test_cuda_is_older_than_what_was_built_with_it(facts: Matrix) -> None:
    released = {row.version: row.released for row in facts.cuda}
    for framework, release, variant in builds(facts):
        if variant.cuda and not variant.repository:  # a source may be older than the CUDA that compiles it
            earlier = released[variant.cuda]
            # The date of a row is that of the last patch release, which may be some months later than the framework.
            first = datetime.date.fromisoformat(f"{earlier[:7]}-01") - datetime.timedelta(days=365)
            assert first < datetime.date.fromisoformat(release.released), f"{framework.name} {release.version} {variant.name}"


def test_repositories_and_systems_are_known(facts: Matrix) -> None:
    repositories = {row.name for row in facts.repositories}
    systems = {row.name for row in facts.systems}
    for row in facts.cuda:
        for provider in row.providers:
            assert set(provider.repositories) <= repositories, row.version
            assert not provider.system or provider.system in systems, row.version
            assert {package.repository for package in provider.packages} <= set(provider.repositories), row.version
    for library in (*facts.cudnn, *facts.nccl):
        for item in library.apt:
            assert item.package.repository in repositories, library.version
            assert item.system in systems, library.version


def test_debian_13_installs_nothing_from_nvidia(facts: Matrix) -> None:
    """apt of Debian 13 refuses the key 3BF863CC since 2026-02.

    A provider there would need NVIDIA's repository for Debian 13.
    """
    refused = {row.name for row in facts.repositories if "debian13" not in row.url}
    for row in facts.cuda:
        assert not any(p.system == "debian13" and set(p.repositories) & refused for p in row.providers), row.version
    for library in (*facts.cudnn, *facts.nccl):
        assert not any(i.system == "debian13" and i.package.repository in refused for i in library.apt), library.version


def test_deleted_tags_say_so(facts: Matrix) -> None:
    """NVIDIA removed the images of CUDA 10.2 and older in 2023."""
    for row in facts.cuda:
        for provider in row.providers:
            if provider.provider == "tag":
                deleted = version(row.version) <= (10, 2)
                assert (provider.origin.status == "base-deleted") == deleted, provider.image


def test_pythons_and_requirements_are_readable(facts: Matrix) -> None:
    pythons = {row.version for row in facts.pythons}
    for framework, release, variant in builds(facts):
        where = f"{framework.name} {release.version} {variant.name}"
        assert set(variant.python) <= pythons, where
        for requirement in (*variant.constraints, *variant.requirements):
            assert not Requirement(requirement.requirement).marker, where


def test_every_build_has_a_place_and_its_decision_is_accepted(facts: Matrix) -> None:
    for framework, release, variant in builds(facts):
        if variant.origin.status == "known-bad":
            continue
        kind = f"cuda{variant.cuda}" if variant.cuda else "cpu"
        # A version with two parts, such as 2.7, is a prefix in a name and can mean 2.7.post2.
        exact = release.version.count(".") >= 2
        words = [f"{framework.short}-{release.version}-{kind}"] if exact else [f"{framework.short}==={release.version}", kind]
        environment = answer(facts, *words)
        assert environment.frameworks[0].version == release.version
        assert environment.cuda == (variant.cuda or None)
        assert recheck(facts, environment) == [], environment.name
        assert answer(facts, environment.name) == environment


# Known answers


def test_the_sentence_the_tool_exists_for(facts: Matrix) -> None:
    environment = answer(facts, "tf-1.12-cuda9")
    assert environment.name == "tf-1.12.0-cuda9.0-py35-ubuntu16.04"
    assert environment.frameworks[0].package == "tensorflow-gpu"
    assert (environment.cuda, environment.cudnn, environment.nccl) == ("9.0", "7.4.2", "2.3.7")
    assert environment.driver_min == "384.81"
    assert environment.base.provider == "apt"
    packages = {package.name: package.version for package in environment.base.packages}
    assert packages["cuda-cublas-9-0"] == "9.0.176.4-1"
    assert packages["libcudnn7"] == "7.4.2.24-1+cuda9.0"
    assert packages["libnccl2"] == "2.3.7-1+cuda9.0"
    keys = {repository.key_fingerprint for repository in environment.base.repositories}
    assert keys == {"EB693B3035CD5710E231E123A4B469963BF863CC", "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"}


@pytest.mark.parametrize("version", ["12.0", "12.1", "12.2", "12.3"])
def test_cupy_compiles_with_headers_of_exactly_its_cuda(facts: Matrix, version: str) -> None:
    """Debian has CUDA 12.4, which other builds for 12.0 to 12.3 run on."""
    with pytest.raises(ConflictError, match=f"cupy-cuda{version}"):
        answer(facts, f"cupy-cuda{version}", base="debian")
    assert answer(facts, f"cupy-cuda{version}").base.provider in ("tag", "wheels")
    assert answer(facts, "cupy-12", base="debian").cuda == "11.8"
    assert answer(facts, "mxnet-1.9.1-cuda11.2", base="debian").base.provider == "debian"


def test_it_fits_the_two_gpu_server(facts: Matrix) -> None:
    assert answer(facts, "tf-1.12-cuda9", driver="384.130", gpu="GTX 1080 Ti").name == "tf-1.12.0-cuda9.0-py35-ubuntu16.04"


@pytest.mark.parametrize(
    ("request_", "name", "package", "provider"),
    [
        ("tf-2.21-cpu", "tf-2.21.0-cpu-py311-debian12", "tensorflow-cpu", "distribution"),
        ("tf-1.12-cpu-py27-debian11", "tf-1.12.3-cpu-py27-debian11", "tensorflow", "distribution"),
        ("mxnet-1.9-cpu-py39-debian11", "mxnet-1.9.1-cpu-py39-debian11", "mxnet", "distribution"),
        ("pytorch-2.15-cuda13", "pytorch-2.15.0-cuda13.2-py311-debian12", "torch", "wheels"),
        ("tf-2.21", "tf-2.21.0-cuda12.5-py311-debian12", "tensorflow", "wheels"),
        ("tf-1.15", "tf-1.15.5-cuda10.0-py36-ubuntu18.04", "tensorflow-gpu", "apt"),
        ("tf-2.10", "tf-2.10.1-cuda11.2-py38-ubuntu20.04", "tensorflow", "apt"),
        ("pytorch-1.0", "pytorch-1.0.1-cuda9.0-py36-ubuntu18.04", "torch", "wheels"),
    ],
)
def test_known_answers(facts: Matrix, request_: str, name: str, package: str, provider: str) -> None:
    environment = answer(facts, request_)
    assert environment.name == name
    assert environment.frameworks[0].package == package
    assert environment.base.provider == provider


# The frameworks of two servers of 2018: the request, and the answer or the row that refuses it.
CONTAINER = {
    "tf-1.9.0-cuda9.0": "tf-1.9.0-cuda9.0-py35-ubuntu16.04",
    "pytorch-0.4.0-cuda9.0": "pytorch-0.4.0-cuda9.0-py36-ubuntu18.04",
    "mxnet-1.2.1-cuda9.0": "mxnet-1.2.1-cuda9.0-py35-ubuntu16.04",
    "keras-2.2.2-cuda9.0": "keras-2.2.2-cuda9.0-py35-ubuntu16.04",
    "lasagne-0.2.dev1-cuda9.0": "lasagne-0.2.dev1-cuda9.0-py35-ubuntu16.04",
    "cntk-2.5.1-cuda9.0": "cntk-2.5.1-cuda9.0-py35-ubuntu16.04",
    "chainer-4.3.1-cuda9.0": "chainer-4.3.1-cuda9.0-py35-ubuntu16.04",
    "caffe-1.0.0-cuda9.0": "caffe-1.0.0-cuda9.0-py35-ubuntu16.04",
    "caffe2-0.8.2-cuda9.0": "caffe2-0.8.2-cuda9.0-py35-ubuntu16.04",
    "torch7-cuda9.0": "torch7-7.0-cuda9.0-py35-ubuntu16.04",
    "sonnet-1.23-cuda9.0": "sonnet-1.23-cuda9.0-py35-ubuntu16.04",
    "theano-1.0.1-cuda9.0": "theano-1.0.1-cuda9.0-py35-ubuntu16.04",
}
SERVER = {
    "tf-1.12.0-cuda9.0": "tf-1.12.0-cuda9.0-py35-ubuntu16.04",
    "keras-2.2.4-cuda9.0": "keras-2.2.4-cuda9.0-py35-ubuntu16.04",
    "pytorch-0.4.1-cuda9.0": "pytorch-0.4.1-cuda9.0-py36-ubuntu18.04",
}


@pytest.mark.parametrize(("request_", "name"), CONTAINER.items())
def test_the_container_of_2018(facts: Matrix, request_: str, name: str) -> None:
    assert answer(facts, request_, driver="396.44").name == name


@pytest.mark.parametrize(("request_", "name"), SERVER.items())
def test_the_server_of_2018(facts: Matrix, request_: str, name: str) -> None:
    assert answer(facts, request_, driver="384.130", gpu="GTX 1080 Ti").name == name


def test_ubuntu_has_opencv_2_for_python_2_alone(facts: Matrix) -> None:
    environment = answer(facts, "opencv-2.4.9.1")
    assert environment.name == "opencv-2.4.9.1-cpu-py27-ubuntu16.04"
    assert environment.frameworks[0].requirements == ()
    with pytest.raises(ConflictError) as refused:
        answer(facts, "opencv-2.4.9.1", python="3.5")
    assert refused.value.conflicts[0].source == "https://bugs.launchpad.net/ubuntu/+source/opencv/+bug/1556156"


def test_what_stands_upon_another_has_its_builds(facts: Matrix) -> None:
    below, above = answer(facts, "tf-1.9.0-cuda9.0"), answer(facts, "keras-2.2.4-cuda9.0")
    assert (above.cudnn, above.nccl, above.compute_capability) == (below.cudnn, below.nccl, below.compute_capability)
    assert above.frameworks[0].requirements == ("keras==2.2.4", "tensorflow-gpu==1.9.0")
    assert answer(facts, "torchvision-0.15.2-cuda11.8").frameworks[0].requirements == (
        "torchvision==0.15.2+cu118",
        "torch==2.0.1+cu118",
    )


def test_current_gpu_rows_take_cuda_from_the_index(facts: Matrix) -> None:
    environment = answer(facts, "pytorch-2.15-cuda13")
    assert environment.frameworks[0].requirements == ("torch==2.15.0",)
    assert environment.frameworks[0].index == "default"
    assert answer(facts, "tf-2.21").frameworks[0].requirements == ("tensorflow[and-cuda]==2.21.0",)


# The package index


@dataclasses.dataclass(frozen=True)
class Published:
    """The files of one package on the index: the interpreters of its Linux wheels, and its first day, by version.

    ``since`` is the first Python that a wheel for the stable ABI supports. A source distribution counts only if there is no
    wheel.
    """

    interpreters: dict[Version, set[str]]
    since: dict[Version, tuple[int, ...]]
    days: dict[Version, str]

    def serves(self, number: Version, python: str) -> bool:
        if number in self.since and version(python) >= self.since[number]:
            return True
        ours = self.interpreters.get(number, set())
        return ours == {SDIST} or bool(ours & {f"cp{python.replace('.', '')}", f"py{python[0]}", "py2.py3"})


def published(client: Index, package: str) -> Published:
    found = Published(interpreters={}, since={}, days={})
    archives: dict[Version, str] = {}  # the day of a source archive counts only if there is no wheel
    days: dict[Version, str] = {}
    for file in client.project_files(package):
        try:
            _, number, _, tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            number, tags = source_version(file.filename), frozenset()
        ours = {tag for tag in tags if tag.platform == "any" or re.fullmatch(r".*linux.*x86_64", tag.platform)}
        if number is None or (tags and not ours):
            continue
        found.interpreters.setdefault(number, set()).update(tag.interpreter for tag in ours if tag.abi != "abi3")
        for tag in ours:
            if tag.abi == "abi3" or re.fullmatch(r"py3\d+", tag.interpreter):  # py39 is for Python 3.9 and newer
                found.since[number] = (int(tag.interpreter[2]), int(tag.interpreter[3:]))
        day, known = file.uploaded[:10], (days if ours else archives)
        known[number] = min(day, known.get(number, day))
    found.days.update({**archives, **days})
    for number, interpreters in found.interpreters.items():
        if not interpreters and number not in found.since:
            interpreters.add(SDIST)
    return found


def source_version(filename: str) -> Version | None:
    try:
        return parse_sdist_filename(filename)[1]
    except InvalidSdistFilename:
        return None


@pytest.mark.network
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_index_has_every_wheel_at_the_stated_date(facts: Matrix, framework: str) -> None:
    """Each release, package and Python of the default index has a wheel, whose first upload was on the day in the matrix."""
    table = next(row for row in facts.frameworks if row.name == framework)
    ours = [
        (release, variant)
        for release in table.releases
        for variant in release.variants
        if variant.index == "default" and variant.pins(release.version)
    ]
    try:
        client = Index()
        packages = {package: published(client, package) for package in {variant.package for _, variant in ours}}
    except (BuildError, UsageError) as error:
        pytest.skip(f"no package index: {error}")
    days: dict[str, set[str]] = {}
    for release, variant in ours:
        package, number = packages[variant.package], Version(release.version)
        missing = [python for python in variant.python if not package.serves(number, python)]
        assert not missing, f"{variant.package} {release.version} has no wheel for {missing}"
        days.setdefault(release.version, set()).add(package.days[number])
    for release, _ in ours:
        assert release.released in days[release.version], f"{framework} {release.version}: {sorted(days[release.version])}"
