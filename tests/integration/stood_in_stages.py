"""Stand-ins for the stages of `make`: they give real environments images of a few bytes, and prove these at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import composed
import pytest
from program import ROOT, share_matrix

from envbuild import codec, files
from envbuild.build import BaseRecord, BuildRecord
from envbuild.compose import engine_image
from envbuild.compose.store import LayerStore
from envbuild.pipeline import make, stage_cache, unchanged
from envbuild.pipeline.image_checks import Smoked
from envbuild.pipeline.stored_locks import read_lock
from envbuild.workspace import Workspace

REPORT = {"schema": "envbuild-smoke/1", "host": {"name": "machine"}, "mode": {"device": "cpu", "gpu_image": False}}


class Verified:
    """The answer of the stand-in for `verify`."""

    report: Mapping[str, Any] = {"problems": [], "counts": {"files": 3}, "seconds": 1.5, "notes": []}


class Stages:
    """``contents`` has a word for each environment. Another word makes another image.

    ``inputs`` may have the digest of all inputs of an environment's image. Otherwise the digest is made from the word. The
    smoke tests of the environments in ``inconclusive`` are inconclusive.
    """

    def __init__(self, home: Path, contents: dict[str, str]) -> None:
        self.workspace = Workspace(root=ROOT, output=ROOT / "images", home=home)
        self.contents = contents
        self.inputs: dict[str, str] = {}
        self.inconclusive: set[str] = set()

    def made(self, _tools: object, texts: Sequence[str], *_arguments: object, **_named: object) -> make.Made:
        """Return the result of `make` for one name."""
        (name,), space = texts, self.workspace
        store, word = LayerStore(space.layers), self.contents[name]
        layers = [composed.add(store, "base"), composed.add(store, f"{name} {word}")]
        lock, digest = read_lock(space.lock_file(name)), files.sha256_of(space.lock_file(name))
        image = composed.image(layers, Labels={"org.envbuild.name": name, "org.envbuild.lock": digest})
        engine_image.remember(space.composed_images, image, composed.id_of(image))
        inputs = self.inputs.get(name) or hashlib.sha256(word.encode()).hexdigest()
        record = BuildRecord(
            name=name, lock=digest, inputs=inputs, image=composed.id_of(image),
            tags=(f"envbuild:{name}", f"envbuild:{name}-{digest[:8]}", f"envbuild:{name}-{digest[:8]}-{inputs[:8]}"),
            base=BaseRecord(reference="b", image="sha256:b", how="pulled", digest="", notes=()), engine="engine",
            built_at="2026-11-23T10:00:00+00:00", seconds=1.0, steps=2, cached=0, size=1, kept=False, builder="compose",
            rendering="c" * 64, guest="d" * 64,
        )  # fmt: skip
        files.write_atomic(space.build_record(name), codec.dumps(record))
        packages = {"packages": [["bash", "5.2.15-2+b13", "amd64"]]}
        stage_cache.keep(space, name, "packages", {"image": record.image, "lock": digest}, packages)
        licences = {"image": record.image, "lock": digest, "packages": [], "unknown": 0}
        stage_cache.keep(space, name, "licences", {"image": record.image, "lock": digest, "form": 2}, licences)
        origin = {"commit": "1" * 40, "is_modified": False, "version": "1", "engine": ""}
        key = {"image": record.image, "inputs": inputs, "form": 2}
        stage_cache.keep(space, name, "origin", key, origin)
        smoked = Smoked(status="pass", exit_code=0, sentence="", hint="", report=REPORT, paths={}, replayed=True)
        if name in self.inconclusive:
            smoked = replace(smoked, status="inconclusive", exit_code=10, sentence="There is no GPU.")
        return make.Made(
            environment=lock.environment, lock=lock, digest=digest, engine="e", smoked=smoked, record=record,
            stages=(make.StageNote(stage="smoke", outcome="replayed", detail="", seconds=0.0),), seconds=0.0,
        )  # fmt: skip


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, contents: dict[str, str]) -> Stages:
    """Replace `make` and `verify` in this process until the test ends."""
    values = {"ENVBUILD_HOME": folder / "home", "ENVBUILD_ROOT": ROOT, "DOCKER_CONFIG": folder, "NO_PROXY": "127.0.0.1"}
    for name, value in {**values, "DOCKER_HOST": "unix:///nowhere.sock"}.items():
        monkeypatch.setenv(name, str(value))
    share_matrix(folder / "home")
    stages = Stages(folder / "home", contents)
    monkeypatch.setattr(make, "make", stages.made)
    monkeypatch.setattr(unchanged, "view", lambda tools: tools)
    monkeypatch.setattr("envbuild.pipeline.image_checks.verify_image", lambda *_a, **_k: Verified)
    return stages


Answer = tuple[int, dict[str, Any]]
Publish = Callable[..., Answer]
