"""A checkout with two environments in which tests can change every input quickly."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import render_locks
import widget_world

from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.pipeline import rendering
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[2]
ALPHA, BETA = "al-1.12.3-cpu-py311-toyos12", "be-1.12.3-cpu-py311-toyos12"
RECIPE = "schema: 1\nrecipe: {name}\ntitle: {title}\nrequirements: [numpy]\nmodule: {name}\n"


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


def locks() -> dict[str, Lock]:
    """The locks of alpha, to which users can add packages, and of beta, whose adapter imports that of alpha."""
    alpha = render_locks.cpu()
    (prefix,) = alpha.prefixes
    beta = replace(
        alpha,
        environment=replace(alpha.environment, name=BETA, frameworks=(render_locks.framework("beta"),)),
        prefixes=(replace(prefix, frameworks=("beta",), artifacts=(render_locks.artifact("beta", "1.12.3"),)),),
    )
    pip = render_locks.artifact("pip", "25.0")
    return {ALPHA: replace(alpha, prefixes=(replace(prefix, pip=pip),)), BETA: beta}


def checkout(folder: Path) -> Workspace:
    """Make the checkout in ``folder`` and commit it. The files of its smoke test have one line each."""
    root = widget_world.make_root(folder)
    shutil.copytree(ROOT / "images/overlay", root / "images/overlay")
    for name in ("alpha", "beta"):
        place = root / "images/recipes" / name
        place.mkdir()
        borrowed = "adapters: [alpha]\n" if name == "beta" else ""
        (place / "recipe.yaml").write_text(RECIPE.format(name=name, title=name.title()) + borrowed)
        (place / "install.j2").write_text("")
        (place / "smoke.py").write_text(f"# {name}\n")
        (place / "README.md").write_text("A recipe.\n")
    (root / "envbuild/smoke/rank").mkdir(parents=True)
    for path in ("run.py", "rank/train.py"):
        (root / "envbuild/smoke" / path).write_text("# the smoke test\n")
    workspace = Workspace(root=root, output=root / "images", home=folder / "home")
    for name, lock in locks().items():
        put(workspace, name, lock)
    git(root, "init", "--quiet")
    commit(root)
    return workspace


def put(workspace: Workspace, name: str, lock: Lock) -> None:
    """Write a lock and its rendering."""
    folder = workspace.environment(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lock_file.write(folder / "lock.json", lock)
    for path, text in rendering.render_text(Tools(workspace), lock).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "a change")
