"""The places where facts are found, and the places where files may be written."""

import pytest

from envbuild import workspace
from envbuild.errors import UsageError


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("ENVBUILD_ROOT", raising=False)
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    root = tmp_path / "checkout"
    (root / "images" / "recipes").mkdir(parents=True)
    (root / "matrix.yaml").write_text("schema: 1\n")
    return root


def test_found_upward_from_here(checkout, monkeypatch):
    deep = checkout / "images" / "recipes"
    monkeypatch.chdir(deep)
    found = workspace.find()
    assert found.root == checkout
    assert found.environments == checkout / "images" / "environments"


def test_the_flag_wins_over_the_variable_and_here(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVBUILD_ROOT", str(tmp_path / "elsewhere"))
    assert workspace.find(str(checkout)).root == checkout


def test_a_named_root_without_a_matrix_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVBUILD_ROOT", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        workspace.find()
    assert caught.value.code == "no-matrix"


def test_outside_a_checkout_the_package_serves(tmp_path, monkeypatch):
    monkeypatch.delenv("ENVBUILD_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert workspace.find().matrix.is_file()


@pytest.mark.parametrize(
    ("text", "can"),
    [("ex-1.2+b-3-cuda9.0-py35-os1-my_python-3.6", True), ("a" * 200, True), ("a" * 201, False), ("", False)]
    + [(text, False) for text in ("..", "a/b", "a>=1", "a b", "a\n", "-a")],
)
def test_only_what_can_be_a_name_is_looked_for(text, can):
    assert workspace.can_be_name(text) is can


def test_a_lock_of_ours_wins_over_the_shipped_one(checkout, tmp_path, monkeypatch):
    shipped = checkout / "images" / "environments" / "x"
    shipped.mkdir(parents=True)
    (shipped / "lock.json").write_text("{}")
    monkeypatch.setattr(workspace.os, "access", lambda *_: False)  # a read-only root
    found = workspace.find(str(checkout))
    assert found.environments == tmp_path / "home" / "images" / "environments"
    assert found.lock_file("x") == shipped / "lock.json"
    found.environment("x").mkdir(parents=True)
    (found.environment("x") / "lock.json").write_text("{}")
    assert found.lock_file("x") == found.environment("x") / "lock.json"
