"""`envbuild publish --release` and `--rollback`: the tags of a set of images move together or not at all, and can go back."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import requests
from debian_registry import serve_debians
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import Stages, stand_in

from envbuild.attest import keys
from envbuild.cli import frame, publish_release
from envbuild.compose.outputs import digests, documents, referrers
from envbuild.errors import PublishError
from envbuild.pipeline import release_index, releases, retention
from envbuild.pipeline.release_index import ReleasedImage

ONE, TWO = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return stand_in(tmp_path, monkeypatch, {ONE: "first", TWO: "first"})


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_pair(tmp_path)


@pytest.fixture(params=["debian", "with the API", "with an API that lists no annotations"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "debian":
        with serve_debians(tmp_path) as address:
            yield address
    else:
        whole = request.param == "with the API"
        with serve(Registry(knows_referrers=True, lists_annotations=whole)) as registry:
            yield registry.host


class Lab:
    """Publishes to one repository, and reads its tags without envbuild's code."""

    def __init__(self, host: str, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.to, self._key, self._capsys = f"{host}/lab/dl", key, capsys

    def publish(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = frame.run(["publish", *words, "--to", self.to, "--key", str(self._key), "--json"])
        return code, json.loads(self._capsys.readouterr().out)

    def hold(self, *names: str) -> dict[str, str]:
        """Publish the images without their moving tags; return their digests."""
        return {name: self.publish(name, "--hold-tags")[1]["published"]["digest"] for name in names}

    def digest(self, tag: str) -> str:
        host, _, name = self.to.partition("/")
        kinds = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
        answer = requests.head(f"http://{host}/v2/{name}/manifests/{tag}", headers={"Accept": kinds}, timeout=60)
        return answer.headers["Docker-Content-Digest"] if answer.status_code == 200 else ""

    def tags(self) -> dict[str, str]:
        return {name: self.digest(name) for name in (ONE, TWO)}


def test_tags_move_when_the_whole_set_is_there_and_go_back(host, stages, pair, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("envbuild.cli.batch._require_space", lambda *_words, **_named: None)  # it would need an engine
    lab = Lab(host, pair[0], capsys)
    first = lab.hold(ONE, TWO)
    assert lab.tags() == {ONE: "", TWO: ""}, "an image that waits for its release has no moving tag"
    code, told = lab.publish(ONE, TWO, "--release", "2026.10")
    assert (code, lab.tags()) == (0, first) and told["release"]["previous"] == ""
    assert lab.digest("release") == lab.digest("release-2026.10") == told["release"]["digest"]

    stages.contents |= {ONE: "second", TWO: "second"}
    second = lab.hold(ONE)
    page = tmp_path / "junit.xml"  # the other one must be made, and there is no engine
    code, told = lab.publish(ONE, TWO, "--release", "2026.11", "--junit", str(page))
    assert code == 6 and told["error"]["code"] == "release-incomplete" and "1 of 2" in told["error"]["message"]
    assert lab.tags() == first and not lab.digest("release-2026.11")
    cases = [case.get("name") for case in ET.parse(page).iter("testcase") if case.find("failure") is not None]
    assert cases == [TWO, "release"]
    second |= lab.hold(TWO)
    code, told = lab.publish(ONE, TWO, "--release", "2026.11", "--dry-run")
    assert code == 0 and lab.tags() == first and not lab.digest("release-2026.11")
    planned = {each["tag"]: each["after"] for each in told["release"]["moves"]}
    assert {ONE, TWO, "release", "release-2026.11"} <= set(planned) and planned[ONE] == second[ONE]
    code, told = lab.publish(ONE, TWO, "--release", "2026.11")
    assert (code, lab.tags()) == (0, second) and {each["tag"] for each in told["release"]["moves"]} == set(planned)
    assert lab.publish(ONE, TWO, "--release", "2026.11")[1]["release"]["moves"] == []

    code, told = lab.publish("--rollback", "--dry-run")
    assert (code, lab.tags()) == (0, second) and {each["tag"] for each in told["release"]["moves"]} >= {ONE, TWO, "release"}
    code, told = lab.publish("--rollback")
    assert (code, lab.tags(), lab.digest("release")) == (0, first, lab.digest("release-2026.10"))
    code, told = lab.publish("--rollback")
    assert (code, told["error"]["code"]) == (11, "no-release") and lab.tags() == first
    assert lab.publish(ONE, TWO, "--release", "2026.11")[0] == 0 and lab.tags() == second


def test_one_inconclusive_image_keeps_the_tags_of_all(stages, pair, capsys, tmp_path):
    with serve_debians(tmp_path) as host:
        lab = Lab(host, pair[0], capsys)
        first = lab.hold(ONE, TWO)
        assert lab.publish(ONE, TWO, "--release", "2026.10")[0] == 0
        stages.contents |= {ONE: "second", TWO: "second"}
        second = lab.hold(ONE)
        stages.inconclusive.add(TWO)
        code, told = lab.publish(ONE, TWO, "--release", "2026.11")
        assert (code, told["error"]["code"]) == (11, "release-incomplete")
        assert f"1 of 2 images could not be published ({TWO})." in told["error"]["message"]
        assert "--allow inconclusive" in told["error"]["hint"]
        assert lab.tags() == first and not lab.digest("release-2026.11")
        allowed = ("--allow", "inconclusive")
        second |= {TWO: lab.publish(TWO, "--hold-tags", *allowed)[1]["published"]["digest"]}
        assert lab.publish(ONE, TWO, "--release", "2026.11", *allowed)[0] == 0 and lab.tags() == second


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve(Registry(knows_referrers=True)) as served:
        yield served


@pytest.fixture
def lab(registry: Registry, stages: Stages, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(registry.host, pair[0], capsys)


def refusals_until_done(registry: Registry, go: Callable[[], object], look: Callable[[], None], *, step: int) -> int:
    """Call ``go`` until it completes, and return how often it was refused.

    The registry refuses every request from the n-th on; n grows by ``step``. ``look`` checks the registry after each refusal.
    """
    for refusals, answers in enumerate(range(0, 400, step)):
        registry.answers_left = answers
        try:
            go()
        except PublishError:
            pass
        else:
            return refusals
        finally:
            registry.answers_left = -1
        look()
    raise AssertionError("it never completes")


def members(lab: Lab, stages: Stages, word: str) -> list[ReleasedImage]:
    """Publish both images with this content, without their moving tags."""
    stages.contents |= {ONE: word, TWO: word}
    found = []
    for name in (ONE, TWO):
        told = lab.publish(name, "--hold-tags")[1]["published"]
        *moving, fixed = told["tags"]
        found.append(ReleasedImage(name=name, digest=told["digest"], fixed=fixed, tags=tuple(moving)))
    return found


def test_a_release_keeps_its_name_for_its_own_set(lab, stages, pair):
    key = keys.signing_key(pair[0], "")
    first, second = members(lab, stages, "first"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first, key, dry_run=False)
    with pytest.raises(PublishError) as caught:
        releases.publish(lab.to, "one", second, key, dry_run=False)
    assert caught.value.code == "release-taken" and f"differs: {ONE}" in caught.value.details
    releases.publish(lab.to, "two", second, key, dry_run=False)
    with pytest.raises(PublishError) as caught:
        releases.publish(lab.to, "one", first, key, dry_run=False)
    assert caught.value.code == "release-taken" and "rollback" in caught.value.hint
    assert lab.tags() == {each.name: each.digest for each in second}


def test_an_image_without_its_statements_or_with_another_digest_keeps_all_tags(lab, stages, pair, registry, tmp_path):
    key = keys.signing_key(pair[0], "")
    whole = members(lab, stages, "first")
    refused: list[tuple[list[ReleasedImage], keys.SigningKey, str]] = [
        (
            [whole[0], ReleasedImage(name=TWO, digest=whole[0].digest, fixed=whole[1].fixed, tags=(TWO,))],
            key,
            "release-incomplete",
        ),
        ([whole[0], ReleasedImage(name=TWO, digest=whole[1].digest, fixed="gone", tags=(TWO,))], key, "release-incomplete"),
        (whole, keys.signing_key(write_pair(tmp_path, "other")[0], ""), "wrong-signature"),
    ]
    for listed, signer, code in refused:
        with pytest.raises(PublishError) as caught:
            releases.publish(lab.to, "one", listed, signer, dry_run=False)
        assert caught.value.code == code
    registry.knows_referrers = False  # without the API envbuild reads lists under tags, which do not exist here
    with pytest.raises(PublishError) as caught:
        releases.publish(lab.to, "one", whole, key, dry_run=False)
    assert caught.value.code == "release-incomplete" and lab.tags() == {ONE: "", TWO: ""} and not lab.digest("release")


@pytest.mark.parametrize("change", ["publish", "roll back"])
def test_after_a_refusal_at_any_request_the_next_run_completes(lab, stages, pair, registry, change):
    """The registry refuses every request from the n-th on. Each tag then names an image of one of the two releases."""
    key = keys.signing_key(pair[0], "")
    first, second = members(lab, stages, "first"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first, key, dry_run=False)

    def go(is_last: bool) -> None:
        if change == "publish" or is_last:
            releases.publish(lab.to, "two", second, key, dry_run=False)
        else:
            releases.roll_back(lab.to, key.public, dry_run=False)

    if change == "roll back":
        go(is_last=True)
    old, new = ({each.name: each.digest for each in found} for found in (first, second))

    def look() -> None:
        assert all(lab.tags()[name] in (old[name], new[name]) for name in (ONE, TWO))
        if change == "publish" and not lab.digest("release-two"):
            assert lab.tags() == old

    assert refusals_until_done(registry, lambda: go(is_last=False), look, step=5) > 5
    assert lab.tags() == (new if change == "publish" else old)
    assert lab.digest("release") == lab.digest("release-two" if change == "publish" else "release-one")


def test_of_two_who_release_at_once_one_loses_clearly(lab, stages, pair, monkeypatch):
    """The second publisher does all of its work at each write of the first one."""
    key = keys.signing_key(pair[0], "")
    first, second, third = (members(lab, stages, word) for word in ("first", "second", "third"))
    releases.publish(lab.to, "base", first, key, dry_run=False)
    plain = documents.write
    for number in (1, 3, 4, 6):
        writes = iter(range(1, 100))

        def write(*words: Any, number: int = number, writes: Iterator[int] = writes) -> None:
            if next(writes) == number:
                with monkeypatch.context() as undone:
                    undone.setattr(documents, "write", plain)
                    releases.publish(lab.to, f"b{number}", third, key, dry_run=False)
            plain(*words)

        monkeypatch.setattr(documents, "write", write)
        try:
            releases.publish(lab.to, f"a{number}", second, key, dry_run=False)
            lost = ""
        except PublishError as error:
            lost = error.code
        monkeypatch.setattr(documents, "write", plain)
        tags, current = lab.tags(), lab.digest("release")
        if lost:
            assert lost == "release-overtaken", number
            if current == lab.digest(f"b{number}"):
                assert tags[TWO] == {each.name: each.digest for each in third}[TWO]
        else:
            assert current == lab.digest(f"release-a{number}")
            assert tags == {each.name: each.digest for each in second}
        releases.publish(lab.to, f"c{number}", first, key, dry_run=False)
        assert lab.tags() == {each.name: each.digest for each in first}


def test_two_publishers_in_threads_leave_one_whole_release(lab, stages, pair):
    key = keys.signing_key(pair[0], "")
    sets = {word: members(lab, stages, word) for word in ("left", "right")}
    failures: dict[str, str] = {}

    def go(word: str) -> None:
        try:
            releases.publish(lab.to, word, sets[word], key, dry_run=False)
        except PublishError as error:
            failures[word] = error.code

    threads = [threading.Thread(target=go, args=(word,)) for word in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(failures.values()) <= {"release-overtaken"} and len(failures) < 2
    if len(failures) == 1:
        (winner,) = set(sets) - set(failures)
        assert lab.tags() == {each.name: each.digest for each in sets[winner]}
        assert lab.digest("release") == lab.digest(f"release-{winner}")


def test_a_tag_that_somebody_moved_since_stays_when_a_release_is_taken_back(lab, stages, pair):
    key = keys.signing_key(pair[0], "")
    first, second = members(lab, stages, "first"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    stages.contents[ONE] = "third"
    third = lab.publish(ONE)[1]["published"]["digest"]
    change = releases.roll_back(lab.to, key.public, dry_run=False)
    stays = dict(change.stays)
    assert stays == dict.fromkeys(first[0].tags, "it names an image that the release two did not give it")
    assert lab.tags() == {ONE: third, TWO: ""} and lab.digest("release") == lab.digest("release-one")


@pytest.mark.parametrize("deletes", [True, False], ids=["deletes", "cannot delete"])
@pytest.mark.parametrize("kind", ["debian", "with the API"])
def test_a_tag_of_the_newer_release_alone_names_no_image_after_a_rollback(stages, pair, capsys, tmp_path, kind, deletes):
    serving = serve_debians(tmp_path, deletes=deletes) if kind == "debian" else serve(Registry(knows_referrers=True))
    with serving as served:
        if kind != "debian":
            served.deletes = deletes
        lab = Lab(served if kind == "debian" else served.host, pair[0], capsys)
        key = keys.signing_key(pair[0], "")
        first, second = members(lab, stages, "first"), members(lab, stages, "second")
        releases.publish(lab.to, "one", first[:1], key, dry_run=False)
        for _ in range(2):  # the tag can be set and removed again
            releases.publish(lab.to, "two", second, key, dry_run=False)
            assert lab.tags() == {ONE: second[0].digest, TWO: second[1].digest}
            planned = releases.roll_back(lab.to, key.public, dry_run=True)
            assert lab.tags()[TWO] == second[1].digest
            change = releases.roll_back(lab.to, key.public, dry_run=False)
            assert change.moves == planned.moves and (TWO, second[1].digest, "") in [
                (each.tag, each.before, each.after) for each in change.moves
            ]
            assert lab.digest(second[1].fixed) == second[1].digest == lab.digest(second[1].digest), "the image itself stays"
            there = lab.tags()
            assert there[ONE] == first[0].digest and there[TWO] not in {first[1].digest, second[1].digest}
            assert (there[TWO] == "") == deletes == (TWO not in dict(change.stays))
        assert deletes or "it names an empty document, and no image" in dict(change.stays)[TWO]
        code, told = lab.publish("--rollback")
        assert (code, told["error"]["code"]) == (11, "no-release")
        with pytest.raises(PublishError) as absent, referrers.opened(lab.to, writes=False) as client:
            referrers.image(client, TWO)
        assert absent.value.code == "not-in-registry"
        assert frame.run(["pull", TWO, "--from", lab.to, "--tag", TWO, "--to", f"oci:{tmp_path}/out"]) == 11
        assert f"has no image {TWO}" in capsys.readouterr().err


def test_a_rollback_gives_a_tag_back_what_it_named_before_the_release(host, stages, pair, capsys):
    """The tag of the second image was made by a plain `publish`, so the earlier release does not have it."""
    lab, key = Lab(host, pair[0], capsys), keys.signing_key(pair[0], "")
    plain = lab.publish(TWO)[1]["published"]["digest"]
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    assert lab.tags() == {ONE: first[0].digest, TWO: plain}
    for _ in range(2):  # the second time, the release exists already
        change = releases.publish(lab.to, "two", second, key, dry_run=False)
        assert {each.tag: each.digest for each in change.release.members[0].before}[TWO] == plain
        assert lab.tags() == {ONE: second[0].digest, TWO: second[1].digest}
        with referrers.opened(lab.to, writes=False) as client:
            assert release_index.read(client, lab.digest("release")) == change.release
        (kept,) = [each for each in retention.survey(lab.to) if each.digest == plain]
        assert kept.needed_by == ("the rollback of the release two",), "`registry prune` keeps the image"
        planned = releases.roll_back(lab.to, key.public, dry_run=True)
        assert lab.tags()[TWO] == second[1].digest
        change = releases.roll_back(lab.to, key.public, dry_run=False)
        assert change.moves == planned.moves and not change.lost and not change.stays
        assert lab.tags() == {ONE: first[0].digest, TWO: plain}


@pytest.mark.parametrize("ended", ["rolled back", "killed"])
def test_a_release_is_not_taken_up_again_after_a_tag_has_moved(lab, stages, pair, monkeypatch, ended):
    """The release recorded an image of the tag. Then a plain `publish` moved the tag, which a rollback would undo."""
    key = keys.signing_key(pair[0], "")
    lab.publish(TWO)
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)

    def publish(name: str = "two", *, dry_run: bool = False) -> releases.ReleaseChange:
        return releases.publish(lab.to, name, second, key, dry_run=dry_run)

    def stop(*_words: Any) -> None:
        raise KeyboardInterrupt

    if ended == "killed":
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(releases, "_require_current", stop)
            publish()
        assert lab.digest("release-two") and lab.digest("release") == lab.digest("release-one")
    else:
        publish()
        releases.roll_back(lab.to, key.public, dry_run=False)
    stages.contents[TWO] = "mended"
    mended = lab.publish(TWO)[1]["published"]["digest"]
    before = {ONE: first[0].digest, TWO: mended}
    assert lab.tags() == before
    for dry_run in (True, False):
        with pytest.raises(PublishError, match=r"the tag \S+ has named another image since this release") as caught:
            publish(dry_run=dry_run)
        assert caught.value.code == "release-taken" and "another release name" in caught.value.hint
        assert f"and the tag names {mended}" in caught.value.details[-1]
        assert lab.tags() == before and lab.digest("release") == lab.digest("release-one")
    publish("three")
    assert lab.tags()[TWO] == second[1].digest
    assert [each.needed_by for each in retention.survey(lab.to) if each.digest == mended] == [
        ("the rollback of the release three",)
    ]
    releases.roll_back(lab.to, key.public, dry_run=False)
    assert lab.tags() == before


def test_a_release_is_taken_up_again_if_its_tags_have_not_moved_or_name_its_images(lab, stages, pair):
    """The release before has the tags of the first image, so a rollback does not need their record."""
    key = keys.signing_key(pair[0], "")
    lab.publish(TWO)
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    stages.contents[ONE] = "recorded"
    lab.publish(ONE)
    new = {each.name: each.digest for each in second}
    for _ in range(2):  # the second time, the tags of the first image name the image of the release before
        releases.publish(lab.to, "two", second, key, dry_run=False)
        assert lab.tags() == new
        releases.roll_back(lab.to, key.public, dry_run=False)
        assert lab.tags()[ONE] == first[0].digest
    stages.contents[TWO] = "second"
    lab.publish(TWO)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    assert lab.tags() == new


def test_a_release_is_not_taken_up_again_after_a_tag_was_removed(lab, stages, pair, registry):
    key = keys.signing_key(pair[0], "")
    lab.publish(TWO)
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    releases.roll_back(lab.to, key.public, dry_run=False)
    del registry.manifests[f"lab/dl:{TWO}"]
    with pytest.raises(PublishError, match=f"the tag {TWO} was removed since this release was recorded"):
        releases.publish(lab.to, "two", second, key, dry_run=False)
    assert not lab.digest(TWO) and lab.digest("release") == lab.digest("release-one")


def test_a_tag_that_stays_is_not_called_lost(lab, stages, pair, registry):
    """The image that the tag named before is gone. But somebody has moved the tag since, so the rollback does not touch it."""
    key = keys.signing_key(pair[0], "")
    plain = lab.publish(TWO)[1]["published"]["digest"]
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    for name in [name for name in registry.manifests if plain in name]:
        del registry.manifests[name]
    planned = releases.roll_back(lab.to, key.public, dry_run=True)
    assert dict(planned.lost).keys() == {*second[1].tags} and not planned.stays
    would = publish_release.lines(planned, dry_run=True)
    assert [line for line in would if line.startswith(f"  would be lost  {TWO}  ")]
    registry.manifests[f"lab/dl:{TWO}"] = registry.manifests[f"lab/dl:{first[1].digest}"]
    for dry_run in (True, False):
        change = releases.roll_back(lab.to, key.public, dry_run=dry_run)
        assert dict(change.stays).keys() == {TWO} and dict(change.lost).keys() == {*second[1].tags} - {TWO}
    assert lab.digest(TWO) == first[1].digest


@pytest.mark.parametrize("loss", ["image", "statements", "signature"])
def test_a_rollback_restores_no_tag_to_an_image_that_is_gone_or_not_proved(lab, stages, pair, registry, capsys, tmp_path, loss):
    key = keys.signing_key(pair[0], "")
    strange = Lab(registry.host, write_pair(tmp_path, "other")[0], capsys)
    plain = (strange if loss == "signature" else lab).publish(TWO)[1]["published"]["digest"]
    if loss == "statements":
        for name in [name for name, content in registry.manifests.items() if b'"subject"' in content]:
            del registry.manifests[name]
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    if loss == "image":
        for name in [name for name, content in registry.manifests.items() if plain in name]:
            del registry.manifests[name]
    change = releases.roll_back(lab.to, key.public, dry_run=False)
    why = {
        "image": "is no longer in the registry",
        "statements": "has no statement",
        "signature": "is not signed with this key",
    }
    assert set(dict(change.lost)) == set(second[1].tags), "each tag that was lost is named"
    assert f"{plain}, which it named before the release two, {why[loss]}" in dict(change.lost)[TWO]
    assert lab.tags() == {ONE: first[0].digest, TWO: ""}
    told = publish_release.lines(change, dry_run=False)
    assert any(line.startswith(f"  lost  {TWO}  the image {plain}") for line in told)


@pytest.mark.parametrize("change", ["publish", "roll back"])
def test_after_a_refusal_at_any_request_a_rollback_restores_the_tags(lab, stages, pair, registry, change):
    """The registry refuses every request from the n-th on. No tag ever names anything but a proved image."""
    key = keys.signing_key(pair[0], "")
    plain = lab.publish(TWO)[1]["published"]["digest"]
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    names = {ONE: {first[0].digest, second[0].digest}, TWO: {plain, second[1].digest}}

    def publish() -> None:
        releases.publish(lab.to, "two", second, key, dry_run=False)

    def roll_back() -> None:
        releases.roll_back(lab.to, key.public, dry_run=False)

    def look() -> None:
        assert all(lab.digest(name) in known for name, known in names.items())

    if change == "roll back":
        publish()
    assert refusals_until_done(registry, {"publish": publish, "roll back": roll_back}[change], look, step=3) > 5
    if change == "publish":
        roll_back()
    assert lab.tags() == {ONE: first[0].digest, TWO: plain} and lab.digest("release") == lab.digest("release-one")


def test_a_release_of_an_earlier_version_can_be_read_and_is_the_same_document(lab, stages, pair, registry):
    """Earlier versions recorded no earlier images. Such a release can be published again, and taken back."""
    key = keys.signing_key(pair[0], "")
    plain = lab.publish(TWO)[1]["published"]["digest"]
    first, second = members(lab, stages, "other"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first[:1], key, dry_run=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(releases, "_named", lambda _client, _tags: ())
        older = releases.publish(lab.to, "two", second, key, dry_run=False).release
    assert b"tags-before" not in registry.manifests["lab/dl:release-two"]
    again = releases.publish(lab.to, "two", second, key, dry_run=False)
    assert again.release == older and not again.moves
    change = releases.roll_back(lab.to, key.public, dry_run=False)
    assert lab.tags() == {ONE: first[0].digest, TWO: ""} and not change.lost and lab.digest(plain) == plain


def test_a_release_with_an_impossible_earlier_image_is_refused(lab, stages, pair, registry):
    key = keys.signing_key(pair[0], "")
    lab.publish(TWO)
    releases.publish(lab.to, "one", members(lab, stages, "first"), key, dry_run=False)
    text = registry.manifests["lab/dl:release"]
    note = json.loads(text)["manifests"][0]["annotations"]["invalid.envbuild.tags-before"].split()[0].encode()
    for wrong in (b"other@" + note.partition(b"@")[2], note[:-1], note.partition(b"@")[0], b"../x@" + note.partition(b"@")[2]):
        registry.manifests["lab/dl:release"] = text.replace(note, wrong)
        with referrers.opened(lab.to, writes=False) as client, pytest.raises(PublishError) as caught:
            release_index.read(client, "release")
        assert caught.value.code == "unknown-format"


def test_a_release_whose_images_have_other_tags_is_not_said_to_have_other_images(lab, stages, pair):
    key = keys.signing_key(pair[0], "")
    first = members(lab, stages, "first")
    releases.publish(lab.to, "one", first, key, dry_run=False)
    alias = replace(first[0], tags=(*first[0].tags[1:], "opencv-5"))
    with pytest.raises(PublishError, match="it has the same images, but with other tags") as refused:
        releases.publish(lab.to, "one", [alias, first[1]], key, dry_run=False)
    gone = first[0].tags[0]
    assert refused.value.code == "release-taken"
    assert refused.value.details == (f"{first[0].name}: only in the release: {gone}; only here: opencv-5",)
    assert "as for the release" in refused.value.hint and not lab.digest("opencv-5")


def test_a_release_of_a_stranger_is_not_gone_back_to(lab, stages, pair, tmp_path, registry):
    key, other = keys.signing_key(pair[0], ""), keys.public_key(write_pair(tmp_path, "other")[1])
    first, second = members(lab, stages, "first"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first, key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    before = lab.tags()
    with pytest.raises(PublishError) as caught:
        releases.roll_back(lab.to, other, dry_run=False)
    assert caught.value.code == "wrong-signature"
    registry.manifests["lab/dl:release"] = b'{"manifests": []}'
    for call in (lambda: releases.roll_back(lab.to, key.public, dry_run=False),):
        with pytest.raises(PublishError) as caught:
            call()
        assert caught.value.code == "unsigned"
    assert lab.tags() == before


def test_a_release_whose_older_images_are_gone_is_not_taken_back(lab, stages, pair, registry):
    key = keys.signing_key(pair[0], "")
    first, second = members(lab, stages, "first"), members(lab, stages, "second")
    releases.publish(lab.to, "one", first, key, dry_run=False)
    releases.publish(lab.to, "two", second, key, dry_run=False)
    for name in [name for name in registry.manifests if first[1].digest in name]:
        del registry.manifests[name]
    with pytest.raises(PublishError) as caught:
        releases.roll_back(lab.to, key.public, dry_run=False)
    assert caught.value.code == "release-incomplete" and lab.tags() == {each.name: each.digest for each in second}


@pytest.mark.parametrize("words", [(ONE, "--rollback"), ("--rollback", "--release", "x"), ("--all", "--rollback")])
def test_a_rollback_takes_no_names(lab, words):
    code, told = lab.publish(*words)
    assert (code, told["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize(
    "words",
    [
        ("--junit", "x.xml"),
        ("--allow", "inconclusive"),
        ("--jobs", "1"),
        ("--hold-tags",),
        ("--driver", "384"),
        ("--keep-going",),
    ],
)
def test_a_rollback_ignores_no_option_silently(lab, registry, words):
    registry.asked.clear()
    code, told = lab.publish("--rollback", *words)
    assert (code, told["error"]["code"]) == (2, "usage") and words[0] in told["error"]["message"]
    assert not registry.asked


def test_a_name_that_no_tag_can_hold_is_refused_before_anything_is_made(lab, registry):
    for name in ("", "a b", "../x", "-", "x" * 65):
        code, told = lab.publish(ONE, f"--release={name}")
        assert (code, told["error"]["code"]) == (2, "usage") and not registry.asked


def test_the_publisher_who_is_overtaken_by_another_image_is_told(lab, stages, registry, monkeypatch):
    """Two publish the same name. A moving tag that the other one has moved meanwhile is not silently moved back."""
    lab.publish(ONE)
    stages.contents[ONE] = "mine"
    plain, theirs = referrers.attach, lab.digest(ONE)

    def attach(client: Any, subject: Any, artifacts: Any) -> list[str]:
        found = plain(client, subject, artifacts)
        with contextlib.suppress(StopIteration):
            next(once)()
        return found

    def move() -> None:
        nonlocal theirs
        theirs = members(lab, stages, "theirs")[0].digest
        stages.contents[ONE] = "mine"
        registry.manifests[f"lab/dl:{ONE}"] = registry.manifests[f"lab/dl:{theirs}"]

    once: Iterator[Callable[[], None]] = iter([move])
    monkeypatch.setattr(referrers, "attach", attach)
    code = frame.run(["publish", ONE, "--to", lab.to, "--key", str(lab._key), "-q"])
    assert code == 11 and lab.digest(ONE) == theirs
    assert lab.publish(ONE)[0] == 0 and lab.digest(ONE) != theirs


def test_no_tag_of_a_release_is_an_environments(lab, stages, pair):
    first = members(lab, stages, "first")
    odd = ReleasedImage(name=ONE, digest=first[0].digest, fixed=first[0].fixed, tags=("release",))
    with pytest.raises(Exception, match="reserved for releases"):
        releases.publish(lab.to, "one", [odd], keys.signing_key(pair[0], ""), dry_run=False)
    with referrers.opened(lab.to, writes=False) as client:
        assert digests.of_tag(client, "release") == "" and [*release_index.recorded(client)] == []
