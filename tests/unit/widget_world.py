"""The environment of tests of stages: a framework called widget, its recipe, the real partials, and a small package index."""

from __future__ import annotations

import shutil
from pathlib import Path

from lock_universe import Universe

ANY = "py3-none-any.whl"
MATRIX = """\
schema: 1
policy: {dependency_margin_days: 60, python_from: [distribution]}
include: [systems.yaml, widget.yaml]
"""
SYSTEMS = """\
defaults: {source: "https://example.org/systems", checked: "2026-01-01"}
systems:
  - {name: plain1, family: plain, version: "1", codename: one, image: "plain:1", glibc: "2.31", released: "2017-01-01",
     pythons: [{version: "3.6", packages: [python3], executable: /usr/bin/python3.6}]}
pythons:
  - {version: "3.6", released: "2016-12-01"}
"""
WIDGET = """\
defaults: {source: "https://example.org/widget", checked: "2026-01-01"}
framework: {name: widget, title: Widget, short: widget, aliases: [widget], recipe: widget}
series:
  - series: "1.2"
    variants:
      cpu: {package: widget, python: ["3.6"], cuda_libraries: none, glibc: "2.17"}
    releases:
      - {version: "1.2.0", released: "2018-01-01"}
"""
NEWER = '      - {version: "1.2.1", released: "2018-02-01"}\n'
RECIPE = "schema: 1\nrecipe: widget\ntitle: Widget\nrequirements: [shared]\nmodule: widget\n"


def make_root(tmp_path: Path) -> Path:
    """Write facts and recipes below ``tmp_path``."""
    root = tmp_path / "root"
    (root / "images" / "recipes" / "widget").mkdir(parents=True)
    (root / "images" / "recipes" / "widget" / "recipe.yaml").write_text(RECIPE)
    (root / "images" / "recipes" / "widget" / "install.j2").write_text("")
    (root / "images" / "recipes" / "widget" / "smoke.py").write_text("")
    # Every lock is rendered in memory before it is written, which needs the real partials.
    shutil.copytree(Path(__file__).parents[2] / "images/partials", root / "images/partials")
    (root / "images" / "services").mkdir()
    (root / "images" / "services" / "web.yaml").write_text("schema: 1\nservice: web\npip: [server]\nports: [80]\n")
    (root / "images" / "services" / "web.sh").write_text("#!/bin/sh\n")
    (root / "images" / "services" / "envbuild-start.sh").write_text("#!/bin/sh\n")
    (root / "matrix.yaml").write_text(MATRIX)
    (root / "systems.yaml").write_text(SYSTEMS)
    (root / "widget.yaml").write_text(WIDGET)
    return root


def make_universe() -> Universe:
    """The package index."""
    universe = Universe()
    universe.add(f"widget-1.2.0-{ANY}", ("shared<2",), day="2018-01-01")
    universe.add(f"widget-1.2.1-{ANY}", ("shared<2",), day="2018-02-01")
    universe.add(f"shared-1.9-{ANY}", day="2017-01-01")
    universe.add(f"shared-2.0-{ANY}", day="2018-01-02")
    universe.add(f"extra-1.0-{ANY}", ("shared>=1",), day="2018-01-03")
    universe.add(f"extra-2.0-{ANY}", ("shared>=1",), day="2019-06-01")
    universe.add(f"greedy-1.0-{ANY}", ("shared>=2",), day="2018-01-04")
    universe.add(f"server-1.0-{ANY}", day="2018-01-05")
    return universe
