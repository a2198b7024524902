"""The signers of a policy: only images that they signed are taken from a registry, and only with their keys is published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from signing import write_pair
from smoke_documents import smoke_report
from stand_in_registry import Registry, serve
from stood_in_stages import stand_in

from envbuild.catalogue.model import CatalogueEntry
from envbuild.cli import frame
from envbuild.pipeline import (
    catalogue_entries,
    catalogue_registry,
    make,
    own_images,
    plan,
    policy_facts,
    trusted_sources,
    unchanged,
)
from envbuild.pipeline.batch import Job
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools

DATA = Path(__file__).parents[1] / "unit/data"
NAME = "opencv-5.0.0.93-cpu-py311-debian12"
OTHER = "opencv-4.10.0.84-cpu-py311-debian12"
PAST = "2020-01-01"


def never(*_arguments: object, **_named: object) -> NoReturn:
    """Stand in for `make` where nothing may be made."""
    raise unchanged.WorkNeededError


class Place:
    """A registry with one published image, signed with the key ``ours``. Keys and policies are in ``folder``."""

    def __init__(self, registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], str]) -> None:
        stages = self.stages = stand_in(folder, monkeypatch, {NAME: "first", OTHER: "second"})
        self.workspace = stages.workspace
        self.registry, self.to, self.folder, self._read = registry, f"{registry.host}/lab/dl", folder, read
        for name in ("ours", "theirs", "stranger"):
            write_pair(folder, name)
        code, told = self.publish("ours")
        assert code == 0, told
        self.digest = told["published"]["digest"]
        (each,), _ = plan.candidates(Tools(stages.workspace), [Job(name=NAME, request=NAME)])
        registry.manifests[f"lab/dl:{own_images.fixed_tag(each.tags)}"] = registry.manifests[f"lab/dl:{NAME}"]
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(make, "make", never)

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = frame.run(["--json", *words])
        return code, json.loads(self._read())

    def publish(self, key: str, *words: str, name: str = NAME) -> tuple[int, dict[str, Any]]:
        return self.run("publish", name, "--to", self.to, "--key", f"{self.folder}/{key}.key", *words)

    def take(self, verb: str, *words: str) -> tuple[int, dict[str, Any]]:
        """Take the image from the registry in one of the ways in which this can be done."""
        out = ("--to", f"oci:{self.folder}/out") if verb == "pull" else ()
        before = ("--dry-run",) if verb == "run" else ("--format", "compose") if verb == "export" else ()
        return self.run(verb, "--from", self.to, *words, *before, NAME, *out)

    def policy(self, *signers: str, more: str = "") -> Path:
        """Write a policy with these signers, and name it in the environment."""
        path = self.folder / "policy.yaml"
        listed = "".join(f"  - {each}\n" for each in signers)
        path.write_text(f"schema: 1\n{more}" + (f"signers:\n{listed}" if signers else ""))
        self._monkeypatch.setenv("ENVBUILD_POLICY", str(path))
        return path

    def catalogue_entry(self, policy: Path) -> tuple[CatalogueEntry, list[str]]:
        """The entry of the catalogue about the environment, and the warnings."""
        warnings: list[str] = []
        tools = Tools(
            replace(self.workspace, policy=policy), on_progress=lambda news: news.warning and warnings.append(news.message)
        )
        locked = read_locked(tools, NAME)
        assert locked is not None
        entry = catalogue_entries.entry_of(tools, locked, "", with_machine=False)
        keys = trusted_sources.trusted(tools, self.to)
        (found,) = catalogue_registry.published(tools, [entry], self.to, keys)
        return found, warnings

    def attest(self, key: str) -> tuple[int, dict[str, Any]]:
        """Attach a report to the published image. The report is not about the image, which is found out last."""
        (self.folder / "report.json").write_text(json.dumps(smoke_report(NAME)))
        words = ("--to", self.to, "--key", f"{self.folder}/{key}.key")
        return self.run("attest", NAME, f"{self.folder}/report.json", *words)


def signer(name: str, expires: str = "", owner: str = "") -> str:
    """An entry of the policy. Without a date, this day is the last day."""
    more = f", owner: {owner}" if owner else ""
    return f"{{key: {name}.pub, expires: {expires or policy_facts.today()}{more}}}"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the compiled matrix, so that it is compiled once for all tests."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def place(
    tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Place]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "compiled-matrix").symlink_to(compiled)
    with serve(Registry(knows_referrers=True)) as registry:
        yield Place(registry, tmp_path, monkeypatch, lambda: capsys.readouterr().out)


VERBS = ("pull", "run", "export", "evidence")


def test_an_image_that_a_current_signer_signed_is_taken(place):
    place.policy(signer("theirs"), signer("ours"))
    for verb in VERBS:
        for words in ((), ("--key", f"{place.folder}/ours.pub")):
            code, told = place.take(verb, *words)
            assert code == 0, told
            assert verb != "pull" or told["images"][0]["signed"]
    code, _ = place.publish("ours", "--dry-run")
    assert code == 0


def test_an_image_without_the_signature_of_a_current_signer_is_refused(place):
    place.registry.asked.clear()
    for signers, word, text in (
        ([signer("theirs")], "unknown-signer", "is not signed with a key that counts"),
        ([signer("theirs"), signer("ours", PAST, "ann")], "expired-signer", f"this key of the policy expired on {PAST}"),
        ([signer("ours", PAST, "ann")], "expired-signer", "All signers of the policy have expired"),
    ):  # fmt: skip
        path = place.policy(*signers)
        for verb in VERBS:
            code, told = place.take(verb)
            error = told["error"]
            assert (code, error["code"]) == (12, word), (verb, error)
            assert text in error["message"] and f"{path}:" in error["message"] and error["hint"]
            assert word != "expired-signer" or "let ann extend the date" in error["hint"]
    assert not any("/blobs/sha256" in line and "GET" in line and place.digest in line for line in place.registry.asked)
    assert not (place.folder / "out").exists(), "no layer was written"


def test_a_signed_image_of_another_environment_is_refused(place, monkeypatch):
    """Whoever may write to the registry can set the tags that never move on another image, without any key."""
    monkeypatch.setattr(make, "make", place.stages.made)
    code, told = place.publish("ours", name=OTHER)
    assert code == 0, told
    monkeypatch.setattr(make, "make", never)
    for tag in [each for each in place.registry.manifests if each.startswith(f"lab/dl:{NAME}")]:
        place.registry.manifests[tag] = place.registry.manifests[f"lab/dl:{OTHER}"]
    for verb in VERBS:
        code, told = place.take(verb, "--key", f"{place.folder}/ours.pub")
        assert (code, told["error"]["code"]) == (11, "image-of-another-environment"), (verb, told)
    entry, warnings = place.catalogue_entry(place.policy(signer("ours")))
    assert entry.published is None
    assert any(f"the published image of {NAME} is not shown" in each for each in warnings)


def test_an_image_without_a_signature_is_refused(place):
    for name in [each for each in place.registry.manifests if each.startswith("lab/dl:") and NAME in each]:
        place.registry.manifests[name.replace("lab/dl", "lab/bare")] = place.registry.manifests[name]
    place.registry.blobs["lab/bare"] = place.registry.blobs["lab/dl"]
    place.to = f"{place.registry.host}/lab/bare"
    assert place.take("run")[0] == 0, "without a policy, no signature is needed"
    path = place.policy(signer("ours"))
    for verb in VERBS:
        code, told = place.take(verb)
        assert (code, told["error"]["code"]) == (12, "unsigned-image"), (verb, told)
        assert "is not signed" in told["error"]["message"] and f"{path}:3" in told["error"]["message"]


def test_a_signer_whose_key_cannot_be_read_is_told_with_its_line(place):
    path = place.policy(signer("ours"), "{key: gone.pub, expires: 2999-01-01}")
    (place.folder / "text.pub").write_text("no key")
    for name in ("gone", "text"):
        path = place.policy(signer("ours"), signer(name))
        for verb in VERBS:
            code, told = place.take(verb)
            error = told["error"]
            assert (code, error["code"]) == (5, "bad-policy"), (verb, error)
            assert f"{name}.pub" in error["message"] and error["problems"][0]["line"] == 4
            assert error["problems"][0]["where"] == str(path)


def test_a_key_that_is_named_must_be_the_key_of_a_current_signer(place):
    path = place.policy(signer("ours"), signer("theirs", PAST))
    for key, word, text in (
        ("stranger", "unknown-signer", "is not the key of a signer"),
        ("theirs", "expired-signer", f"theirs.pub of the policy, which expired on {PAST}"),
    ):
        for verb in VERBS:
            code, told = place.take(verb, "--key", f"{place.folder}/{key}.pub")
            assert (code, told["error"]["code"]) == (12, word), (verb, told)
            assert text in told["error"]["message"] and str(path) in told["error"]["message"]


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--keep-going",), ("--rollback",)])
def test_nothing_is_published_with_a_key_of_no_current_signer(place, words):
    place.policy(signer("ours"), signer("theirs", PAST))
    place.registry.asked.clear()
    for key, word in (("stranger", "unknown-signer"), ("theirs", "expired-signer")):
        code, told = (
            place.run("publish", "--to", place.to, "--key", f"{place.folder}/{key}.key", *words)
            if "--rollback" in words
            else place.publish(key, *words)
        )
        assert (code, told["error"]["code"]) == (12, word), told
    assert not place.registry.asked, "refused before the registry is asked"


@pytest.mark.parametrize("allowed", [False, True])
def test_an_image_of_a_registry_that_the_policy_does_not_allow_is_refused(place, allowed):
    where = place.registry.host if allowed else "registry.example.org/team/*"
    path = place.policy(more=f"registries: {{allowed: ['{where}']}}\n")
    place.registry.asked.clear()
    for verb in VERBS:
        key = ("--key", f"{place.folder}/ours.pub") if verb == "evidence" else ()
        code, told = place.take(verb, *key)
        assert code == (0 if allowed else 12), (verb, told)
        if not allowed:
            assert f"does not allow the repository {place.to}" in told["error"]["message"]
            assert (
                "Take the image from an allowed repository" in told["error"]["hint"]
                and f"{path}, line 2" in told["error"]["hint"]
            )
    assert allowed or not place.registry.asked


def test_evidence_names_the_signers_of_the_policy(place):
    place.policy(signer("ours"))
    code, told = place.run("evidence", NAME, "--from", place.to)
    (answer,) = told["gathered"]
    assert code == 0 and any(each["verdict"] == "accepted" for each in answer["statements"])


def test_the_catalogue_shows_only_images_that_a_current_signer_signed(place):
    entry, warnings = place.catalogue_entry(place.policy(signer("ours")))
    assert entry.published is not None and entry.published.digest == place.digest
    assert entry.published.signed_by and entry.published.statements and not warnings
    for signers, text in (
        ([signer("theirs")], "is not signed with a key that counts"),
        ([signer("theirs"), signer("ours", PAST)], "this key of the policy expired"),
    ):
        entry, warnings = place.catalogue_entry(place.policy(*signers))
        assert entry.published is None
        assert len(warnings) == 1 and f"the published image of {NAME} is not shown" in warnings[0] and text in warnings[0]


def test_the_catalogue_is_not_begun_if_the_policy_allows_no_registry_or_key(place):
    place.registry.asked.clear()
    words = ("catalogue", "-o", f"{place.folder}/site", "--registry", place.to)
    place.policy(signer("ours"))
    code, told = place.run(*words, "--key", f"{place.folder}/stranger.pub")
    assert (code, told["error"]["code"]) == (12, "unknown-signer")
    place.policy(signer("ours", PAST))
    code, told = place.run(*words)
    assert (code, told["error"]["code"]) == (12, "expired-signer")
    place.policy(more="registries: {allowed: [elsewhere.example/*]}\n")
    code, told = place.run(*words)
    assert code == 12 and "Take the image from an allowed repository" in told["error"]["hint"]
    assert not place.registry.asked and not (place.folder / "site").exists()


def test_a_report_is_attached_only_with_the_key_of_a_signer_and_to_an_image_of_a_signer(place):
    assert place.attest("stranger")[1]["error"]["code"] == "report-of-another-image", "without a policy, any key may attest"
    place.policy(signer("ours"), signer("theirs"))
    assert place.attest("theirs")[1]["error"]["code"] == "report-of-another-image", "another signer published the image"
    code, told = place.attest("stranger")
    assert (code, told["error"]["code"]) == (12, "unknown-signer")
    place.policy(signer("theirs"))
    code, told = place.attest("theirs")
    assert (code, told["error"]["code"]) == (12, "unknown-signer")
    assert "is not signed with a key that counts" in told["error"]["message"]
    place.policy(more="registries: {allowed: [elsewhere.example/*]}\n")
    code, told = place.attest("ours")
    assert code == 12 and "does not allow the repository" in told["error"]["message"]


def test_hosts_pull_no_image_from_a_registry_that_the_policy_does_not_allow(place):
    words = ("launch", NAME, "--hosts", "a:1,b:1", "--via", "slurm", "--cpu", "--registry", "registry.example/lab/dl")
    place.policy(more="registries: {allowed: ['registry.example/*']}\n")
    assert place.run(*words)[0] == 0
    place.policy(more="registries: {allowed: [elsewhere.example/*]}\n")
    code, told = place.run(*words)
    assert code == 12 and "Launch an image from an allowed repository" in told["error"]["hint"]
