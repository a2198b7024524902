"""The stored description of a composed image."""

from __future__ import annotations

from pathlib import Path

import composed
import pytest

from envbuild.compose.engine_image import recall, remember, unpacked_layer
from envbuild.compose.model import ComposedImage, Layer

LAYERS = (unpacked_layer("a" * 64), Layer(digest="b" * 64, diff_id="c" * 64, size=1, unpacked=2))
IMAGE = composed.image(LAYERS)
ID = composed.id_of(IMAGE)
OF_MANIFEST = "sha256:" + "e" * 64  # the id that containerd's image store gives to an image


@pytest.mark.parametrize("image_id", [ID, OF_MANIFEST])
def test_it_is_found_again_by_the_id_of_the_image(tmp_path: Path, image_id: str) -> None:
    remember(tmp_path / "images", IMAGE, image_id)
    assert recall(tmp_path / "images", image_id) == IMAGE


@pytest.mark.parametrize("image_id", [ID, OF_MANIFEST])
def test_a_changed_configuration_is_not_used(tmp_path: Path, image_id: str) -> None:
    remember(tmp_path, IMAGE, image_id)
    record = tmp_path / f"{image_id.removeprefix('sha256:')}.json"
    record.write_text(record.read_text().replace("linux", "minix"))
    assert recall(tmp_path, image_id) is None


@pytest.mark.parametrize("layers", [LAYERS[:1], LAYERS[::-1], (*LAYERS, LAYERS[0]), (LAYERS[0], unpacked_layer("d" * 64)), ()])
def test_layers_of_another_image_are_not_used(tmp_path: Path, layers: tuple[Layer, ...]) -> None:
    remember(tmp_path, ComposedImage(config=IMAGE.config, layers=layers), ID)
    assert recall(tmp_path, ID) is None


def test_a_configuration_without_layers_is_not_used(tmp_path: Path) -> None:
    for config in (b'{"os":"linux"}', b'{"rootfs":{"diff_ids":null}}', b"[]", b"{"):
        image = ComposedImage(config=config, layers=())
        remember(tmp_path, image, composed.id_of(image))
        assert recall(tmp_path, composed.id_of(image)) is None


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"config":"{}","layers":[]}', '{"config":"{\\"os\\":\\"linux\\"}","layers":[{}]}']
)
def test_nothing_is_made_of_what_is_absent_or_damaged(tmp_path: Path, content: str) -> None:
    assert recall(tmp_path, ID) is None
    (tmp_path / f"{ID.removeprefix('sha256:')}.json").write_text(content)
    assert recall(tmp_path, ID) is None
