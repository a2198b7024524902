"""The file that `init` writes resolves and locks: a sample of frameworks without an index, and some with the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import workspace
from envbuild.custom.writing import Wishes
from envbuild.errors import BuildError, EnvbuildError
from envbuild.index.project_pages import IndexFile
from envbuild.pipeline import new_recipe
from envbuild.pipeline.new_recipe import Started
from envbuild.pipeline.tools import Tools

ROOT = workspace.find(str(Path(__file__).parents[2]))
RECIPES = Tools(ROOT).recipes
FRAMEWORKS = sorted(table.short for table in Tools(ROOT).matrix.frameworks if table.recipe in RECIPES)


class NoIndex:
    """An index that never answers."""

    notes = ()

    def prefetch(self, *_: object) -> None:
        """Do nothing."""

    def project_files(self, project: str, *_: object) -> list[IndexFile]:
        """Raise the error of the real client."""
        raise BuildError(f"The index does not answer for {project}", code="index-unreachable", hint="Try again later.")


def start(folder: Path, request: str, *pip: str, services: tuple[str, ...] = (), offline: bool = True) -> Started:
    tools = Tools(ROOT)
    if offline:
        tools.__dict__["index"] = NoIndex()
    wishes = Wishes(name="new-one", frameworks=(request,), python="", pip=pip, apt=(), services=services)
    return new_recipe.start(tools, folder, wishes, force=False)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_can_be_begun_without_an_index_and_that_is_said(framework: str, tmp_path: Path) -> None:
    started = start(tmp_path, framework, services=("jupyter",) if framework != "torch7" else ())
    assert started.path.is_file() and "not answer" in started.unchecked


@pytest.mark.parametrize(
    ("request_text", "pip", "fits"),
    [
        ("mxnet-1.9-cpu", "numpy>=1.26", "numpy<1.24"),
        ("tf-2.4-cpu", "tensorflow-cpu==2.5", "tensorflow-cpu==2.4"),
        ("pytorch-1.10", "setuptools>=60", "setuptools<59.6"),
        ("pytorch-2.0", "numpy>=2", "numpy<2"),
    ],
)
def test_what_a_row_excludes_is_refused_without_an_index(request_text: str, pip: str, fits: str, tmp_path: Path) -> None:
    with pytest.raises(EnvbuildError) as caught:
        start(tmp_path / "lab", request_text, pip)
    assert caught.value.code == "added-package" and fits in (caught.value.hint or "")
    assert not (tmp_path / "lab").exists()


@pytest.mark.prove
@pytest.mark.parametrize(
    ("request_text", "pip", "fits"),
    [
        ("tf-2.21-cpu", "numpy<1.20", "numpy==2"),
        ("tf-2.4-cpu", "numpy<1.20", ""),
        ("jax-0.4.30-cpu", "scipy<1.9", "scipy==1."),
        ("opencv-4-cpu", "numpy>=2", ""),
    ],
)
def test_with_the_real_index(request_text: str, pip: str, fits: str, tmp_path: Path) -> None:
    if not fits:
        assert start(tmp_path, request_text, pip, offline=False).unchecked == ""
        return
    with pytest.raises(EnvbuildError) as caught:
        start(tmp_path / "lab", request_text, pip, offline=False)
    assert caught.value.code == "added-package" and fits in (caught.value.hint or "")
    assert not (tmp_path / "lab").exists()
