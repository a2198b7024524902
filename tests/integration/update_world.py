"""A git checkout whose framework and add-on are published together, and an index that tests can let lie."""

from __future__ import annotations

from pathlib import Path

import widget_world
from lock_universe import Universe
from plan_world import commit, git
from widget_world import ANY

from envbuild.workspace import Workspace

DAYS = {"1.2.0": "2018-01-01", "1.3.0": "2018-03-01", "1.4.0": "2018-05-01", "1.5.0": "2018-07-01"}
LENS = {"0.2.0": "1.2.0", "0.3.0": "1.3.0", "0.4.0": "1.4.0", "0.5.0": "1.5.0"}
NEW = "1.5.0"


def widget_rows() -> str:
    rows = [f'      - {{version: "{version}", released: "{DAYS[version]}"}}\n' for version in reversed(DAYS) if version != NEW]
    return widget_world.WIDGET.partition("      - {")[0] + "".join(rows)


def lens_rows() -> str:
    rows = [
        f'      - {{version: "{version}", released: "{DAYS[base]}", upon: {{widget: "{base}"}}}}\n'
        for version, base in reversed(LENS.items())
        if base != NEW
    ]
    return (
        'defaults: {source: "https://example.org/lens", checked: "2026-01-01"}\n'
        "framework: {name: lens, title: Lens, short: lens, aliases: [lens], recipe: lens}\n"
        'left_out:\n  - {releases: [prereleases], note: "not a release"}\n'
        'series:\n  - series: "0"\n    package: lens\n    releases:\n' + "".join(rows)
    )


def checkout(folder: Path) -> Workspace:
    """Make the checkout, and commit it."""
    root = widget_world.make_root(folder)
    for name in ("widget", "lens"):
        place = root / "images/recipes" / name
        place.mkdir(exist_ok=True)
        (place / "recipe.yaml").write_text(widget_world.RECIPE.replace("widget", name))
        (place / "install.j2").write_text("")
        (place / "smoke.py").write_text("")
    (root / "matrix.yaml").write_text(widget_world.MATRIX.replace("widget.yaml", "widget.yaml, lens.yaml"))
    (root / "widget.yaml").write_text(widget_rows() + 'left_out:\n  - {releases: [prereleases], note: "not a release"}\n')
    (root / "lens.yaml").write_text(lens_rows())
    (root / "images/environments.yaml").write_text('schema: 1\nenvironments:\n  widget-1.4.0-cpu-py36-plain1: "kept"\n')
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "Test")
    git(root, "config", "user.email", "test@example.org")
    commit(root)
    return Workspace(root=root, output=root / "images", home=folder / "home")


def index() -> Universe:
    """The index with exactly the releases of the matrix."""
    found = Universe()
    found.place = "toy"  # type: ignore[attr-defined]
    for version, day in DAYS.items():
        if version != NEW:
            publish(found, version, day)
    found.add(f"shared-1.8-{ANY}", day="2016-01-01")
    found.add(f"shared-1.9-{ANY}", day="2017-01-01")
    return found


def publish(universe: Universe, version: str, day: str = "2018-07-01") -> None:
    """Publish a release of the framework and of its add-on."""
    universe.add(f"widget-{version}-{ANY}", ("shared<2",), day=day)
    lens = next(name for name, base in LENS.items() if base == version)
    universe.add(f"lens-{lens}-{ANY}", (f"widget=={version}", "shared<2"), day=day)
