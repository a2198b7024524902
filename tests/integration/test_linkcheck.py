"""A real image: the link check agrees with the image's own loader, and planted faults are found with their cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import loader_judge
import pytest
import smoke_toy
from smoke_toy import Toy, derive

from envbuild.engine.client import Engine
from envbuild.linkcheck.model import LinkReport
from envbuild.pipeline import link_check, link_check_sources
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.prove]

SITE = "/opt/env/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def toy(engine: Engine, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    made = smoke_toy.make(engine, workspace, tmp_path_factory.mktemp("linkcheck"))
    yield made
    smoke_toy.remove(engine, made)


def checked(engine: Engine, workspace: Workspace, image: str) -> LinkReport:
    tools = Tools(workspace)
    tools.__dict__["engine"] = engine
    return link_check.check(tools, link_check_sources.of_engine(tools, image))


def test_a_real_image_has_no_gap_and_its_loader_agrees(engine: Engine, workspace: Workspace, toy: Toy, tmp_path: Path) -> None:
    assert checked(engine, workspace, toy.image).gaps == ()
    tools = Tools(workspace)
    tools.__dict__["engine"] = engine
    unlike, compared = loader_judge.differences(tools, engine, toy.image, tmp_path)
    assert unlike == [] and compared > 100


def test_planted_faults_are_found(engine: Engine, workspace: Workspace, toy: Toy, tmp_path: Path) -> None:
    image = derive(
        engine,
        toy,
        tmp_path,
        # Some bases have a cache of the loader, which would still name the removed library.
        f"RUN rm -f {SITE}/numpy.libs/libgfortran* /usr/lib/x86_64-linux-gnu/libexpat.so.1* /etc/ld.so.cache",
    )
    report = checked(engine, workspace, image)
    lacking = {gap.needs for gap in report.gaps}
    assert "libexpat.so.1" in lacking and any(name.startswith("libgfortran") for name in lacking)
    assert {gap.cause for gap in report.gaps} == {"not found: no file of the image has this name"}
    (expat,) = {gap.remedy for gap in report.gaps if gap.needs == "libexpat.so.1"}
    assert expat == "the package libexpat1"
    engine.remove_unused(image)
