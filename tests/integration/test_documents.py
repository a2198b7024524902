"""Run the blocks of README and docs that need an engine or a package index, page by page, as a reader would.

They build and train, which takes minutes, so only `make prove` runs all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import documents
import pytest
from documents import ANY, NEVER_RUN, ROOT, Block
from program import fresh_root

from envbuild.engine.client import Engine

LIMIT_S = 1800


def to_run(page: Path) -> list[Block]:
    """The blocks with files to write and commands to run, in the order of the page."""
    found = [block for block in documents.blocks(page) if block.file or block.language in documents.COMMANDS]
    return [block for block in found if not block.needs & NEVER_RUN]


PAGES = [page for page in documents.pages() if any(block.needs for block in to_run(page))]


def test_some_pages_build_and_train() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "this-years-model.md", "a-2018-paper.md", "add-a-framework.md"} <= names


@pytest.mark.prove
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_build_and_train(page: Path, engine: Engine, tmp_path: Path) -> None:
    root = fresh_root(tmp_path / "root")
    shutil.copytree(ROOT / "images" / "environments", root / "images" / "environments")
    # Pages that add files to the checkout run in the checkout, other pages in a folder of their own.
    inside = any((block.file or "").startswith("matrix/frameworks/") for block in to_run(page))
    work = root if inside else tmp_path / "work"
    work.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = {**os.environ, "PATH": path, "ENVBUILD_ROOT": str(root), "DOCKER_HOST": engine.endpoint}
    for block in to_run(page):
        if block.file:
            (work / block.file).parent.mkdir(parents=True, exist_ok=True)
            (work / block.file).write_text(block.text)
            continue
        for command in block.commands():
            # The next command starts in the folder where this one ends, as in a reader's shell.
            ending = f"echo $? > {tmp_path}/code; pwd > {tmp_path}/folder"
            done = subprocess.run(
                ["bash", "-c", f"{command.line}\n{ending}"],
                cwd=work,
                env=surroundings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            code, work = int((tmp_path / "code").read_text()), Path((tmp_path / "folder").read_text().strip())
            assert code in ({0} if command.shown is None else {0, 3, 6}), (
                f"{block.where}: {command.line}\n{done.stdout[-4000:]}"
            )
            if command.shown is not None and not documents.matches(command.shown, done.stdout):
                pytest.fail(
                    f"{block.where}: {command.line} prints\n{done.stdout[-4000:]}\nnot\n{command.shown.replace(ANY, '...')}"
                )
