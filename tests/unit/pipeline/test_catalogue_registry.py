"""What the catalogue tells of an image in a registry."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.catalogue import model
from envbuild.compose.outputs import referrers
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.registry_errors import Repository
from envbuild.errors import PublishError
from envbuild.pipeline import catalogue_registry, image_labels

LOCK = "a" * 64
OWN = {image_labels.NAME: "a-1+b-2", image_labels.LOCK: LOCK}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A registry: tag → manifest."""
    held: dict[str, bytes] = {}

    def image(_client: object, tag: str) -> Document:
        if tag not in held:
            raise PublishError("It has none.", code="not-in-registry")
        return Document(content=held[tag], media_type="", digest="1" * 64)

    @contextlib.contextmanager
    def opened(_source: str, *, writes: bool) -> Iterator[object]:
        assert not writes
        yield SimpleNamespace(repository="h.example/r")

    locked = SimpleNamespace(digest=LOCK, lock=SimpleNamespace(environment=SimpleNamespace(name="a-1+b-2")))
    monkeypatch.setattr(catalogue_registry, "read_locked", lambda _tools, _name: locked)
    monkeypatch.setattr(image_labels, "of_manifest", lambda _client, value: value.get("labels", OWN))
    monkeypatch.setattr(referrers, "image", image)
    monkeypatch.setattr(referrers, "opened", opened)
    return held


def published(name: str = "a-1+b-2", heard: list[Any] | None = None) -> model.PublishedImage | None:
    tools: Any = SimpleNamespace(on_progress=(heard if heard is not None else []).append, policy=None)
    fields: dict[str, Any] = dict.fromkeys(model.CatalogueEntry.__dataclass_fields__)
    entry = model.CatalogueEntry(**{**fields, "name": name, "lock": model.LockEntry(sha256=LOCK, missing=(), parts=())})
    (found,) = catalogue_registry.published(tools, [entry], "h.example/r", ())
    return found.published


def test_only_the_image_of_this_lock_is_shown(asked):
    asked["a-1_b-2"] = b"{}"  # of another lock: the page says nothing of it
    assert published() is None
    asked[f"a-1_b-2-{LOCK[:8]}"] = json.dumps({"layers": [{"digest": "sha256:2", "size": 5}]}).encode()
    found = published()
    assert found is not None and found.reference == f"h.example/r:a-1_b-2-{LOCK[:8]}" and found.size == 5


@pytest.mark.parametrize("other", [{image_labels.NAME: "a-1"}, {image_labels.LOCK: "b" * 64}])
def test_an_image_with_other_labels_is_not_shown_and_a_warning_says_so(asked, other):
    asked[f"a-1_b-2-{LOCK[:8]}"] = json.dumps({"layers": [], "labels": {**OWN, **other}}).encode()
    heard: list[Any] = []
    assert published(heard=heard) is None
    assert ["is not shown" in each.message for each in heard if each.warning] == [True]


@pytest.mark.parametrize("size", ["Infinity", "NaN", "1e400", "-1", "true", '"5"', "1" + "0" * 400, "1" + "0" * 5000, "null"])
def test_a_size_that_is_none_is_not_known(asked, size):
    asked[f"a-1_b-2-{LOCK[:8]}"] = f'{{"layers": [{{"digest": "sha256:2", "size": {size}}}]}}'.encode()
    found = published()
    assert found is not None and found.layers == ()


@pytest.mark.parametrize(
    ("status", "content", "code"),
    [
        (404, b"{}", "not-in-registry"),
        (200, b"<html>", "unknown-format"),
        (200, b"[]", "unknown-format"),
        (200, b"{}", "unknown-format"),
    ],
)
def test_what_is_no_registry_or_has_no_such_repository_is_refused(monkeypatch, status, content, code):
    client = SimpleNamespace(
        repository=Repository(host="h.example", name="r"),
        url=lambda path: path,
        ask=lambda *_words: SimpleNamespace(status_code=status, content=content, headers={}),
    )
    monkeypatch.setattr(referrers, "opened", lambda *_words, **_named: contextlib.nullcontext(client))
    with pytest.raises(PublishError) as caught:
        catalogue_registry.require_repository("h.example/r")
    assert caught.value.code == code
    client.ask = lambda *_words: SimpleNamespace(status_code=200, content=b'{"name": "r", "tags": null}', headers={})
    catalogue_registry.require_repository("h.example/r")
