"""The judge of the kill tests finds planted faults, and its work does not grow with the number of tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from registry_judge import Judge
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import stand_in

from envbuild.cli import frame

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
PATH = "lab/dl"


class Place:
    """A registry with several releases, and a judge. ``asked`` has the number of the judge's requests after each release."""

    def __init__(self, registry: Registry, asked: list[int]) -> None:
        self.registry, self.asked = registry, asked
        self.judge = Judge(registry.host)

    def tag(self, ending: str) -> str:
        """The oldest tag that never moves (``ending`` is "fixed"), or the canonical name."""
        fixed = [key for key in self.registry.manifests if re.fullmatch(f"{PATH}:{NAME}-[0-9a-f]{{8}}-[0-9a-f]{{8}}", key)]
        return fixed[0] if ending == "fixed" else f"{PATH}:{NAME}"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("released")
    key = write_pair(folder)[0]
    with pytest.MonkeyPatch.context() as patch, serve(Registry()) as registry:
        stages = stand_in(folder, patch, {NAME: "first"})
        found = Place(registry, [])
        for number in range(8):
            stages.contents[NAME] = f"content {number}"
            for words in (["--hold-tags"], ["--release", f"r{number}"]):
                argv = ["publish", NAME, "--to", f"{registry.host}/{PATH}", "--key", str(key), "-q", *words]
                assert frame.run(argv) == 0
            before = found.judge.requests
            found.judge.require_truth()
            found.asked.append(found.judge.requests - before)
        yield found


@pytest.fixture
def place(released: Place) -> Iterator[Place]:
    """The registry, and a judge that has judged it once. The registry is as before after the test."""
    registry = released.registry
    manifests, blobs = dict(registry.manifests), {name: dict(each) for name, each in registry.blobs.items()}
    found = Place(registry, released.asked)
    found.judge.require_truth()
    yield found
    registry.manifests, registry.blobs = manifests, blobs


def test_the_judge_reads_no_more_when_there_are_more_tags(place):
    """The tags that are read again in turn have fewer or more documents, so the numbers differ a little."""
    assert max(place.asked[4:]) < 1.4 * max(place.asked[1:4]), place.asked
    before = place.judge.requests
    place.judge.require_truth(whole=True)
    assert place.judge.requests - before > 2 * place.asked[-1]


def put(place: Place, key: str, content: dict[str, Any]) -> None:
    place.registry.manifests[key] = json.dumps(content).encode()


def unproved(place: Place) -> None:
    told = json.loads(place.registry.manifests[place.tag("moving")])
    put(place, place.tag("moving"), {**told, "annotations": {"made": "by nobody"}})


def lost_statements(place: Place) -> None:
    digest = place.judge.document(NAME)[0]
    put(place, f"{PATH}:{digest.replace(':', '-')}", {"manifests": []})


def lost_layer(place: Place) -> None:
    told = json.loads(place.registry.manifests[place.tag("moving")])
    del place.registry.blobs[PATH][told["layers"][-1]["digest"]]


def lost_tag(place: Place) -> None:
    del place.registry.manifests[place.tag("fixed")]


def lost_list(place: Place) -> None:
    old = place.judge.document(place.tag("fixed").partition(":")[2])[0]
    del place.registry.manifests[f"{PATH}:{old.replace(':', '-')}"]


def unsigned_release(place: Place) -> None:
    digest = place.judge.document("release")[0]
    del place.registry.manifests[f"{PATH}:{digest.replace(':', '-')}"]


@pytest.mark.parametrize("plant", [unproved, lost_statements, lost_layer, lost_tag, lost_list, unsigned_release])
def test_a_fault_that_a_killed_publisher_could_leave_is_found_at_once(place, plant: Callable[[Place], None]):
    plant(place)
    with pytest.raises((AssertionError, KeyError)):
        place.judge.require_truth()


def moved(place: Place) -> None:
    place.registry.manifests[place.tag("fixed")] = place.registry.manifests[place.tag("moving")]


def foreign_statements(place: Place) -> None:
    old = place.judge.document(place.tag("fixed").partition(":")[2])[0]
    new = place.judge.document(NAME)[0]
    lists = place.registry.manifests
    lists[f"{PATH}:{old.replace(':', '-')}"] = lists[f"{PATH}:{new.replace(':', '-')}"]


@pytest.mark.parametrize("plant", [moved, foreign_statements])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in turn"])
def test_a_fault_in_an_old_image_is_found_by_the_whole_judgement_and_in_turn(place, plant, whole):
    plant(place)
    with pytest.raises(AssertionError):
        for _ in range(1 if whole else 8):
            place.judge.require_truth(whole=whole)
