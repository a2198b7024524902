"""The differences between a lock and the contents that an image reports."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from verify_locks import CUDNN, distribution, told
from verify_locks import lock as make_lock

from envbuild import codec
from envbuild.engine.model import ImageInfo
from envbuild.errors import VerifyError
from envbuild.lock.lock_file import digest
from envbuild.model.environment import ComputeCapability
from envbuild.verify import comparisons, framework_facts
from envbuild.verify.findings import Findings, VerifyReport


def compare(story: dict[str, Any], *, cuda: str | None = None) -> Findings:
    lock = make_lock(cuda=cuda, apt=(CUDNN,) if cuda else ())
    found = Findings()
    comparisons.compare_paths(lock, story, found)
    comparisons.compare_prefix(lock, lock.prefixes[0], story["prefixes"].get("/opt/env", {}), found)
    comparisons.compare_packages(lock, story, found)
    comparisons.compare_rights(story, found)
    comparisons.compare_secrets(story, ["/etc/of-the-base.key"], found)
    return found


def said(found: Findings) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_a_sound_image_has_no_difference_and_says_what_was_built_from_source() -> None:
    found = compare(told(), cuda="9.0")
    assert said(found) == []
    assert any("sourcy" in note for note in found.notes)
    assert found.counts["distributions"] == 3 and found.counts["hashed"] == 6


def edit(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(story: dict[str, Any]) -> None:
        *way, last = path.split("|")
        place: Any = story
        for key in way:
            place = place[key]
        place[last] = value

    return change


SITE = "prefixes|/opt/env|"
ITEM = {"path": "/opt/env/lib/x.py", "of": "toy"}
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "edited file": (edit(f"{SITE}modified", [ITEM]), "/opt/env/lib/x.py: modified since it was installed (of toy)"),
    "missing file": (edit(f"{SITE}missing", [ITEM]), "/opt/env/lib/x.py: missing (of toy)"),
    "extra file": (edit(f"{SITE}unrecorded", ["/x.pth"]), "/x.pth: belongs to no package"),
    "folder of another name": (
        edit(
            f"{SITE}distributions",
            [
                {**distribution("toy", "1.0"), "folder": "liar-1.0.dist-info"},
                *told()["prefixes"]["/opt/env"]["distributions"][1:],
            ],
        ),
        "/opt/env: toy: lies in liar-1.0.dist-info, the folder of another package",
    ),
    "missing package": (edit(f"{SITE}distributions", [distribution("toy", "1.0")]), "not installed (locked: 4.0)"),
    "extra package": (
        edit(f"{SITE}distributions", [*told()["prefixes"]["/opt/env"]["distributions"], distribution("evil", "6.6")]),
        "/opt/env: evil: is installed (6.6), but is not in the lock",
    ),
    "wrong version": (
        edit(f"{SITE}distributions", [distribution("toy", "1.1"), *told()["prefixes"]["/opt/env"]["distributions"][1:]]),
        "/opt/env: toy: expected 1.0, found 1.1",
    ),
    "twice": (
        edit(f"{SITE}distributions", [distribution("TOY", "1.0"), *told()["prefixes"]["/opt/env"]["distributions"]]),
        "installed 2 times",
    ),
    "no packages at all": (edit("prefixes", {}), "/opt/env: contains no packages"),
    "wrong Python": (edit(f"{SITE}python", "3.12.1"), "/opt/env/bin/python: expected Python 3.11, found 3.12"),
    "dead Python": (edit(f"{SITE}python", ""), "/opt/env/bin/python: expected Python 3.11, found none"),
    "private key": (
        edit(
            "secrets", [{"path": "/x.key", "what": "is a private key"}, {"path": "/etc/of-the-base.key", "what": "is one too"}]
        ),
        "/x.key: is a private key, and belongs to no package",
    ),
    "no init": (edit("paths", {"/usr/bin/tini": None}), "/usr/bin/tini: missing"),
    "init not executable": (edit("paths", {"/usr/bin/tini": {"folder": False, "executable": False}}), "not executable"),
    "other cuDNN": (edit("packages|libcudnn7", "7.6.5"), "package libcudnn7: expected 7.4.2.24-1+cuda9.0, found 7.6.5"),
    "other base package": (edit("packages|bash", "5.3"), "package bash: expected 5.2, found 5.3"),
    "edited system file": (
        edit("packaged|modified", [{"path": "/bin/sh", "of": "dash"}]),
        "/bin/sh: modified since the package was installed (of dash)",
    ),
    "writable": (edit("writable", [{"path": "/etc", "kind": "folder"}]), "/etc: everybody can write to it"),
    "setuid": (
        edit("privileged", [{"path": "/usr/bin/evil", "mode": "4755", "package": ""}]),
        "/usr/bin/evil: gives extra rights to all users (mode 4755), and belongs to no package",
    ),
    "setuid of a package": (
        edit("privileged", [{"path": "/bin/su", "mode": "4755", "package": "login"}]),
        "/bin/su: gives extra rights to all users (mode 4755) (of login)",
    ),
    "capability": (
        edit("privileged", [{"path": "/bin/ping", "mode": "755", "package": "iputils-ping"}]),
        "/bin/ping: gives extra rights to all users (a file capability) (of iputils-ping)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_difference_is_named(fault: str) -> None:
    change, expected = FAULTS[fault]
    story = copy.deepcopy(told())
    change(story)
    assert any(expected in line for line in said(compare(story, cuda="9.0"))), said(compare(story, cuda="9.0"))


def test_all_differences_are_listed_at_once() -> None:
    story = told()
    for name in ("edited file", "wrong Python", "setuid", "other cuDNN", "private key"):
        FAULTS[name][0](story)
    assert len(said(compare(story, cuda="9.0"))) == 5


def test_files_without_a_hash_are_noted() -> None:
    story = told()
    story["prefixes"]["/opt/env"]["unhashed"] = [ITEM, {"path": "/opt/env/lib/y.py", "of": "toy"}]
    found = compare(story)
    assert said(found) == []
    assert "2 files of toy have no hash in its RECORD and were not compared, such as /opt/env/lib/x.py" in found.notes


def test_files_of_two_packages_at_the_same_path_are_noted() -> None:
    story = told()
    story["prefixes"]["/opt/env"]["replaced"] = [
        {"path": "/opt/env/lib/x.py", "of": "toy", "by": "zebra"},
        {"path": "/opt/env/lib/y.py", "of": "toy", "by": "zebra"},
        {"path": "/opt/env/lib/z.py", "of": "zebra", "by": "zebra"},  # its RECORD lists the file twice
    ]
    found = compare(story)
    assert said(found) == []
    assert [note for note in found.notes if "same path" in note] == [
        "toy and zebra have different files at the same path: the image has those of zebra "
        "(2 in all, such as /opt/env/lib/x.py)"
    ]


def test_metadata_that_its_publisher_edited_is_noted_and_nothing_else_of_the_package_is_forgiven() -> None:
    story = told()
    site = "/opt/env/lib/python3.11/site-packages"
    forgiven = [(f"{site}/Toy-1.0.0.dist-info/METADATA", "Toy"), (f"{site}/Toy-1.0.0.dist-info/WHEEL", "Toy")]
    others = [
        (f"{site}/Toy-1.0.0.dist-info/entry_points.txt", "Toy"),
        (f"{site}/Toy-1.0.0.dist-info/METADATA.py", "Toy"),
        (f"{site}/toy/code.py", "Toy"),
        (f"{site}/toy/_vendor/Toy.dist-info/METADATA", "Toy"),  # of another package, vendored inside this one
        (f"{site}/other.dist-info/METADATA", "Toy"),
        (f"{site}/Toy-1.0.0.dist-info/WHEEL", "typing-extensions"),
        (f"{site}/sourcy-2.0.dist-info/METADATA", "sourcy"),  # no publisher made it, because it was built here
    ]
    edited = [{"path": path, "of": of} for path, of in forgiven + others]
    story["prefixes"]["/opt/env"]["modified"] = edited
    found = compare(story)
    assert said(found) == [f"{path}: modified since it was installed (of {of})" for path, of in others]
    assert any("METADATA" in note and note.endswith("Toy") for note in found.notes)


def test_thousands_of_broken_files_are_counted_not_printed() -> None:
    story = told()
    story["prefixes"]["/opt/env"]["missing"] = [{"path": f"/f{n}", "of": "toy"} for n in range(1000)]
    lines = said(compare(story))
    assert len(lines) == 21 and lines[-1] == "/opt/env: 980 more: missing"


IMAGE = ImageInfo(
    id="sha256:1",
    tags=(),
    labels={},
    env=("PATH=/opt/env/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"),
    entrypoint=("/usr/bin/tini", "--", "/bin/sh", "/opt/envbuild/smoke/enter.sh"),
    cmd=("bash",),
    user="1000",
    layers=(),
    size=1,
    created="",
    architecture="amd64",
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"user": ""}, "user: the image runs as root (no USER)"),
        ({"user": "root:users"}, "runs as root"),
        ({"user": "0:0"}, "runs as root"),
        ({"entrypoint": ()}, "entrypoint: expected the init /usr/bin/tini, found none"),
        ({"entrypoint": ("/usr/bin/tini", "--")}, "entrypoint: expected to end with /opt/envbuild/smoke/enter.sh"),
        ({"env": (*IMAGE.env, "HTTPS_PROXY=http://proxy:3128")}, "variable HTTPS_PROXY: a proxy"),
        ({"env": ("NVIDIA_VISIBLE_DEVICES=all",)}, "variable NVIDIA_REQUIRE_CUDA: expected cuda>=9.0, found none"),
        ({"labels": {}}, "label org.envbuild.lock: expected"),
    ],
)
def test_the_configuration_is_compared(changes: dict[str, Any], expected: str) -> None:
    lock = make_lock(cuda="9.0")
    labels = {"org.envbuild.name": lock.environment.name, "org.envbuild.lock": digest(lock)}
    found = Findings()
    comparisons.compare_configuration(lock, dataclasses.replace(IMAGE, **{"labels": labels, **changes}), found)
    assert any(expected in line for line in said(found)) if expected else said(found) == []


def test_the_embedded_lock_must_be_the_very_same_bytes() -> None:
    lock = make_lock()
    for embedded, problems in ((codec.dumps(lock).encode(), 0), (codec.dumps(lock).encode() + b"\n", 1), (None, 1)):
        found = Findings()
        comparisons.compare_lock(lock, embedded, found)
        assert len(found.problems) == problems


@pytest.mark.parametrize(
    ("cuda", "answer", "expected"),
    [
        ("9.0", {"version": "1.0", "cuda_build": "9.0.176", "cudnn": "7.4.2"}, ""),
        ("9.0", {"version": "1.0+cu90", "cuda_build": "9.0"}, ""),
        ("9.0", {"version": "1.0", "cuda_build": None}, "toy CUDA: a build without CUDA in an image for CUDA 9.0"),
        ("9.0", {"version": "1.0", "cuda_build": "unknown"}, ""),
        ("9.0", {"version": "1.0", "cuda_build": "9"}, ""),
        (None, {"version": "1.0", "cuda_build": "unknown"}, ""),
        ("9.0", {"version": "1.0", "cuda_build": "10.0"}, "toy CUDA: expected 9.0, but it was built with 10.0"),
        ("9.0", {"version": "1.0", "cuda_build": "9.0", "cudnn": "7.0.5"}, "toy cudnn: expected 7.4.2, but it reports 7.0.5"),
        ("9.0", {"version": "1.1", "cuda_build": "9.0"}, "toy version: expected 1.0, but it reports 1.1"),
        (None, {"version": "1.0", "cuda_build": None}, ""),
        ("9.0", {"version": "1.0", "cuda_build": "9.0", "arch_list": ["sm_60", "sm_100a", "compute_90"]}, ""),
        ("9.0", {"version": "1.0", "cuda_build": "9.0", "arch_list": []}, ""),
        (
            "9.0",
            {"version": "1.0", "cuda_build": "9.0", "arch_list": ["sm_60", "compute_90"]},
            "toy GPU code: no native code for 10.0; it lists sm_60 compute_90",
        ),
        ("9.0", {"version": "1.0", "cuda_build": "9.0", "arch_list": ["sm_60", "sm_100", "sm_90"]}, "no PTX for 9.0"),
        (None, {}, "it reports none"),
    ],
)
def test_the_framework_is_asked_what_it_was_built_with(cuda: str | None, answer: dict[str, Any], expected: str) -> None:
    found = Findings()
    lock = make_lock(cuda=cuda, cudnn="7.4.2" if cuda else None)
    if cuda:
        code = ComputeCapability(sass=("6.0", "10.0"), ptx=("9.0",))
        lock = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, compute_capability=code))
    framework_facts.compare_framework(lock, lock.environment.frameworks[0], answer, found)
    assert any(expected in line for line in said(found)) if expected else said(found) == []


def test_a_report_with_differences_is_exit_8_with_all_of_them() -> None:
    found = Findings()
    found.wrong("a", "one")
    found.wrong("b", "two")
    report = VerifyReport(
        name="toy", image="sha256:1", quick=False, seconds=1.0, problems=tuple(found.problems), notes=(), counts={}
    )
    assert report.ok is False and report.to_json()["ok"] is False
    with pytest.raises(VerifyError) as raised:
        report.require()
    assert raised.value.exit_code == 8 and len(raised.value.problems) == 2
    sound = dataclasses.replace(report, problems=())
    assert sound.require() is sound


@pytest.mark.parametrize(("version", "differs"), [("0.2.dev1", False), ("0.1", True)])
def test_what_a_repository_s_commit_was_built_to_has_the_version_of_its_row(version: str, differs: bool) -> None:
    lock = make_lock()
    framework = dataclasses.replace(
        lock.environment.frameworks[0],
        package="made-here",
        version="0.2.dev1",
        options={"repository": "https://git.example/made", "revision": "0" * 40},
    )
    lock = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, frameworks=(framework,)))
    story, found = told(), Findings()
    story["prefixes"]["/opt/env"]["distributions"].append(distribution("Made_Here", version))
    comparisons.compare_prefix(lock, lock.prefixes[0], story["prefixes"]["/opt/env"], found)
    assert said(found) == (["/opt/env: made-here: expected 0.2.dev1, found 0.1"] if differs else [])
    assert any("made-here" in note for note in found.notes)
