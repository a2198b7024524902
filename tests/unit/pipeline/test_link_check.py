"""The stage `linkcheck`: its words for gaps, and which stored results still count."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from composed import tarred
from elf_files import Shared

from envbuild.errors import VerifyError
from envbuild.model.lock import Lock
from envbuild.pipeline import link_check, stage_cache
from envbuild.pipeline.link_check_sources import Contents, Image, LayerStream
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[3]
LOCK = cast(Lock, SimpleNamespace(environment=SimpleNamespace(name="widget", driver_min="525.60.13", frameworks=())))


def gap(kind: str, remedy: str = "") -> dict[str, str]:
    return {"kind": kind, "object": "/a.so", "needs": "x", "cause": "it is absent", "remedy": remedy}


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("library",), "In the image, a library is missing."),
        (("symbol", "symbol"), "In the image, 2 symbols are missing."),
        (("driver",), "In the image, the driver is too old."),
        (("compiler",), "In the image, a file for compiling is missing."),
        (("damaged", "damaged"), "In the image, 2 objects are damaged."),
        (("library", "version"), "In the image, a library is missing, and a version of symbols is missing."),
        (
            ("driver", "driver", "compiler", "library"),
            "In the image, a library is missing, the driver is too old for 2 objects, and a file for compiling is missing.",
        ),
    ],
)
def test_the_message_names_each_kind_of_gap(kinds: tuple[str, ...], words: str) -> None:
    with pytest.raises(VerifyError) as caught:
        link_check.raise_for({"gaps": [gap(kind) for kind in kinds]}, "the image")
    assert caught.value.message == words
    assert ("pull the image again" in caught.value.hint) == (set(kinds) == {"damaged"})


class Reached(Exception):
    """The check asked the engine for the image."""


class Engine:
    """An engine that must not be asked if a stored result counts."""

    def __getattr__(self, name: str) -> Any:
        raise Reached(name)


def tools(workspace: Workspace) -> Tools:
    nothing: dict[str, Any] = {}
    found = SimpleNamespace(
        workspace=workspace, engine=Engine(), on_progress=lambda _news: None, recipes_of=lambda _environment: nothing
    )
    return cast(Tools, found)


def test_a_stored_result_counts_until_the_matrix_changes(tmp_path: Path) -> None:
    workspace = Workspace(root=ROOT, output=tmp_path / "images", home=tmp_path / "home")
    ours = tools(workspace)
    stage_cache.keep(workspace, "widget", "linkcheck", link_check.key_of(ours, "0" * 64, "sha256:1"), {"gaps": [gap("driver")]})
    with pytest.raises(VerifyError, match="the driver is too old"):
        link_check.link_image(ours, LOCK, "0" * 64, "sha256:1", replay=True)
    for digest, image in (("1" * 64, "sha256:1"), ("0" * 64, "sha256:2")):
        with pytest.raises(Reached):
            link_check.link_image(ours, LOCK, digest, image, replay=True)
    overlay = tmp_path / "more.yaml"
    overlay.write_text("schema: 1\n")
    with pytest.raises(Reached):  # its rows may have other drivers and GPUs
        link_check.link_image(tools(replace(workspace, overlays=(overlay,))), LOCK, "0" * 64, "sha256:1", replay=True)


def image(members: dict[str, bytes], **environment: str) -> Image:
    """An image with one layer and these environment variables."""
    layer = tarred(members)
    digest = hashlib.sha256(layer).hexdigest()

    def read(_wanted: Sequence[str]) -> Contents:
        yield LayerStream([layer], lambda: digest)

    return Image(name="toy", layers=(digest,), environment=environment, read=read)


@pytest.mark.parametrize(
    ("is_for_gpus", "environment", "gaps", "excused"),
    [(True, {}, 8, 0), (False, {}, 0, 0), (None, {}, 0, 8), (None, {"NVIDIA_REQUIRE_CUDA": "cuda>=11.0"}, 8, 0)],
)
def test_libraries_that_only_gpus_need_are_gaps_only_in_an_image_for_gpus(
    is_for_gpus: bool | None, environment: dict[str, str], gaps: int, excused: int, tmp_path: Path
) -> None:
    site = "opt/env/lib/python3.11/site-packages"
    framework = Shared(soname="libtensorflow_framework.so.2", is_loadable=True)
    toy = image(
        {
            f"{site}/tensorflow/libtensorflow_framework.so.2": framework.data(),
            f"{site}/tensorflow-2.11.1.dist-info/METADATA": b"Name: tensorflow\n",
        },
        **environment,
    )
    ours = Tools(Workspace(root=ROOT, output=ROOT, home=tmp_path))
    report = link_check.check(ours, toy, is_for_gpus=is_for_gpus)
    assert (len(report.gaps), len(report.excused)) == (gaps, excused)
    assert {each.excuse for each in report.excused} == ({"only GPUs need it"} if excused else set())


@pytest.mark.parametrize(
    ("system", "old", "new"),
    [
        ("ID=debian\nVERSION_ID=11", "the package libssl1.1", ""),
        ("ID=debian\nVERSION_ID=12", "", "the package libssl3"),
        ("ID=ubuntu\nVERSION_ID=22.04", "", "the package libssl3"),
        ("ID=fedora\nVERSION_ID=40", "", ""),
    ],
)
def test_only_packages_of_the_images_own_system_are_named(system: str, old: str, new: str, tmp_path: Path) -> None:
    needed = ["libssl.so.1.1", "libssl.so.3"]
    toy = image({"etc/os-release": system.encode(), "opt/liba.so": Shared(needed=needed, is_loadable=True).data()})
    report = link_check.check(Tools(Workspace(root=ROOT, output=ROOT, home=tmp_path)), toy)
    assert {gap.needs: gap.remedy for gap in report.gaps} == {"libssl.so.1.1": old, "libssl.so.3": new}


@pytest.mark.parametrize("is_for_gpus", [None, False])
def test_the_plugin_of_jax_shows_the_lowest_driver_without_the_libraries(is_for_gpus: bool | None, tmp_path: Path) -> None:
    site = "opt/env/lib/python3.12/site-packages"
    toy = image(
        {
            f"{site}/jax_plugins/xla_cuda13/xla_cuda_plugin.so": Shared(soname="xla_cuda_plugin.so", is_loadable=True).data(),
            f"{site}/jax_cuda13_pjrt-0.10.2.dist-info/METADATA": b"Name: jax-cuda13-pjrt\n",
        }
    )
    report = link_check.check(Tools(Workspace(root=ROOT, output=ROOT, home=tmp_path)), toy, is_for_gpus=is_for_gpus)
    assert report.facts["lowest_driver"]["driver"] == "580.65.06" and len(report.gaps) == 8


def test_a_cuda_came_with_the_driver_of_its_first_release(tmp_path: Path) -> None:
    assert link_check.toolkits(Tools(Workspace(root=ROOT, output=ROOT, home=tmp_path)))["12.4"] == "550.54.14"
