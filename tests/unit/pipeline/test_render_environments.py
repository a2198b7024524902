"""A rendering is made again exactly when one of its inputs has changed. If nothing has changed, no file is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import widget_world

from envbuild import disk_cache
from envbuild.cli import frame
from envbuild.errors import EnvbuildError, InvalidInputError, UnknownNameError
from envbuild.model.lock import BaseLock
from envbuild.model.resolution import Resolution
from envbuild.pipeline import locking, render_environments, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.render_environments import Rendering
from envbuild.pipeline.resolving import resolve_request
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "widget-1.2.0-cpu-py36-plain1"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tools]:
    """New tools for a locked environment, as in each run."""
    root = widget_world.make_root(tmp_path)
    workspace = Workspace(root=root, output=root / "images", home=tmp_path / "home")
    base = BaseLock(image="plain:1", digest="sha256:" + "1" * 64, bootstrap=None)
    real = locking.lock_inputs
    monkeypatch.setattr(locking, "lock_inputs", lambda *each: replace(real(*each), pin_base=lambda _: base))
    monkeypatch.setattr(disk_cache, "SETTLED_NS", 0)  # files count as unchanged without waiting

    def make(*overlays: Path) -> Tools:
        fresh = Tools(replace(workspace, overlays=overlays))
        fresh.__dict__["index"] = widget_world.make_universe()
        return fresh

    first = make()
    locking.lock_environment(first, resolve_request(first, [NAME], Constraints()).environment)
    return make


def rendered(tools: Tools, text: str = NAME) -> Rendering:
    (found,) = render_environments.render(tools, [text], Constraints())
    return found


@pytest.fixture
def checks(tools: Callable[..., Tools], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The environments whose locks were checked since the first rendering."""
    assert not rendered(tools()).kept
    assert rendered(tools()).kept  # the first rendering wrote evidence; after the second one nothing is new
    found: list[str] = []
    real = locking.require_lock

    def require(these: Tools, name: str):
        found.append(name)
        return real(these, name)

    monkeypatch.setattr(locking, "require_lock", require)
    return found


def test_nothing_is_checked_where_nothing_changed(tools, checks):
    first = rendered(tools())
    assert first.kept and first.folder.name == NAME and "Dockerfile" in first.files
    assert list(render_environments.render(tools(), [], Constraints())) == [first]
    assert checks == []


@pytest.fixture
def resolved(tools: Callable[..., Tools], checks: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that were resolved since the first rendering of ``widget-1.2``."""
    rendered(tools(), "widget-1.2")
    found: list[str] = []
    real = resolving.resolve_buildable

    def resolve(these: Tools, texts: list[str], *others: Any) -> Resolution:
        found.extend(texts)
        return real(these, texts, *others)

    monkeypatch.setattr(resolving, "resolve_buildable", resolve)
    return found


def test_what_a_request_means_is_remembered_until_a_fact_changes(tools, resolved):
    assert rendered(tools(), "widget-1.2").name == NAME
    assert resolved == []
    _rewritten(tools().workspace.root / "widget.yaml")
    rendered(tools())  # this stores the environment by its name again, but not the request
    assert rendered(tools(), "widget-1.2").name == NAME
    assert resolved == [NAME, "widget-1.2"]


def test_a_request_is_resolved_again_once_an_environment_has_its_name(tools, resolved):
    lock = tools().workspace.lock_file("widget-1.2")
    lock.parent.mkdir()
    lock.write_text("{}")
    with pytest.raises(InvalidInputError, match="does not have the structure of a lock"):
        rendered(tools(), "widget-1.2")


def test_options_are_never_taken_for_the_request_alone(tools, resolved):
    list(render_environments.render(tools(), ["widget-1.2"], Constraints(python="3.6")))
    assert resolved == ["widget-1.2"]


def _rewritten(path: Path) -> None:
    """Change one byte, but neither the size nor the modification time."""
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + (b" " if content[-1:] != b" " else b"\n"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "changed",
    [
        "systems.yaml",  # an included file outside of matrix/
        "matrix.yaml",
        "images/recipes/widget/recipe.yaml",
        "images/recipes/widget/install.j2",
        "images/partials/Dockerfile.j2",
        f"images/environments/{NAME}/lock.json",
        f"images/environments/{NAME}/Dockerfile",
    ],
)
def test_a_change_of_one_byte_under_the_same_size_and_time_is_seen(tools, checks, changed):
    _rewritten(tools().workspace.root / changed)
    with contextlib.suppress(InvalidInputError):  # a lock with a changed byte is refused
        rendered(tools())
    assert checks == [NAME]


def test_a_dockerfile_that_was_edited_is_written_again(tools, checks):
    path = tools().workspace.rendering(NAME) / "Dockerfile"
    before = path.read_bytes()
    path.write_text("FROM elsewhere\n")
    assert not rendered(tools()).kept
    assert path.read_bytes() == before


def test_a_lock_that_the_matrix_no_longer_accepts_is_refused(tools, checks):
    facts = tools().workspace.root / "widget.yaml"
    facts.write_text(facts.read_text().replace("1.2.0", "1.2.9"))
    with pytest.raises(InvalidInputError) as refused:
        rendered(tools())
    assert refused.value.code == "stale-lock"


def test_a_removed_proof_is_noted_again(tools, checks):
    proof = tools().workspace.evidence_file(NAME)
    proof.unlink()
    assert rendered(tools()).kept
    assert proof.is_file()


def test_an_overlay_counts_as_a_change_and_so_does_its_absence(tools, checks, tmp_path):
    overlay = tmp_path / "more.yaml"
    overlay.write_text('schema: 1\ndefaults: {source: "https://example.org/more", checked: "2026-01-01"}\n')
    for these in (tools(overlay), tools()):
        rendered(these)
        assert checks.pop() == NAME
    assert checks == []


def test_what_was_changed_a_moment_ago_is_not_trusted(tools, checks, monkeypatch):
    monkeypatch.setattr(disk_cache, "SETTLED_NS", 3600 * 10**9)
    _rewritten(tools().workspace.root / "images/recipes/widget/install.j2")
    for _ in range(2):
        rendered(tools())
        assert checks.pop() == NAME


@pytest.mark.parametrize("text", ["../up", "cuda>=9", "no-such", "", "."])
def test_any_other_text_is_resolved(tools, text):
    with pytest.raises(EnvbuildError):
        rendered(tools(), text)


def test_no_rendering_is_written_where_one_of_the_names_is_unknown(tools):
    with pytest.raises(UnknownNameError):
        list(render_environments.render(tools(), [NAME, "no-such"], Constraints()))
    assert not (tools().workspace.rendering(NAME) / "Dockerfile").exists()


def test_quiet_prints_nothing(tools, checks, monkeypatch, capsys):
    monkeypatch.setenv("ENVBUILD_ROOT", str(tools().workspace.root))
    monkeypatch.setenv("ENVBUILD_HOME", str(tools().workspace.home))
    assert frame.run(["render", NAME]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{NAME} (kept)"
    assert frame.run(["render", "--all", "-q"]) == 0
    assert capsys.readouterr().out == ""
