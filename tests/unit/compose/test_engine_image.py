"""The stored description of a composed image."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from envbuild.compose.engine_image import recall, remember, unpacked_layer
from envbuild.compose.model import ComposedImage, Layer

IMAGE = ComposedImage(
    config=b'{"os":"linux"}', layers=(unpacked_layer("a" * 64), Layer(digest="b" * 64, diff_id="c" * 64, size=1, unpacked=2))
)
ID = "sha256:" + hashlib.sha256(IMAGE.config).hexdigest()


def test_it_is_found_again_by_the_id_of_the_image(tmp_path: Path) -> None:
    remember(tmp_path / "images", IMAGE)
    assert recall(tmp_path / "images", ID) == IMAGE


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"config":"{}","layers":[]}', '{"config":"{\\"os\\":\\"linux\\"}","layers":[{}]}']
)
def test_nothing_is_made_of_what_is_absent_or_damaged(tmp_path: Path, content: str) -> None:
    assert recall(tmp_path, ID) is None
    (tmp_path / f"{ID.removeprefix('sha256:')}.json").write_text(content)
    assert recall(tmp_path, ID) is None
