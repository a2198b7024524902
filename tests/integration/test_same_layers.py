"""Two builds from scratch of real environments, one for each way in which packages are installed, have the same layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program, fresh_root, share_bases

from envbuild.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.prove]


@pytest.mark.parametrize("request_", ["opencv-5", "chainer-4.3.1-cpu-py27-debian11"])
def test_two_builds_have_the_same_layers_and_one_id_where_images_can_be_dated(
    tmp_path: Path, engine: Engine, request_: str
) -> None:
    share_bases(tmp_path / "home")
    program = Program(root=fresh_root(tmp_path / "root"), home=tmp_path / "home", environment={"DOCKER_HOST": engine.endpoint})
    program.run("lock", request_, timeout=600).expect(0)
    first, second = (program.run("build", request_, "--no-cache", "--json", timeout=1800).expect(0).document for _ in range(2))
    try:
        assert first["layers"] == second["layers"]
        assert (first["image"] == second["image"]) == first["dated"]
    finally:
        for tag in second["tags"]:
            engine.remove_image(tag)
