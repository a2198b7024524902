"""`envbuild publish` for each verdict: which images are pushed, and with which statements.

Stand-ins replace the stages.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import composed
import cyclonedx.schema
import pytest
import stand_in_registry
from cyclonedx.validation.json import JsonStrictValidator
from program import ROOT, share_matrix
from signing import write_pair
from smoke_documents import smoke_report
from stand_in_registry import Registry, serve

import envbuild
from envbuild import codec, files
from envbuild.attest import keys, licences, signing
from envbuild.build import PULLED, BaseRecord, BuildRecord
from envbuild.cli import frame
from envbuild.compose import engine_image
from envbuild.compose.outputs import referrers
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError, VerifyError
from envbuild.index.client import Index
from envbuild.model.lock import Artifact
from envbuild.pipeline import attestations, changed_since, make, own_images, stage_cache, tools, unchanged
from envbuild.pipeline.image_checks import Smoked
from envbuild.pipeline.stored_locks import read_lock
from envbuild.verify import installed
from envbuild.workspace import Workspace

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
ENGINE = "default socket (unix:///run/docker.sock)"
EXITS = {"pass": 0, "fail": 9, "inconclusive": 10}
REPORT = {"schema": "envbuild-smoke/1", "host": {"name": "machine"}}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve(Registry(knows_referrers=True)) as served:
        yield served


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_pair(tmp_path)


@pytest.fixture
def verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The verdict of the smoke test, which a test may change.

    The image has a few bytes; it is made from a real lock and verified.
    """
    chosen: dict[str, Any] = {"status": "pass"}
    for name, value in (("ENVBUILD_HOME", tmp_path / "home"), ("ENVBUILD_ROOT", ROOT), ("DOCKER_CONFIG", tmp_path)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    share_matrix(tmp_path / "home")
    workspace = chosen["workspace"] = Workspace(root=ROOT, output=ROOT / "images", home=tmp_path / "home")
    store = LayerStore(workspace.layers)
    image = composed.image([composed.add(store, "base"), composed.add(store, "wheels")])
    engine_image.remember(workspace.composed_images, image, composed.id_of(image))
    lock = read_lock(workspace.lock_file(NAME))
    digest = files.sha256_of(workspace.lock_file(NAME))
    record = BuildRecord(
        name=NAME, lock=digest, inputs="b" * 64, image=composed.id_of(image),
        tags=(f"envbuild:{NAME}", f"envbuild:{NAME}-aaaaaaaa", f"envbuild:{NAME}-{digest[:8]}-bbbbbbbb"),
        base=BaseRecord(reference="b", image="sha256:b", how="pulled", digest="", notes=()), engine=ENGINE,
        built_at="2026-11-23T10:00:00+00:00", seconds=1.0, steps=2, cached=0, size=1, kept=False, builder="compose",
        rendering="c" * 64, guest="d" * 64,
    )  # fmt: skip
    files.write_atomic(workspace.build_record(NAME), codec.dumps(record))
    key = {"image": record.image, "lock": digest}
    packages = [["bash", "5.2.15-2+b13", "amd64"], ["own", "1", "all"]]
    stage_cache.keep(workspace, NAME, "packages", key, {"packages": packages})
    stage_cache.keep(workspace, NAME, "licences", {**key, "form": 2}, {**key, "packages": [], "unknown": 0})

    def made(*_arguments: object, **_named: object) -> make.Made:
        status, report = chosen["status"], {**REPORT, "mode": {"device": "cpu", "gpu_image": "gpu" in chosen}}
        smoked = Smoked(
            status=status, exit_code=EXITS[status], sentence=f"it is {status}", hint="", report=report, paths={}, replayed=True
        )
        return make.Made(
            environment=lock.environment, lock=lock, digest=digest, engine="e", smoked=smoked,
            record=replace(record, builder=chosen.get("builder", "compose")),
            stages=(make.StageNote(stage="smoke", outcome="replayed", detail="", seconds=0.0),), seconds=0.0,
        )  # fmt: skip

    chosen["fixed"] = record.tags[2].rpartition(":")[2]
    monkeypatch.setattr(make, "make", made)
    monkeypatch.setattr(unchanged, "view", lambda tools: tools)
    monkeypatch.setattr("envbuild.pipeline.image_checks.verify_image", lambda *_a, **_k: Verified)
    return chosen


@pytest.fixture
def fixed(verdict: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """The tag of the image. It has the inputs of this checkout."""
    tag: str = verdict["fixed"]
    monkeypatch.setattr(own_images.OwnImage, "fixed", property(lambda _self: tag))
    return tag


class Verified:
    """The answer of the stand-in for `verify`."""

    report: Mapping[str, Any] = {
        "problems": [], "counts": {"files": 3}, "seconds": 1.5, "notes": ["not checked: a", "other", "not checked: b"],
    }  # fmt: skip


def publish(capsys: pytest.CaptureFixture[str], registry: Registry, key: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = frame.run(["publish", NAME, "--to", f"{registry.host}/lab/dl", "--key", str(key), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def stated(registry: Registry, pair: tuple[Path, Path], digest: str) -> dict[str, Any]:
    """The contents of the statements about the image, by the type of the statement."""
    bundles = referrers.read(f"{registry.host}/lab/dl", digest, signing.BUNDLE)
    found = [signing.opened(each, digest, keys.public_key(pair[1])) for each in bundles]
    assert len({each.kind for each in found}) == len(found)
    return {each.kind: each.predicate for each in found}


def tags(registry: Registry) -> set[str]:
    return {name.partition(":")[2] for name in registry.manifests if ":sha256:" not in name}


def assert_nothing_sent(registry: Registry) -> None:
    assert {line.split()[0] for line in registry.asked} <= {"GET", "HEAD"} and not registry.manifests


def test_a_proved_image_is_published_with_what_was_proved(capsys, registry, pair, verdict):
    code, document = publish(capsys, registry, pair[0])
    told = document["published"]
    assert (code, told["statements"], told["attached"], told["present"]) == (0, 6, 6, 0)
    assert tags(registry) == set(told["tags"]) == set(told["moved"]) and len(told["tags"]) == 3
    found = stated(registry, pair, told["digest"])
    assert found[signing.SIGNED] == {}
    checked = found[signing.VERIFIED]
    assert checked["report"] == {name: value for name, value in Verified.report.items() if name != "seconds"}
    assert (checked["status"], checked["unchecked"]) == ("pass", 2)
    assert (found[signing.SMOKE]["status"], found[signing.SMOKE]["report"]["host"]) == (
        "pass",
        REPORT["host"],
    )
    assert found[signing.SMOKE]["image"] == document["image"]
    bill = found[signing.SBOM]
    assert JsonStrictValidator(cyclonedx.schema.SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    assert {"name": "envbuild:image", "value": document["image"]} in bill["metadata"]["component"]["properties"]
    code, document = publish(capsys, registry, pair[0])
    told = document["published"]
    assert (code, told["sent_bytes"], told["attached"], told["moved"]) == (0, 0, 0, []) and document["nothing_to_do"]


def test_a_dry_run_tells_what_would_be_sent_and_sends_nothing(capsys, registry, pair, verdict):
    code, document = publish(capsys, registry, pair[0], "--dry-run")
    would = document["would"]
    assert (code, would["make"], would["layers"], would["statements"], len(would["tags"])) == (0, False, 2, 6, 3)
    assert would["bytes"] > 0 and not document["nothing_to_do"]
    assert {line.split()[0] for line in registry.asked} == {"HEAD", "GET"}
    registry.answers_left = 24  # enough for the image, its fixed tag, and one or two statements
    publish(capsys, registry, pair[0])
    registry.answers_left = -1
    would = publish(capsys, registry, pair[0], "--dry-run")[1]["would"]
    assert (would["layers"], would["bytes"], len(would["tags"])) == (0, 0, 2) and 0 < would["statements"] < 6
    publish(capsys, registry, pair[0])
    code, document = publish(capsys, registry, pair[0], "--dry-run")
    assert (code, document["nothing_to_do"]) == (0, True)


def test_a_dry_run_makes_nothing(capsys, registry, pair, verdict, monkeypatch):
    def work(*_arguments: object, **_named: object) -> make.Made:
        raise unchanged.WorkNeededError

    monkeypatch.setattr(make, "make", work)
    code, document = publish(capsys, registry, pair[0], "--dry-run")
    assert (code, document["would"]) == (0, {"make": True}) and not registry.asked


def test_a_dry_run_says_that_a_lock_is_incomplete(capsys, registry, pair, verdict, monkeypatch):
    def make_nothing(*_arguments: object, **_named: object) -> None:
        raise unchanged.WorkNeededError

    monkeypatch.setattr(make, "make", make_nothing)
    name = "pytorch-2.5.1-cuda11.8-py311-debian12"
    words = ["publish", name, "--dry-run", "--to", f"{registry.host}/lab/dl", "--key", str(pair[0])]
    assert frame.run(words) == 0
    told = capsys.readouterr().out
    assert told == f"{name}  cannot be made unless its lock can be completed: it pins no file of pytorch\n"


def test_the_provenance_names_every_file_by_its_hash(capsys, registry, pair, verdict):
    _, document = publish(capsys, registry, pair[0])
    told = stated(registry, pair, document["published"]["digest"])[signing.PROVENANCE]
    lock = read_lock(ROOT / f"images/environments/{NAME}/lock.json")
    found = {each["digest"].get("sha256") for each in told["buildDefinition"]["resolvedDependencies"]}
    wanted = {artifact.sha256 for prefix in lock.prefixes for artifact in prefix.files} | {deb.sha256 for deb in lock.debs()}
    assert wanted | {document["lock"]} <= found and len(wanted) > 100
    urls = {each.get("uri", "") for each in told["buildDefinition"]["resolvedDependencies"]}
    assert any(url.startswith("pkg:pypi/opencv-python-headless@") or url.startswith("pkg:pypi/opencv") for url in urls)
    assert told["buildDefinition"]["internalParameters"]["inputs"] == {"sha256": "b" * 64}
    assert told["runDetails"]["metadata"] == {"finishedOn": "2026-11-23T10:00:00+00:00"}


@pytest.mark.parametrize("status", ["fail", "inconclusive"])
def test_what_did_not_pass_is_not_pushed(capsys, registry, pair, verdict, status):
    verdict["status"] = status
    code, document = publish(capsys, registry, pair[0])
    assert (code, document["status"]) == (EXITS[status], status) and "published" not in document
    assert_nothing_sent(registry)


def test_an_inconclusive_image_is_published_where_that_is_allowed_and_is_told_as_such(capsys, registry, pair, verdict):
    verdict["status"] = "inconclusive"
    code, document = publish(capsys, registry, pair[0], "--allow", "inconclusive")
    assert (code, document["status"]) == (0, "inconclusive") and "error" not in document
    smoke = stated(registry, pair, document["published"]["digest"])[signing.SMOKE]
    assert smoke["status"] == "inconclusive"


def test_a_failed_image_is_published_by_no_option(capsys, registry, pair, verdict):
    verdict["status"] = "fail"
    assert publish(capsys, registry, pair[0], "--allow", "inconclusive")[0] == 9
    assert_nothing_sent(registry)


def test_a_later_pass_is_stated_beside_the_inconclusive_run(capsys, registry, pair, verdict):
    verdict["status"] = "inconclusive"
    publish(capsys, registry, pair[0], "--allow", "inconclusive")
    verdict["status"] = "pass"
    code, document = publish(capsys, registry, pair[0])
    assert (code, document["published"]["attached"], document["published"]["sent_bytes"]) == (0, 1, 0)


def test_a_gpu_image_that_passed_without_its_gpus_is_inconclusive(capsys, registry, pair, verdict):
    """`--allow-cpu --expect cpu` lets the smoke test pass, but that proves nothing about the GPU build."""
    verdict["gpu"] = "yes"
    for words in ((), ("--dry-run",)):
        code, document = publish(capsys, registry, pair[0], *words)
        assert (code, document["status"], document["error"]["code"]) == (10, "inconclusive", "smoke-inconclusive")
    assert_nothing_sent(registry)
    code, document = publish(capsys, registry, pair[0], "--allow", "inconclusive")
    smoke = stated(registry, pair, document["published"]["digest"])[signing.SMOKE]
    assert (code, smoke["status"], smoke["device"]) == (0, "inconclusive", "cpu")


def test_who_built_a_pulled_image_is_not_stated(capsys, registry, pair, verdict):
    verdict["builder"] = PULLED
    _, document = publish(capsys, registry, pair[0])
    kinds = set(stated(registry, pair, document["published"]["digest"]))
    assert document["published"]["statements"] == 5 == len(kinds) and signing.PROVENANCE not in kinds


def test_the_provenance_says_that_the_commit_of_a_foreign_checkout_is_unknown(
    capsys, registry, pair, verdict, monkeypatch, tmp_path
):
    """git has a variable with which it treats each checkout as that of another user."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):  # the machine may allow all checkouts
        monkeypatch.setenv(name, "/dev/null")
    words = ["publish", NAME, "--to", f"{registry.host}/lab/dl", "--key", str(pair[0]), "--json"]
    digests = []
    for _ in range(2):
        assert frame.run(words) == 0
        captured = capsys.readouterr()
        digests.append(json.loads(captured.out)["published"]["digest"])
        assert f"warning: the provenance of {NAME} says that the commit is unknown." in captured.err
        assert f"git config --global --add safe.directory {ROOT}`" in captured.err and "belongs to another user" in captured.err
        told = stated(registry, pair, digests[0])[signing.PROVENANCE]["buildDefinition"]
        assert told["envbuild_unknownCommit"] == "git does not read the checkout, because it belongs to another user"
        assert not any("gitCommit" in each["digest"] for each in told["resolvedDependencies"][:2])
    assert json.loads(captured.out)["nothing_to_do"], "the same statement is not attached again"
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    assert frame.run(words) == 0
    bundles = referrers.read(f"{registry.host}/lab/dl", digests[0], signing.BUNDLE)
    found = [signing.opened(each, digests[0], keys.public_key(pair[1])) for each in bundles]
    built = [each.predicate["buildDefinition"] for each in found if each.kind == signing.PROVENANCE]
    assert [
        each
        for each in built
        if "envbuild_unknownCommit" not in each and "gitCommit" in each["resolvedDependencies"][1]["digest"]
    ]


def provenance_of(verdict: dict[str, Any], *, stores: bool = True) -> dict[str, Any]:
    """The provenance that the next publication states."""
    found = attestations.of_image(tools.Tools(verdict["workspace"]), cast("Any", make.make)(), stores=stores)
    (told,) = (each.predicate for each in found if each.kind == signing.PROVENANCE)
    return dict(told)


def commits(told: dict[str, Any]) -> list[str]:
    dependencies = told["buildDefinition"]["resolvedDependencies"]
    return [each["digest"]["gitCommit"] for each in dependencies if each.get("name") == "facts and recipes"]


def test_only_the_commit_changes_when_git_reads_the_checkout(verdict, monkeypatch):
    """Until then, no run asks the engine again, so that a batch can see that there is nothing to do."""

    class Listed:
        def __getattr__(self, name: str) -> NoReturn:
            raise unchanged.WorkNeededError(name)

    monkeypatch.setattr(tools.Tools, "engine_name", ENGINE)
    engine = SimpleNamespace(product="Docker", info=SimpleNamespace(version="29.1"))
    monkeypatch.setattr(tools.Tools, "engine", engine)
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: engine)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    first = provenance_of(verdict)
    assert first["runDetails"]["builder"]["version"] == {"envbuild": envbuild.__version__, "engine": "Docker 29.1"}
    monkeypatch.setattr(envbuild, "__version__", "99.0")
    monkeypatch.setattr(tools.Tools, "engine", Listed())
    assert provenance_of(verdict) == first and not commits(first)
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: None)
    assert provenance_of(verdict) == first
    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    told = provenance_of(verdict)
    assert commits(told) and told["runDetails"] == first["runDetails"]
    monkeypatch.setattr("envbuild.pipeline.changed_since.head", lambda _workspace: pytest.fail("the commit is known"))
    assert provenance_of(verdict) == told


def test_a_commit_that_an_earlier_version_could_not_read_is_read_now(verdict):
    workspace, record = verdict["workspace"], make.make().record
    key = {"image": record.image, "inputs": record.inputs, "form": 2}
    stored = {"commit": "", "is_modified": False, "version": "0.1", "engine": "Docker 20"}
    stage_cache.keep(workspace, NAME, "origin", key, stored)
    told = provenance_of(verdict, stores=False)
    assert commits(told) and told["runDetails"]["builder"]["version"] == {"envbuild": "0.1", "engine": "Docker 20"}
    assert stage_cache.recall(workspace, NAME, "origin", key) == stored
    assert provenance_of(verdict) == told
    assert stage_cache.recall(workspace, NAME, "origin", key) == {
        **stored, "commit": commits(told)[0], "is_modified": changed_since.head(workspace)[1],
    }  # fmt: skip


def test_without_git_the_provenance_says_that_the_commit_is_unknown(capsys, registry, pair, verdict, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert frame.run(["publish", NAME, "--to", f"{registry.host}/lab/dl", "--key", str(pair[0]), "--json"]) == 0
    captured = capsys.readouterr()
    assert "the commit is unknown. The commit needs git, and git is not installed. Install git." in captured.err
    told = stated(registry, pair, json.loads(captured.out)["published"]["digest"])[signing.PROVENANCE]
    assert told["buildDefinition"]["envbuild_unknownCommit"] == "git is not installed" and not commits(told)
    elsewhere = Workspace(root=tmp_path, output=tmp_path, home=tmp_path)
    assert changed_since.head(elsewhere) == ("", False)
    assert changed_since.refusal_to_read(elsewhere, "The commit") is None, "there is no checkout, so there is no commit"


def test_a_dry_run_stores_nothing_that_a_statement_rests_on(capsys, registry, pair, verdict, monkeypatch):
    heads = iter([("1" * 40, True), ("2" * 40, False)])
    monkeypatch.setattr("envbuild.pipeline.changed_since.head", lambda _workspace: next(heads))
    publish(capsys, registry, pair[0], "--dry-run")
    _, document = publish(capsys, registry, pair[0])
    told = stated(registry, pair, document["published"]["digest"])[signing.PROVENANCE]
    assert told["buildDefinition"]["resolvedDependencies"][1]["digest"] == {"gitCommit": "2" * 40}
    assert publish(capsys, registry, pair[0])[1]["nothing_to_do"], "the stored commit is stated again"


def test_the_address_of_the_engine_is_not_stated(capsys, registry, pair, verdict, monkeypatch):
    engine = SimpleNamespace(product="Docker", info=SimpleNamespace(version="29.1"))
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: engine)
    monkeypatch.setattr(tools.Tools, "engine", engine)
    for name, version in (("DOCKER_HOST (ssh://alice@host)", {}), (ENGINE, {"engine": "Docker 29.1"})):
        monkeypatch.setattr(tools.Tools, "engine_name", name)
        made = make.make()
        found = attestations.of_image(tools.Tools(verdict["workspace"]), made, stores=False)
        told = next(each.predicate for each in found if each.kind == signing.PROVENANCE)
        assert "alice" not in json.dumps(told)
        assert {"envbuild": envbuild.__version__, **version} == told["runDetails"]["builder"]["version"]


def test_packages_that_could_not_be_listed_are_asked_for_again(capsys, registry, pair, verdict, tmp_path, monkeypatch):
    workspace = verdict["workspace"]
    stage_cache.forget(workspace, NAME, "packages")

    def refuse(*_words: object) -> None:
        raise VerifyError("dpkg-query: killed")

    monkeypatch.setattr(tools.Tools, "engine", None)
    monkeypatch.setattr(installed, "packages", refuse)
    bill = stated(registry, pair, publish(capsys, registry, pair[0])[1]["published"]["digest"])[signing.SBOM]
    assert bill["compositions"] == [{"aggregate": "incomplete"}]
    assert JsonStrictValidator(cyclonedx.schema.SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    monkeypatch.setattr(installed, "packages", lambda *_words: [("bash", "5", "amd64")])
    assert publish(capsys, registry, pair[0])[1]["published"]["attached"] == 1


def test_a_list_of_licences_that_broke_off_is_not_stated(capsys, registry, pair, verdict, monkeypatch, tmp_path):
    stage_cache.forget(verdict["workspace"], NAME, "licences")
    told = SimpleNamespace(code=137, output="\x01/opt/a.dist-info/METADATA\nName: a\nVersion: 1\n")
    monkeypatch.setattr(tools.Tools, "engine", SimpleNamespace(run=lambda *_words, **_named: told))
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: None)
    kinds = set(stated(registry, pair, publish(capsys, registry, pair[0])[1]["published"]["digest"]))
    assert signing.LICENCES not in kinds and signing.SBOM in kinds
    told.code = 0
    monkeypatch.setattr(Index, "fetch_artifact", lambda *_words: pip_wheel(tmp_path))
    assert publish(capsys, registry, pair[0])[1]["published"]["attached"] == 1


def test_the_pip_in_the_image_has_its_licence_in_the_list(capsys, registry, pair, verdict, monkeypatch, tmp_path):
    """The image has the files of pip without their METADATA. If the wheel of pip cannot be had, there is no list."""
    stage_cache.forget(verdict["workspace"], NAME, "licences")
    told = SimpleNamespace(code=0, output="\x01/opt/a.dist-info/METADATA\nName: a\nVersion: 1\n")
    monkeypatch.setattr(tools.Tools, "engine", SimpleNamespace(run=lambda *_words, **_named: told))
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: None)
    asked: list[str] = []

    def fetch(_index: Index, artifact: Artifact, *_words: object) -> Path:
        asked.append(artifact.name)
        if len(asked) == 1:
            raise BuildError("The index is gone.", code="index-unreachable")
        return pip_wheel(tmp_path)

    monkeypatch.setattr(Index, "fetch_artifact", fetch)
    digest = publish(capsys, registry, pair[0])[1]["published"]["digest"]
    assert signing.LICENCES not in stated(registry, pair, digest)
    publish(capsys, registry, pair[0])
    found = stated(registry, pair, digest)[signing.LICENCES]
    assert {each["name"]: each["licences"] for each in found["packages"]} == {"a": [], "pip": ["MIT"]} and found["unknown"] == 1
    assert publish(capsys, registry, pair[0])[1]["nothing_to_do"] and asked == ["pip", "pip"]


def pip_wheel(folder: Path) -> Path:
    wheel = folder / "pip-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pip-1.dist-info/METADATA", "Name: pip\nVersion: 1\nLicense-Expression: MIT\n")
    return wheel


def test_an_audit_that_could_not_ask_the_image_is_made_again(capsys, registry, pair, verdict, monkeypatch, tmp_path):
    (tmp_path / "osv").mkdir()
    (tmp_path / "osv/EX-1.json").write_text('{"id": "EX-1", "affected": []}')
    words = ("--database", str(tmp_path / "osv"))
    asked: list[tuple[str, str, str]] = []
    monkeypatch.setattr("envbuild.pipeline.image_checks.sources_of_image", lambda *_words: (asked or None, "why"))
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: None)
    publish(capsys, registry, pair[0], *words)
    assert publish(capsys, registry, pair[0], *words)[1]["nothing_to_do"]
    monkeypatch.setattr(tools.Tools, "engine_or_none", lambda _self: SimpleNamespace())
    monkeypatch.setattr(tools.Tools, "engine_name", "another engine")
    assert publish(capsys, registry, pair[0], *words)[1]["nothing_to_do"], "the image still does not answer"
    asked.append(("bash", "bash", "5.2"))
    assert publish(capsys, registry, pair[0], *words)[1]["published"]["attached"] == 1
    assert publish(capsys, registry, pair[0], *words)[1]["nothing_to_do"]


def test_only_the_head_of_a_packages_metadata_tells_its_licence(tmp_path):
    head = "Name: a\r\nVersion: 1\r\nLicense: BSD\r\n\r\nLicense: what the description says\r\n"
    for folder, name, text in (("a.dist-info", "METADATA", head), ("b.egg-info", "PKG-INFO", head.replace("\r", ""))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(text.encode())
    question = licences.QUESTION.partition("dpkg-query")[0].replace("find /", f"find {tmp_path}")
    told = subprocess.run(["/bin/sh", "-c", question], capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.count("\x01") == 2 and "description" not in told
    (found,) = licences.predicate("i", "l", told)["packages"]
    assert found == {"type": "pypi", "name": "a", "version": "1", "licences": ["BSD"]}


def test_an_image_that_was_not_verified_gets_no_name_of_a_verified_one(capsys, registry, pair, verdict, tmp_path):
    _, document = publish(capsys, registry, pair[0])
    place = tmp_path / "image.tar"
    for tag in (document["published"]["digest"], NAME):
        argv = ["pull", NAME, "--from", f"{registry.host}/lab/dl", "--tag", tag, "--to", f"docker-archive:{place}"]
        assert frame.run(argv) == 0 and "not verified" in "".join(capsys.readouterr())
        with tarfile.open(place) as archive:
            names = json.loads(archive.extractfile("manifest.json").read())[0]["RepoTags"]
        assert names == [f"envbuild/pulled:{tag.replace(':', '-')}"]


def test_a_wrong_key_is_told_before_anything_is_made(capsys, registry, pair, verdict):
    code, document = publish(capsys, registry, pair[1])
    assert (code, document["error"]["code"]) == (5, "signing-key") and not registry.asked


@pytest.mark.parametrize(("refusal", "error"), [(401, "denied"), (403, "denied"), (0, "registry-unreachable")])
def test_a_registry_that_refuses_is_told_before_anything_is_made(capsys, registry, pair, verdict, monkeypatch, refusal, error):
    """Making an image can take hours."""
    monkeypatch.setattr(make, "make", lambda *_arguments, **_named: pytest.fail("the registry is asked too late"))
    registry.answers_left, registry.refusal = 0, refusal
    if not refusal:
        with socket.socket() as taken:  # the port is bound, but nothing listens
            taken.bind(("127.0.0.1", 0))
            registry.host = f"127.0.0.1:{taken.getsockname()[1]}"
    code, document = publish(capsys, registry, pair[0])
    assert (code, document["error"]["code"]) == (11, error) and registry.host in document["error"]["hint"]


def test_a_refusal_while_attaching_leaves_the_moving_tags(capsys, registry, pair, verdict):
    for answers in (12, 16, 20):
        registry.answers_left = answers
        code, document = publish(capsys, registry, pair[0])
        assert (code, document["error"]["code"]) == (11, "denied")
        assert NAME not in tags(registry)
    registry.answers_left = -1
    assert publish(capsys, registry, pair[0])[0] == 0 and NAME in tags(registry)


@pytest.mark.parametrize("owner", ["right", "wrong"])
def test_pull_fetches_only_what_is_signed_with_the_key(capsys, registry, pair, verdict, tmp_path, owner):
    _, document = publish(capsys, registry, pair[0])
    public = pair[1] if owner == "right" else write_pair(tmp_path, "other")[1]
    before = registry.count("GET", "/blobs/")
    argv = [
        "pull",
        NAME,
        "--from",
        f"{registry.host}/lab/dl",
        "--tag",
        NAME,
        "--key",
        str(public),
        "--to",
        f"oci:{tmp_path}/out",
    ]
    code = frame.run([*argv, "--json"])
    answer = json.loads(capsys.readouterr().out)
    if owner == "right":
        assert code == 0 and answer["images"][0]["digest"] == document["published"]["digest"] and answer["images"][0]["signed"]
    else:
        assert (code, answer["error"]["code"]) == (11, "wrong-signature") and not (tmp_path / "out").exists()
        assert registry.count("GET", "/blobs/") == before + 6, "the bundles were read, and no layer"


def test_a_digest_is_pulled_although_the_registry_tells_another_one(capsys, registry, pair, verdict, tmp_path, monkeypatch):
    """With `--key`, too, the pinned digest counts: a registry could name another image with a valid signature."""
    wanted = publish(capsys, registry, pair[0])[1]["published"]["digest"]
    other = "sha256:" + "0" * 64
    monkeypatch.setattr(stand_in_registry._Handler, "_digest", lambda _self, _content: other)
    argv = [
        "pull",
        NAME,
        "--from",
        f"{registry.host}/lab/dl",
        "--tag",
        wanted,
        "--key",
        str(pair[1]),
        "--to",
        f"oci:{tmp_path}/o",
    ]
    code = frame.run([*argv, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and answer["images"][0]["digest"] == wanted
    assert other not in " ".join(registry.asked)


def test_an_image_that_is_built_meanwhile_is_not_published_with_the_proof_of_this_one(
    capsys, registry, pair, verdict, tmp_path, monkeypatch
):
    workspace = Workspace(root=ROOT, output=ROOT / "images", home=tmp_path / "home")
    other = composed.image([composed.add(LayerStore(workspace.layers), "other")])
    engine_image.remember(workspace.composed_images, other, composed.id_of(other))
    plain = make.make

    def made(*words: Any, **named: Any) -> make.Made:
        told = plain(*words, **named)
        meanwhile = replace(told.record, image=composed.id_of(other), inputs="e" * 64)
        files.write_atomic(workspace.build_record(NAME), codec.dumps(meanwhile))
        return told

    monkeypatch.setattr(make, "make", made)
    would = publish(capsys, registry, pair[0], "--dry-run")[1]["would"]
    _, document = publish(capsys, registry, pair[0])
    held = json.loads(registry.manifests[f"lab/dl:{NAME}"])
    assert held["config"]["digest"] == document["image"] and would["layers"] == len(held["layers"]) == 2


def written(folder: Path, **changed: Any) -> Path:
    """Write a complete smoke report of this environment, with changes."""
    path = folder / "report.json"
    path.write_text(json.dumps(smoke_report(NAME, **changed)))
    return path


def attest(capsys: pytest.CaptureFixture[str], registry: Registry, key: Path, report: Path) -> tuple[int, dict[str, Any]]:
    code = frame.run(["attest", NAME, str(report), "--to", f"{registry.host}/lab/dl", "--key", str(key), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("status", ["pass", "fail"])
@pytest.mark.parametrize("named_by", ["configuration", "manifest"])
def test_a_report_of_another_machine_is_stated_of_the_same_image(capsys, registry, pair, fixed, tmp_path, status, named_by):
    _, document = publish(capsys, registry, pair[0])
    told = document["published"]
    image = document["image"] if named_by == "configuration" else told["digest"]
    report = written(tmp_path, image={"ref": "x", "id": image}, status=status)
    theirs = write_pair(tmp_path, "theirs")
    code, document = attest(capsys, registry, theirs[0], report)
    assert (code, document["digest"], document["status"], document["attached"]) == (0, told["digest"], status, True)
    bundles = [*referrers.read(f"{registry.host}/lab/dl", told["digest"], signing.BUNDLE)]
    found = []
    for each in bundles:
        with contextlib.suppress(signing.UntrustedError):
            found.append(signing.opened(each, told["digest"], keys.public_key(theirs[1])))
    assert len(bundles) == 7 and [each.predicate["report"]["status"] for each in found] == [status]
    assert attest(capsys, registry, theirs[0], report)[1]["attached"] is False, "the same report is stated once"


REFUSED = (
    ({"image": {"ref": "x", "id": "sha256:" + "0" * 64}}, "report-of-another-image"),
    ({"image": {"ref": "", "id": ""}}, "report-of-another-image"),
    ({"environment": {"name": NAME, "lock": "0" * 64}}, "report-of-another-image"),
    ({"environment": {"name": NAME}}, "report-of-another-image"),
    ({"status": "error"}, "report"),
    ({"runs": "many"}, "report"),
    ({"schema": "other"}, "report"),
    ({"checks": []}, "report"),
    ({"checks": smoke_report(NAME)["checks"][:3]}, "report"),
    ({"framework": {**smoke_report(NAME)["framework"], "version": "4.1"}}, "report"),
    ({"runs": []}, "report"),
    ({"training": []}, "report"),
    ({"mode": {"device": None, "gpu_image": False, "allow_cpu": False, "expect": None}}, "report"),
    ({"reason": "\ud800"}, "report"),
)


def test_a_report_that_is_not_whole_or_not_of_this_image_is_refused(capsys, registry, pair, fixed, tmp_path):
    _, document = publish(capsys, registry, pair[0])
    before, same = dict(registry.manifests), {"image": {"ref": "x", "id": document["image"]}}
    for changed, code in REFUSED:
        exit_code, document = attest(capsys, registry, pair[0], written(tmp_path, **{**same, **changed}))
        assert (exit_code, document["error"]["code"], changed) == (5, code, changed) and registry.manifests == before
    failed = smoke_report(NAME, "fail")["checks"]
    _, document = attest(capsys, registry, pair[0], written(tmp_path, **{**same, "checks": failed}))
    assert document["error"]["message"].endswith("is not attached: it says pass, but its check ACC says fail.")


def test_what_is_no_image_gets_no_statement(capsys, registry, pair, fixed, tmp_path):
    for content in (b"<html>", b"[]", b'{"config": null}', b'{"manifests": []}', b"[" * 100_000):
        registry.manifests[f"lab/dl:{fixed}"] = content
        code, document = attest(capsys, registry, pair[0], written(tmp_path))
        assert (code, document["error"]["code"]) == (11, "unknown-format")


def test_a_report_about_another_environment_is_refused(capsys, registry, pair, fixed, tmp_path):
    report = json.loads(written(tmp_path).read_text())
    path = written(tmp_path, environment={**report["environment"], "name": "other-1.0-cpu"})
    code, document = attest(capsys, registry, pair[0], path)
    assert (code, document["error"]["code"]) == (5, "report-of-another-image") and not registry.asked


def test_an_image_that_is_not_there_gets_no_statement(capsys, registry, pair, fixed, tmp_path):
    code, document = attest(capsys, registry, pair[0], written(tmp_path))
    assert (code, document["error"]["code"]) == (11, "not-in-registry") and not registry.manifests
