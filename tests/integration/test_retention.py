"""`envbuild registry list` and `prune` with registries that allow deleting manifests, such as Debian's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import composed
import jsonschema
import pytest
from debian_registry import serve_debians
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import Stages, stand_in

from envbuild.cli import frame
from envbuild.compose.outputs import documents, manifest, referrers
from envbuild.compose.outputs.push import Tags, push
from envbuild.compose.store import LayerStore
from envbuild.errors import PublishError
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import retention

SCHEMA = json.loads(resources.files("envbuild.schemas").joinpath("registry.json").read_text())
ONE, TWO = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return stand_in(tmp_path, monkeypatch, {ONE: "first", TWO: "first"})


@pytest.fixture(params=["debian", "with the API"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "debian":
        with serve_debians(tmp_path, deletes=True) as address:
            yield address
    else:
        with serve(Registry(knows_referrers=True, page=2)) as registry:
            yield registry.host


class Lab:
    """Runs commands for one repository."""

    def __init__(self, host: str, folder: Path, stages: Stages, capsys: pytest.CaptureFixture[str]) -> None:
        self.to, self._stages, self._capsys = f"{host}/lab/dl", stages, capsys
        self._key = write_pair(folder)[0]

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = frame.run([*words, "--json"])
        told = json.loads(self._capsys.readouterr().out)
        if words[0] == "registry" and code == 0:
            jsonschema.validate(told, SCHEMA)
        return code, told

    def publish(self, name: str, word: str, *words: str) -> str:
        self._stages.contents[name] = word
        code, told = self.run("publish", name, *words, "--to", self.to, "--key", str(self._key))
        assert code == 0, told
        return str(told["published"]["digest"] if "published" in told else told["environments"][0]["published"]["digest"])

    def there(self) -> set[str]:
        return {each["digest"] for each in self.run("registry", "list", self.to)[1]["images"]}

    def statements(self, digest: str) -> int:
        with referrers.opened(self.to, writes=False) as client:
            return len(referrers.digests(client, digest))


def test_only_what_nothing_needs_is_removed(host, stages, tmp_path, capsys):
    lab = Lab(host, tmp_path, stages, capsys)
    old = lab.publish(ONE, "old")
    released = lab.publish(ONE, "released", "--hold-tags")
    assert lab.publish(ONE, "released", "--release", "r1") == released
    current = lab.publish(ONE, "current")
    other = lab.publish(TWO, "first")
    before = lab.there()
    code, told = lab.run("registry", "prune", lab.to, "--keep", "0")
    assert code == 0 and told["dry_run"] and [each["digest"] for each in told["removed"]] == [old]
    assert lab.there() == before, "without --yes nothing is removed"
    reasons = {each["digest"]: " ".join(each["needed_by"]) for each in told["kept"]}
    assert "release r1" in reasons[released] and f"the tag {ONE}" in reasons[current] and reasons[other]
    assert lab.statements(old) == 6
    code, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
    assert (code, [each["digest"] for each in told["removed"]], lab.there()) == (0, [old], before - {old})
    assert lab.statements(old) == 0 and {lab.statements(each) for each in (released, current, other)} == {6}
    assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[1]["removed"] == []
    assert lab.publish(ONE, "old") == old, "what was removed can be published again"


def test_a_dry_run_shows_exactly_what_is_then_removed(host, stages, tmp_path, capsys):
    """One statement has a tag, so it stays. The list of the old image also names statements of another image."""
    lab = Lab(host, tmp_path, stages, capsys)
    old, needed = lab.publish(ONE, "old"), lab.publish(ONE, "new")
    with referrers.opened(lab.to, writes=True) as client:
        of_old, of_needed = (referrers.digests(client, each) for each in (old, needed))
        tagged = documents.read(client, of_old[0])
        assert tagged is not None
        documents.write(client, tagged, "somebody-keeps-this")
        by_tag = documents.read(client, old.replace(":", "-"))
        if by_tag is not None:  # the registry lacks the API, so anybody may change this list
            documents.write(
                client,
                manifest.index([*documents.parsed(by_tag)["manifests"], {"digest": of_needed[0]}]),
                old.replace(":", "-"),
            )
    shown, removed = (lab.run("registry", "prune", lab.to, "--keep", "0", *more)[1] for more in ((), ("--yes",)))
    assert (shown.pop("dry_run"), removed.pop("dry_run")) == (True, False)
    assert shown == removed and [each["digest"] for each in removed["removed"]] == [old]
    with referrers.opened(lab.to, writes=False) as client:
        gone = {each for each in (old, *of_old, needed, *of_needed) if documents.read(client, each) is None}
    assert gone == {old, *of_old[1:]} and shown["statements"] == len(of_old) - 1


@pytest.mark.parametrize("words", [["list"], ["prune", "--keep", "0"], ["prune", "--keep", "0", "--yes"]])
def test_a_misspelt_repository_is_told(host, capsys, words):
    verb, *options = words
    assert frame.run(["registry", verb, f"{host}/lab/misspelt", *options, "--json"]) == 11
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "not-in-registry" and error["message"] == f"{host} has no repository lab/misspelt."


def test_an_empty_repository_is_there_and_has_no_tags(stages, tmp_path, capsys):
    with serve_debians(tmp_path, deletes=True) as host:
        lab = Lab(host, tmp_path, stages, capsys)
        lab.publish(ONE, "only", "--hold-tags")
        assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[1]["removed"]
        with referrers.opened(lab.to, writes=True, deletes=True) as client:
            for tag in documents.tags(client):
                found = documents.read(client, tag)
                assert found is not None
                documents.delete(client, f"sha256:{found.digest}")
        assert lab.run("registry", "list", lab.to) == (0, {"schema": 1, "repository": lab.to, "images": []})
        assert frame.run(["registry", "list", lab.to]) == 0
        assert capsys.readouterr().out == f"{lab.to} has no tags.\n"


def test_the_newest_stay(host, stages, tmp_path, capsys):
    lab = Lab(host, tmp_path, stages, capsys)
    made = [lab.publish(ONE, f"content {number}", "--hold-tags") for number in range(4)]
    assert {each["digest"] for each in lab.run("registry", "prune", lab.to, "--keep", "4")[1]["removed"]} == set()
    removed = {each["digest"] for each in lab.run("registry", "prune", lab.to, "--keep", "1", "--yes")[1]["removed"]}
    assert len(removed) == 3 and lab.there() == set(made) - removed


def test_documents_of_others_stay(stages, tmp_path, capsys):
    with serve(Registry()) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        listed = lab.publish(ONE, "listed", "--hold-tags")
        fixed = next(name for name in registry.manifests if name.endswith(listed))
        entry = {"digest": listed, "size": len(registry.manifests[fixed]), "mediaType": "x"}
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
        registry.manifests["lab/dl:theirs-00000000-00000000"] = json.dumps(index, separators=(",", ":")).encode()
        registry.manifests["lab/dl:odd"] = b"no json"
        registry.manifests["lab/dl:huge"] = b'{"config": {}, "layers": [{"size": 1%s}, {"size": -1}]}' % (b"0" * 400)
        assert frame.run(["registry", "list", lab.to, "-q"]) == 0 and "huge" in capsys.readouterr().out
        assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[1]["removed"] == []


def test_a_tag_that_is_moved_back_meanwhile_keeps_its_image(stages, tmp_path, capsys, monkeypatch):
    with serve(Registry(knows_referrers=True)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        old = lab.publish(ONE, "old")
        lab.publish(ONE, "new")
        plain = retention._superfluous

        def superfluous(*words: Any) -> Iterator[retention.RegistryDocument]:
            registry.manifests[f"lab/dl:{ONE}"] = registry.manifests[f"lab/dl:{old}"]
            return plain(*words)

        monkeypatch.setattr(retention, "_superfluous", superfluous)
        with pytest.raises(PublishError) as caught:
            retention.prune(lab.to, 0, dry_run=False)
        assert caught.value.code == "tag-moved" and old in lab.there()


def test_a_registry_that_deletes_nothing_is_told(stages, tmp_path, capsys):
    with serve(Registry(knows_referrers=True, deletes=False)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        lab.publish(ONE, "old", "--hold-tags")
        code, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
        assert (code, told["error"]["code"]) == (11, "no-deletion")


def test_after_a_refusal_at_any_request_nothing_that_is_needed_is_gone(stages, tmp_path, capsys):
    with serve(Registry(knows_referrers=False)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        for answers in range(0, 400, 7):
            lab.publish(ONE, f"old {answers}")
            needed = lab.publish(ONE, f"new {answers}")
            registry.answers_left = answers
            code = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[0]
            registry.answers_left = -1
            assert needed in lab.there() and lab.statements(needed) == 6
            assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[0] == 0 and lab.there() == {needed}
            if code == 0:
                break
        else:
            raise AssertionError("it never ends")


def test_pages_of_tags_are_followed(stages, tmp_path, capsys):
    with serve(Registry(knows_referrers=True, page=1)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        lab.publish(ONE, "first")
        with referrers.opened(lab.to, writes=False) as client:
            assert len(documents.tags(client)) == 3


def test_a_list_cannot_take_needed_documents_along(stages, tmp_path, capsys):
    """Whoever may write puts the needed image, its signature and a foreign document into the list of an old image."""
    with serve(Registry(knows_referrers=False)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        old, needed = lab.publish(ONE, "old"), lab.publish(ONE, "new")
        tags = {each: f"lab/dl:{each.replace(':', '-')}" for each in (old, needed)}
        lists = {each: json.loads(registry.manifests[tag]) for each, tag in tags.items()}
        lists[old]["manifests"] += [{"digest": needed}, *lists[needed]["manifests"]]
        registry.manifests[tags[old]] = json.dumps(lists[old], separators=(",", ":")).encode()
        before = set(registry.manifests)
        code, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
        assert (code, [each["digest"] for each in told["removed"]], told["statements"]) == (0, [old], 6)
        assert lab.there() == {needed} and lab.statements(needed) == 6
        assert all(each in registry.manifests for each in before if needed in each)
        assert {f"lab/dl:{each['digest']}" for each in lists[needed]["manifests"]} <= set(registry.manifests)


def test_an_image_under_the_name_of_a_list_stays(stages, tmp_path, capsys):
    with serve(Registry(knows_referrers=True)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        old, needed = lab.publish(ONE, "old"), lab.publish(ONE, "new")
        registry.manifests[f"lab/dl:{old.replace(':', '-')}"] = registry.manifests[f"lab/dl:{needed}"]
        assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[0] == 0
        assert lab.there() == {needed}


@pytest.mark.parametrize("kind", ["alias", "release"])
def test_an_alias_or_a_release_that_is_set_meanwhile_keeps_its_image(stages, tmp_path, capsys, monkeypatch, kind):
    with serve(Registry(knows_referrers=True)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        old, new = lab.publish(ONE, "old"), lab.publish(ONE, "new")
        registry.manifests["lab/dl:opencv-5-cpu"] = registry.manifests[f"lab/dl:{new}"]
        plain, tag = retention._superfluous, "opencv-5-cpu" if kind == "alias" else "release-new"

        def superfluous(*words: Any) -> Iterator[retention.RegistryDocument]:
            registry.manifests[f"lab/dl:{tag}"] = registry.manifests[f"lab/dl:{old}"]
            return plain(*words)

        monkeypatch.setattr(retention, "_superfluous", superfluous)
        with pytest.raises(PublishError, match=tag) as caught:
            retention.prune(lab.to, 0, dry_run=False)
        assert caught.value.code == "tag-moved" and old in lab.there()


def test_tags_of_others_that_look_like_ours_stay(stages, tmp_path, capsys):
    """A nightly image of somebody else, and a tag that begins as those of releases do."""
    with serve(Registry()) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        lab.publish(ONE, "ours")
        store = LayerStore(tmp_path / "theirs")
        for tag in ("nightly-20261101-00000001", "release-1.2"):
            push(composed.image([composed.add(store, tag)]), store, lab.to, Tags(moving=[tag]), ignore_progress)
        code, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
        assert (code, told["removed"], len(lab.there())) == (0, [], 3)


def test_what_a_killed_prune_left_of_the_statements_is_attached_again(stages, tmp_path, capsys):
    """The list still names statements that are gone."""
    with serve(Registry(knows_referrers=False)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        digest = lab.publish(ONE, "first")
        listed = json.loads(registry.manifests[f"lab/dl:{digest.replace(':', '-')}"])["manifests"]
        for each in listed[:2]:
            del registry.manifests[f"lab/dl:{each['digest']}"]
        lab.publish(ONE, "first")
        assert all(f"lab/dl:{each['digest']}" in registry.manifests for each in listed)


def test_a_list_of_tags_without_end_is_not_taken_for_whole(stages, tmp_path, capsys, monkeypatch):
    with serve(Registry(knows_referrers=True, page=1)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        lab.publish(ONE, "first")
        monkeypatch.setattr(documents, "_PAGES", 2)
        code, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
        assert (code, told["error"]["code"]) == (11, "too-long")


@pytest.mark.parametrize(("trouble", "code"), [(PublishError("The registry is gone."), 11), (KeyboardInterrupt(), 130)])
def test_a_prune_that_stops_lists_what_it_removed(stages, tmp_path, capsys, monkeypatch, trouble, code):
    with serve(Registry(knows_referrers=True)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        old = {lab.publish(ONE, f"content {number}", "--hold-tags") for number in range(3)}
        plain, deleted = documents.delete, []

        def delete(client: Any, digest: str) -> bool:
            if digest in old and deleted:
                raise trouble
            deleted.extend({digest} & old)
            return plain(client, digest)

        monkeypatch.setattr(documents, "delete", delete)
        found, told = lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")
        first, second = told["error"]["details"]
        assert found == code and old - lab.there() == set(deleted)
        assert deleted[0] in first and first.endswith("the image and its statements")
        assert second.endswith("some of its statements, but not the image") and any(each in second for each in lab.there())
        monkeypatch.setattr(documents, "delete", plain)
        assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[0] == 0 and not lab.there() & old


def test_a_prune_that_stops_before_the_first_removal_lists_nothing(stages, tmp_path, capsys):
    with serve(Registry(knows_referrers=True, deletes=False)) as registry:
        lab = Lab(registry.host, tmp_path, stages, capsys)
        lab.publish(ONE, "old", "--hold-tags")
        assert lab.run("registry", "prune", lab.to, "--keep", "0", "--yes")[1]["error"]["details"] == []
