"""A user's own recipe in all stages, with a small package index: when its lock is valid, and what breaks a framework."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import widget_world
from lock_universe import Universe
from widget_world import ANY, MATRIX, NEWER, RECIPE, WIDGET

from envbuild.errors import ConflictError, EnvbuildError, InvalidInputError, UsageError
from envbuild.model.lock import BaseLock
from envbuild.pipeline import adding, committed, locking, new_recipe, rendering, resolving
from envbuild.pipeline.adding import Additions
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

OWN = "schema: 1\nname: lab\nframeworks: [widget-1.2]\npip: [extra]\nservices: [web]\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return widget_world.make_root(tmp_path)


@pytest.fixture
def world() -> Universe:
    return widget_world.make_universe()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "lab" / "envbuild.yaml"
    path.parent.mkdir()
    path.write_text(OWN)
    return path


@pytest.fixture
def tools(root: Path, world: Universe, recipe: Path, monkeypatch: pytest.MonkeyPatch):
    """New tools for the recipe, as in each command."""
    base = BaseLock(image="plain:1", digest="sha256:" + "1" * 64, bootstrap=None)

    def inputs(tools: Tools, environment):
        return replace(real(tools, environment), pin_base=lambda _: base)

    real = locking.lock_inputs
    monkeypatch.setattr(locking, "lock_inputs", inputs)

    def make() -> Tools:
        fresh = Tools(Workspace(root=root, output=root / "images", home=root.parent / "home"))
        fresh.__dict__["index"] = world
        return fresh.at([str(recipe)])

    return make


def lock(tools: Tools, *, relock: bool = False) -> Locked:
    environment = resolving.resolve_buildable(tools, ["x"], Constraints(), anew=relock).environment
    return locking.lock_environment(tools, environment, relock=relock)


def pins(locked: Locked) -> dict[str, str]:
    return {artifact.name: artifact.version for artifact in locked.lock.prefixes[0].artifacts}


def test_its_packages_are_locked_with_the_rest_as_of_the_same_time_beside_the_recipe(tools, recipe: Path) -> None:
    locked = lock(tools())
    assert pins(locked) == {"widget": "1.2.0", "shared": "1.9", "extra": "1.0", "server": "1.0"}
    assert locked.path == recipe.parent / "envbuild.lock.json"
    assert locked.lock.environment.name == "lab"
    assert lock(tools()).kept
    assert locking.require_lock(tools(), "lab").lock == locked.lock


def test_what_may_be_newer_is(tools, recipe: Path) -> None:
    recipe.write_text(f"{OWN}newer: [extra]\n")
    assert pins(lock(tools()))["extra"] == "2.0"


@pytest.mark.parametrize(
    ("asked", "guilty", "rows"),
    [
        ("[extra, 'shared>=2']", "shared>=2", ["envbuild.yaml pip asks for shared>=2", "widget 1.2.0 requires shared<2"]),
        ("[greedy, extra]", "greedy", ["greedy 1.0 requires shared>=2", "widget 1.2.0 requires shared<2"]),
        (
            "['extra>=2']",
            "extra>=2",
            ["envbuild.yaml pip asks for extra>=2", "extra offers 1.0 (1 files were published after the date limit)"],
        ),
    ],
)
def test_what_would_break_a_framework_is_refused_with_the_reason(
    tools, recipe: Path, asked: str, guilty: str, rows: list[str]
) -> None:
    recipe.write_text(OWN.replace("[extra]", asked))
    with pytest.raises(ConflictError) as caught:
        lock(tools())
    assert caught.value.code == "added-package"
    assert caught.value.message == f"{guilty} cannot be installed together with widget 1.2.0."
    assert [row for row in rows if row not in {f"{each.row} {each.reason}" for each in caught.value.conflicts}] == []
    assert ("`newer`" in caught.value.hint) == ("after the date limit" in rows[-1])


def test_what_clashes_only_together_is_named_together(tools, world: Universe, recipe: Path) -> None:
    world.add(f"one-1.0-{ANY}", ("shared<1.5",), day="2018-01-01")
    world.add(f"two-1.0-{ANY}", ("shared>=1.5",), day="2018-01-01")
    world.add(f"shared-1.0-{ANY}", day="2017-01-01")
    recipe.write_text(OWN.replace("[extra]", "[one, two]"))
    with pytest.raises(ConflictError, match="each could be installed alone, but not all of them together"):
        lock(tools())


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("pip: [extra]", "pip: [extra, greedy]", "pip: greedy is requested"),
        ("pip: [extra]", "pip: []", "pip: extra is no longer requested"),
        ("[widget-1.2]", "[widget==1.2.0]", "frameworks: widget==1.2.0 is requested"),
        ("schema: 1", 'schema: 1\npython: "3.6"', "frameworks: --python=3.6 is requested"),
        ("services: [web]", "", "services: they need packages"),
        ("schema: 1", "schema: 1\nnewer: [extra]", "newer: extra is requested"),
    ],
)
def test_a_lock_that_was_made_for_something_else_is_stale(tools, recipe: Path, before: str, after: str, what: str) -> None:
    lock(tools())
    recipe.write_text(OWN.replace(before, after))
    with pytest.raises(InvalidInputError) as caught:
        lock(tools())
    assert (caught.value.code, caught.value.exit_code) == ("stale-lock", 5)
    assert any(what in problem.message for problem in caught.value.problems)
    assert f"envbuild lock {recipe} --relock" in caught.value.hint


def test_a_stale_one_is_made_again_on_request(tools, recipe: Path) -> None:
    lock(tools())
    recipe.write_text(OWN.replace("[extra]", "[]"))
    assert "extra" not in pins(lock(tools(), relock=True))
    assert lock(tools()).kept


def test_what_no_pin_depends_on_is_taken_over_without_an_index(tools, world: Universe, recipe: Path) -> None:
    before = lock(tools())
    world.down.add("default")
    (recipe.parent / "a.py").write_text("")
    recipe.write_text(f"{OWN}ports: [81]\napt: [git]\nfiles: [{{source: a.py, target: /workspace/}}]\nuser: me\n")
    with pytest.raises(InvalidInputError, match="has changed since it was locked"):
        locking.require_lock(tools(), "lab")
    after = lock(tools())
    assert not after.kept
    assert after.lock.prefixes == before.lock.prefixes
    assert after.lock.environment.custom.ports == (81,)
    assert locking.require_lock(tools(), "lab").digest == after.digest


def test_a_newer_release_makes_no_lock_stale_and_is_taken_when_it_is_made_anew(tools, root: Path) -> None:
    lock(tools())
    (root / "widget.yaml").write_text(WIDGET + NEWER)
    kept = lock(tools())
    assert (kept.kept, pins(kept)["widget"]) == (True, "1.2.0")
    assert pins(lock(tools(), relock=True))["widget"] == "1.2.1"


def test_the_lock_of_an_environment_is_not_that_of_a_recipe(tools, recipe: Path) -> None:
    plain = Tools(tools().workspace.beside(recipe))
    plain.__dict__.update(user_recipe=None, index=tools().index)
    locking.lock_environment(plain, resolving.resolve_buildable(plain, ["widget-1.2"], Constraints()).environment)
    with pytest.raises(InvalidInputError) as caught:
        lock(tools())
    assert caught.value.code == "stale-lock"


def test_a_name_that_means_something_is_not_taken(tools, recipe: Path) -> None:
    recipe.write_text(OWN.replace("name: lab", "name: widget-1.2"))
    with pytest.raises(InvalidInputError) as caught:
        resolving.resolve_request(tools(), ["x"], Constraints())
    assert caught.value.code == "taken-name"
    assert "my-widget-1.2" in caught.value.hint


def test_nothing_is_insisted_on_beside_it(tools) -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        resolving.resolve_request(tools(), ["x"], Constraints(python="3.6"))


def test_what_is_written_for_this_machine_is_kept_from_git(tools, recipe: Path) -> None:
    made = tools()
    locked = lock(made)
    made.__dict__["templates"] = {"partials/Dockerfile.j2": "# {{ header[1] | comment }}\n", "services/web.sh": "#!/bin/sh\n",
                                  "services/envbuild-start.sh": "#!/bin/sh\n"}  # fmt: skip
    rendered = rendering.render_environment(made, locked.lock)
    assert rendered.folder == recipe.parent / ".envbuild" / "environments" / "lab"
    assert sorted(rendered.files) == [
        "Dockerfile",
        "envbuild-start",
        "requirements-added.txt",
        "requirements.txt",
        "services/web",
    ]
    assert (recipe.parent / ".envbuild" / ".gitignore").read_text().endswith("\n*\n")
    assert rendering.render_environment(made, locked.lock).kept
    assert committed.check_one(made, "lab") == []
    assert {path.name for path in recipe.parent.iterdir()} == {"envbuild.yaml", "envbuild.lock.json", ".envbuild"}


def test_a_new_one_is_written_once_it_resolves_and_locks(tools, root: Path, tmp_path: Path) -> None:
    from envbuild.custom.writing import Wishes

    nothing = Wishes(name="", frameworks=(), python="", pip=(), apt=(), services=())
    plain = Tools(Workspace(root=root, output=root / "images", home=tmp_path / "home"))
    plain.__dict__["index"] = tools().index
    started = new_recipe.start(plain, tmp_path / "New Lab", nothing, force=False)
    assert started.environment.name == "widget-1.2.0-cpu-py36-plain1"
    assert 'name: "new-lab"' in started.path.read_text()
    with pytest.raises(UsageError) as caught:
        new_recipe.start(plain, tmp_path / "New Lab", nothing, force=False)
    assert caught.value.code == "exists"
    new_recipe.start(plain, tmp_path / "New Lab", nothing, force=True)
    taken = new_recipe.start(plain, tmp_path / "widget", nothing, force=False)
    assert 'name: "my-widget"' in taken.path.read_text()
    with pytest.raises(UsageError, match="--pip: "):
        new_recipe.start(
            plain, tmp_path / "bad", Wishes(name="", frameworks=(), python="", pip=("-e .",), apt=(), services=()), force=False
        )
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("pip", "services", "code", "told"),
    [
        (("shared<1",), (), "added-package", "shared<1 cannot be installed together with widget 1.2.0"),
        (("extra", "shared<1"), ("web",), "added-package", "Versions that would fit: shared=="),
        (("nobody-made-this",), (), "unknown-project", "nobody-made-this"),
    ],
)
def test_a_new_one_whose_packages_do_not_go_together_is_not_written(
    tools, root: Path, tmp_path: Path, pip: tuple[str, ...], services: tuple[str, ...], code: str, told: str
) -> None:
    from envbuild.custom.writing import Wishes

    plain = Tools(Workspace(root=root, output=root / "images", home=tmp_path / "home"))
    plain.__dict__["index"] = tools().index
    wishes = Wishes(name="new", frameworks=("widget-1.2",), python="", pip=pip, apt=(), services=services)
    with pytest.raises(EnvbuildError) as caught:
        new_recipe.start(plain, tmp_path / "new", wishes, force=False)
    assert (caught.value.code, (tmp_path / "new").exists()) == (code, False)
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_a_new_one_is_written_with_a_remark_where_no_index_answers(tools, root: Path, tmp_path: Path) -> None:
    from envbuild.custom.writing import Wishes

    plain = Tools(Workspace(root=root, output=root / "images", home=tmp_path / "home"))
    plain.__dict__["index"] = tools().index
    plain.index.down.add("default")
    wishes = Wishes(name="new", frameworks=("widget-1.2",), python="", pip=("shared<1",), apt=(), services=())
    started = new_recipe.start(plain, tmp_path / "new", wishes, force=False)
    assert started.path.exists() and started.unchecked


def test_it_is_explained_under_its_own_name(tools) -> None:
    told = resolving.explain_request(tools(), ["x"], Constraints()).resolution
    assert told is not None
    assert (told.environment.name, told.environment.custom.pip) == ("lab", ("extra",))


def test_its_folder_is_all_that_is_needed_and_the_working_folder_may_be_it(
    root: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from envbuild.cli.frame import run

    monkeypatch.setenv("ENVBUILD_ROOT", str(root))
    for words, folder in ((["resolve", "--json"], recipe.parent), (["show", str(recipe.parent), "--json"], root)):
        monkeypatch.chdir(folder)
        assert run(words) == 0
        assert '"name": "lab"' in capsys.readouterr().out
    assert run(["make"]) == 2
    assert "envbuild make needs NAME" in capsys.readouterr().err


def test_an_upgrade_says_how_a_command_line_names_it(
    tools, root: Path, recipe: Path, world: Universe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from envbuild.cli.frame import run

    lock(tools())
    world.add(f"extra-1.1-{ANY}", ("shared>=1",), day="2018-01-06")
    monkeypatch.setenv("ENVBUILD_ROOT", str(root))
    monkeypatch.setattr(Tools, "index", world)
    assert run(["lock", str(recipe), "--upgrade", "--package", "extra"]) == 0
    told = capsys.readouterr()
    assert "1.0 → 1.1" in told.out
    assert f"lab: to render, build and prove it again, run `envbuild make {recipe}`." in told.err


def added_names(locked: Locked) -> set[str]:
    return {artifact.name for artifact in locked.lock.prefixes[0].artifacts if artifact.added}


def test_what_the_frameworks_do_not_need_is_installed_above_them(tools) -> None:
    locked = lock(tools())
    assert added_names(locked) == {"extra", "server"}
    rendered = rendering.render_text(real_templates(tools()), locked.lock)
    assert "extra==1.0" in rendered["requirements-added.txt"]
    assert "extra" not in rendered["requirements.txt"]
    stages_in_order = [line.split()[-1] for line in rendered["Dockerfile"].splitlines() if line.startswith("FROM ")]
    assert stages_in_order.index("packages") < stages_in_order.index("added") < stages_in_order.index("image")


def test_the_layers_below_are_those_of_the_frameworks_alone(tools, root: Path) -> None:
    """The text of a stage and the files that it mounts decide its layers."""
    own = real_templates(tools())
    alone = Tools(Workspace(root=root, output=root / "images", home=root.parent / "home"))
    alone.__dict__.update(index=own.index, templates=own.templates)
    plain = locking.lock_environment(alone, resolving.resolve_buildable(alone, ["widget-1.2"], Constraints()).environment)
    with_more, without = rendering.render_text(own, lock(own).lock), rendering.render_text(alone, plain.lock)
    assert with_more["requirements.txt"] == without["requirements.txt"]
    below = without["Dockerfile"].partition("FROM packages AS image")[0].partition("\n\n")[2]
    assert below in with_more["Dockerfile"]


def real_templates(tools: Tools) -> Tools:
    from envbuild import recipes

    checkout = Path(__file__).parents[3]
    shipped = recipes.templates(Workspace(root=checkout, output=checkout, home=checkout))
    tools.__dict__["templates"] = {**shipped, **recipes.templates(tools.workspace)}
    return tools


def test_pins_stay_when_a_package_is_added(tools, recipe: Path, world: Universe) -> None:
    before = lock(tools())
    world.add(f"extra-1.1-{ANY}", ("shared>=1",), day="2018-01-06")
    world.add(f"another-1.0-{ANY}", ("helper",), day="2018-01-06")
    world.add(f"helper-1.0-{ANY}", day="2018-01-06")
    aimed = tools()
    done = adding.add(aimed, str(recipe), adding.sort_words(aimed, ["another"], apt=["git"], newer=False), recipe.parent)
    assert recipe.read_text() == OWN.replace("[extra]", "[extra, another]") + "apt: [git]\n"
    after = locking.require_lock(tools(), "lab")
    assert pins(after) == {**pins(before), "another": "1.0", "helper": "1.0"}
    assert [(change.kind, change.name) for change in done.difference.changes] == [("added", "another"), ("added", "helper")]
    assert not adding.add(tools(), str(recipe), Additions(pip=("another",)), recipe.parent).changed


def test_a_framework_moves_no_date_of_what_is_pinned(tools, root: Path, recipe: Path, world: Universe) -> None:
    later = WIDGET.replace("widget", "gadget").replace("Widget", "Gadget").replace("2018-01-01", "2021-01-01")
    (root / "gadget.yaml").write_text(later)
    (root / "matrix.yaml").write_text(MATRIX.replace("widget.yaml", "widget.yaml, gadget.yaml"))
    (root / "images" / "recipes" / "gadget").mkdir()
    (root / "images" / "recipes" / "gadget" / "recipe.yaml").write_text(RECIPE.replace("widget", "gadget"))
    (root / "images" / "recipes" / "gadget" / "install.j2").write_text("")
    (root / "images" / "recipes" / "gadget" / "smoke.py").write_text("")
    world.add(f"gadget-1.2.0-{ANY}", ("shared",), day="2021-01-01")
    before = lock(tools())
    assert pins(before)["extra"] == "1.0"
    aimed = tools()
    wanted = adding.sort_words(aimed, ["gadget-1.2"], apt=[], newer=False)
    assert wanted.frameworks == ("gadget-1.2",)
    adding.add(aimed, str(recipe), wanted, recipe.parent)
    assert pins(locking.require_lock(tools(), "lab")) == {**pins(before), "gadget": "1.2.0"}  # extra 2.0 is too new


def test_what_cannot_be_added_changes_no_file(tools, recipe: Path) -> None:
    lock(tools())
    before = {path: path.read_bytes() for path in recipe.parent.iterdir() if path.is_file()}
    with pytest.raises(ConflictError, match="greedy cannot be installed together with widget"):
        adding.add(tools(), str(recipe), Additions(pip=("greedy",)), recipe.parent)
    assert {path: path.read_bytes() for path in recipe.parent.iterdir() if path.is_file()} == before


def test_a_request_begins_a_file_whose_pins_are_those_of_its_committed_lock(tools, root: Path, tmp_path: Path) -> None:
    alone = Tools(Workspace(root=root, output=root / "images", home=tmp_path / "home"))
    alone.__dict__["index"] = world = tools().index
    plain = locking.lock_environment(alone, resolving.resolve_buildable(alone, ["widget-1.2"], Constraints()).environment)
    world.add(f"shared-1.9.5-{ANY}", day="2017-02-01")
    folder = tmp_path / "fresh"
    folder.mkdir()
    done = adding.add(alone, "widget-1.2", Additions(pip=("extra",)), folder)
    assert (done.is_new, done.path) == (True, folder / "envbuild.yaml")
    assert {a.name: a.version for a in done.lock.prefixes[0].artifacts} == {**pins(plain), "extra": "1.0"}
    with pytest.raises(UsageError, match="and not for widget") as caught:
        adding.add(alone, "widget-1.3", Additions(pip=("extra",)), folder)
    assert caught.value.code == "exists"


def test_a_project_that_is_a_framework_is_pointed_at(root: Path, tmp_path: Path) -> None:
    (root / "gadget.yaml").write_text(WIDGET.replace("widget", "gadget").replace("Widget", "Gadget"))
    (root / "matrix.yaml").write_text(MATRIX.replace("widget.yaml]", "widget.yaml, gadget.yaml]"))
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "envbuild.yaml").write_text(OWN.replace("pip: [extra]", "pip: [extra, 'Gadget>1', widget]"))
    tools = Tools(Workspace(root=root, output=tmp_path / "out", home=tmp_path / "home")).at([str(folder / "envbuild.yaml")])
    (advice,) = resolving.resolve_request(tools, [], Constraints()).warnings
    assert "`pip: [Gadget]`" in advice and "Name gadget under `frameworks:`" in advice
