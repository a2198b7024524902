"""Publications to Debian's docker-registry over slow links, and over links that die."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import composed
import pytest
from debian_registry import serve_debians
from killed_commands import publish_words
from registry_judge import KINDS, Judge
from slow_link import Link, slow_link
from stood_in_stages import Stages, stand_in

from envbuild.cli import frame
from envbuild.compose.outputs import bounded_adapter, registry_client, registry_requests
from envbuild.compose.store import LayerStore

LIMITS = [(registry_requests, name) for name in ("_FIRST_SILENCE_S", "_SILENCE_S", "_LAYER_SILENCE_S")]
NAME = "opencv-5.0.0.93-cpu-py311-debian12"


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """Stages whose image has a layer of 10 MB that cannot be compressed: more than the operating system takes at once."""
    stages = stand_in(tmp_path, monkeypatch, {NAME: "large"})
    composed.add(LayerStore(stages.workspace.layers), f"{NAME} large", {"file": os.urandom(10_000_000)})
    return stages


@pytest.fixture
def debians(tmp_path: Path) -> Iterator[str]:
    with serve_debians(tmp_path) as address:
        yield address


def publish(link: Link, folder: Path) -> int:
    return frame.run([*publish_words(link.host, folder, NAME)[:-1], "--progress", "json"])


def test_a_publication_over_a_slow_link_succeeds_and_shows_progress(stages, debians, tmp_path, capfd):
    with slow_link(debians, Link(speed=5e6)) as link:
        began = time.monotonic()
        assert publish(link, tmp_path) == 0
        assert time.monotonic() - began > 1.5
    told = [json.loads(line)["progress"] for line in capfd.readouterr().err.splitlines()]
    sent = [each["done"] for each in told if each["message"].startswith("pushing to") and "done" in each]
    assert len(sent) >= 5 and sent == sorted(sent) and sent[-1] == told[-1]["total"] > 10_000_000
    require_complete(debians)


def require_complete(host: str) -> None:
    judge = Judge(host)
    assert judge.stated(judge.require_truth()[NAME]) >= KINDS


def test_a_pause_in_a_layer_is_no_failure(stages, debians, tmp_path, capfd, monkeypatch):
    """A registry may stop to read while its disk is busy. The time to connect does not limit such a pause."""
    monkeypatch.setattr(registry_client, "_CONNECT_S", 0.3)
    with slow_link(debians, Link(quiet_after=1e6, quiet_s=1)) as link:
        assert publish(link, tmp_path) == 0
    assert "trying again" not in capfd.readouterr().err
    require_complete(debians)


@pytest.mark.parametrize(
    "quiet_after",
    [pytest.param(0, marks=pytest.mark.prove), pytest.param(10_000, marks=pytest.mark.prove), 5_000_000],
    ids=["at once", "soon", "in a layer"],
)
def test_a_registry_that_falls_silent_for_ever_is_one_error(stages, debians, tmp_path, capfd, monkeypatch, quiet_after):
    """The limits are those of the program, divided by 100. So the real program gives up after at most 15 minutes."""
    for module, name in ((registry_client, "_CONNECT_S"), (bounded_adapter, "_WRITE_S"), *LIMITS):
        monkeypatch.setattr(module, name, getattr(module, name) / 100)
    with slow_link(debians, Link(quiet_after=quiet_after)) as link:
        assert publish(link, tmp_path) == 11
    lines = capfd.readouterr().err.splitlines()
    assert sum("trying again" in line for line in lines) <= 2 * 2, "two requests at once, each of them repeated twice"
    ends = [line for line in lines if not line.startswith("{")]
    assert [line.partition(":")[0] for line in ends if line] == ["error", "hint"] and "Traceback" not in lines
    assert f"The registry of {link.host}/lab/dl cannot be reached: timed out." in ends[0]
    assert Judge(debians).tags() == []
