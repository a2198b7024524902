"""What changed since the last release, by the releases and the bills of materials in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import stand_in

from envbuild.attest import keys
from envbuild.attest.keys import PublicKey
from envbuild.catalogue.model import Catalogue
from envbuild.cli import frame
from envbuild.pipeline import catalogue_entries, catalogue_registry, catalogue_release, make, stage_cache
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ONE, OTHER = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"


class Site:
    """A registry, and the part of a catalogue that shows its images."""

    def __init__(self, registry: Registry, folder: Path, workspace: Workspace) -> None:
        self.to, self.folder = f"{registry.host}/lab/dl", folder
        self.warnings: list[str] = []
        self.tools = Tools(workspace, on_progress=lambda news: news.warning and self.warnings.append(news.message))

    def publish(self, release: str, *names: str) -> None:
        to = ("--to", self.to, "--key", f"{self.folder}/cosign.key", "-q")
        for name in names:
            assert frame.run(["publish", name, *to, "--hold-tags"]) == 0
        assert frame.run(["publish", *names, *to, "--release", release]) == 0

    def catalogue(self, trusted: Sequence[PublicKey] = ()) -> Catalogue:
        entries = []
        for name in (ONE, OTHER):
            locked = read_locked(self.tools, name)
            assert locked is not None
            entries.append(catalogue_entries.entry_of(self.tools, locked, "", with_machine=False))
        shown = tuple(catalogue_registry.published(self.tools, entries, self.to, trusted))
        whole = Catalogue(
            schema=1, made_by="a test", title="A test", updated="", matrix="", since="", words={}, entries=shown, rows=()
        )
        return catalogue_release.with_changes(self.tools, whole, self.to, trusted)


@pytest.fixture(autouse=True)
def _space(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question for free space would need an engine."""
    monkeypatch.setattr("envbuild.cli.batch._require_space", lambda *_words, **_named: None)


def test_the_changes_since_the_last_release(tmp_path, monkeypatch):
    stages = stand_in(tmp_path, monkeypatch, {ONE: "first", OTHER: "first"})
    public = keys.public_key(write_pair(tmp_path)[1])
    stranger = keys.public_key(write_pair(tmp_path, "other")[1])
    with serve(Registry(knows_referrers=True)) as registry:
        site = Site(registry, tmp_path, stages.workspace)
        assert {each.changes for each in site.catalogue().entries} == {None}, "there is no release"
        site.publish("r1", ONE, OTHER)
        first = site.catalogue()
        assert first.since == f"the release r1 in {site.to}"
        assert [each.changes for each in first.entries] == [(), ()], "there is no release before it"

        def newer(*arguments: Any, **named: Any) -> make.Made:
            made = stages.made(*arguments, **named)
            packages = {"packages": [["bash", "6", "amd64"], ["dash", "1", "amd64"]]}
            about = {"image": made.record.image, "lock": made.digest}
            stage_cache.keep(stages.workspace, made.environment.name, "packages", about, packages)
            return made

        stages.contents[ONE] = "second"
        monkeypatch.setattr(make, "make", newer)
        site.publish("r2", ONE)
        for trusted in ((), (public,)):
            found = site.catalogue(trusted)
            assert found.since == f"the release r1 in {site.to}", "the catalogue shows the images of r2"
            (one, other) = found.entries
            assert first.entries[0].published and one.published
            assert one.changes == (
                f"another image is published: {first.entries[0].published.digest} → {one.published.digest}",
                "Debian packages: bash 5.2.15-2+b13 → 6",
                "Debian packages: dash 1 added",
            )
            assert other.changes == () and found.gone == () and not site.warnings
        refused = site.catalogue((stranger,))
        assert {each.changes for each in refused.entries} == {None}
        assert len(site.warnings) == 1 and "the changes since the release r1 are not shown" in site.warnings[0]


def test_what_a_release_has_and_the_registry_lacks(tmp_path, monkeypatch):
    """The current release is compared if the catalogue does not show exactly its images."""
    stages = stand_in(tmp_path, monkeypatch, {ONE: "first", OTHER: "first"})
    write_pair(tmp_path)
    with serve(Registry(knows_referrers=True)) as registry:
        site = Site(registry, tmp_path, stages.workspace)
        site.publish("r1", OTHER)
        site.publish("r2", ONE)
        for tag in [each for each in registry.manifests if f":{ONE}" in each]:
            del registry.manifests[tag]
        found = site.catalogue()
        assert found.since == f"the release r2 in {site.to}"
        (one, other) = found.entries
        assert one.changes and one.changes[0].startswith("the registry has no image of this lock; the release has sha256:")
        assert other.changes == ("new: the release has no image of this environment",)


def test_damaged_bills_of_materials_are_left_out(tmp_path, monkeypatch):
    stages = stand_in(tmp_path, monkeypatch, {ONE: "first"})
    write_pair(tmp_path)
    with serve(Registry()) as registry:
        site = Site(registry, tmp_path, stages.workspace)
        site.publish("r1", ONE)
        stages.contents[ONE] = "second"
        site.publish("r2", ONE)
        for damage in (b"", b"{}", b'{"dsseEnvelope": {"payload": "!"}}'):
            monkeypatch.setattr("envbuild.compose.outputs.referrers.read_with", lambda *_a, _found=damage, **_k: iter([_found]))
            assert [len(each.changes or ()) for each in site.catalogue().entries] == [1, 1]
