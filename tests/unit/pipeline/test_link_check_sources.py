"""Layers of an image that are not what their image says."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oci_layouts import write_layout

from envbuild.errors import InvalidInputError, UnknownNameError, UsageError, VerifyError
from envbuild.linkcheck import rules
from envbuild.pipeline import link_check, link_check_sources

IMAGES = Path(__file__).parents[3] / "images"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


def members() -> list[bytes]:
    """The tar file of a layer in pieces, one for each file, as envbuild writes layers."""
    whole, ends = io.BytesIO(), []
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name in ("a", "b", "c"):
            tar.addfile(tarfile.TarInfo(name))
            ends.append(whole.tell())
    held = whole.getvalue()
    return [held[start:end] for start, end in zip([0, *ends], [*ends, len(held)], strict=True)]


def layout(folder: Path, layer: bytes, **platform: str) -> link_check_sources.Image:
    """An image whose only layer has the diff id of the whole layer, and these bytes. ``platform`` goes into its config."""
    diff_id = hashlib.sha256(b"".join(members())).hexdigest()
    return link_check_sources.of_layout(write_layout(folder, layer, GZIP, diff_id, **platform), "")


def facts(folder: Path, image: link_check_sources.Image) -> Any:
    workspace = SimpleNamespace(layer_facts=folder / "facts", downloads=folder / "downloads")
    tools: Any = SimpleNamespace(workspace=workspace, on_progress=lambda _news: None)
    return link_check.facts_of(tools, image, rules.load(IMAGES))


def test_a_layer_that_ends_early_is_refused_and_not_remembered(tmp_path: Path) -> None:
    packed = [gzip.compress(piece) for piece in members()]
    (whole,) = facts(tmp_path, layout(tmp_path / "whole", b"".join(packed)))
    assert sorted(whole.files) == ["/a", "/b", "/c"]
    for kept in (tmp_path / "facts").rglob("*"):
        kept.is_file() and kept.unlink()
    with pytest.raises(VerifyError) as caught:
        facts(tmp_path, layout(tmp_path / "cut", packed[0]))
    assert caught.value.code == "layer-missing"
    assert not [each for each in (tmp_path / "facts").rglob("*") if each.is_file()]


def test_a_damaged_layer_ends_in_one_clear_error(tmp_path: Path) -> None:
    packed = bytearray(b"".join(gzip.compress(piece) for piece in members()))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(InvalidInputError, match="layer is damaged"):
        facts(tmp_path, layout(tmp_path / "damaged", bytes(packed)))


def test_an_image_for_another_processor_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(members()))
    with pytest.raises(InvalidInputError, match="is for linux/arm64") as caught:
        layout(tmp_path / "arm", packed, architecture="arm64", os="linux")
    assert caught.value.code == "image-platform"
    assert layout(tmp_path / "intel", packed, architecture="amd64", os="linux").layers
    info = SimpleNamespace(id="sha256:1", layers=("sha256:2",), env=(), architecture="arm64")
    tools: Any = SimpleNamespace(engine=SimpleNamespace(image=lambda _reference: info))
    with pytest.raises(InvalidInputError, match="is for arm64"):
        link_check_sources.of_engine(tools, "widget")


@pytest.mark.parametrize(
    "reference", ["-x", "", "a b", "widget@sha256:12", "widget@sha512", "widget:tag:tag", "/widget", "widget/", "Widget", "a:-"]
)
def test_text_that_cannot_name_an_image_is_refused_without_asking_the_engine(reference: str) -> None:
    tools: Any = SimpleNamespace(engine=None)
    with pytest.raises(UsageError, match="is not the name of an image") as caught:
        link_check_sources.of_engine(tools, reference)
    assert caught.value.code == "bad-image"


@pytest.mark.parametrize(
    "reference",
    [
        "widget",
        "widget:1.0_x",
        "localhost:5000/lab/widget:1",
        f"widget@sha256:{'a' * 64}",
        f"sha256:{'a' * 64}",
        "1237a7fa4cf2",
        f"host.example/a__b/c-d.e:tag@sha256:{'0' * 64}",
        "HOST.example/widget",
        "h:1/w",
    ],
)
def test_names_of_images_are_asked_of_the_engine(reference: str) -> None:
    tools: Any = SimpleNamespace(engine=SimpleNamespace(image=lambda _reference: None))
    with pytest.raises(UnknownNameError, match="The engine has no image"):
        link_check_sources.of_engine(tools, reference)
