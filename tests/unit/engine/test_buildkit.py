"""Build secrets, and the options of the docker program."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.engine import buildkit
from envbuild.errors import BuildError


def test_secrets_can_be_read_by_path_and_are_on_no_disk():
    with buildkit.secret_files({"one": b"first", "two": b"x" * 100_000}) as paths:
        assert Path(paths["one"]).read_bytes() == b"first"
        assert Path(paths["one"]).read_bytes() == b"first"  # each reader starts at the beginning
        assert Path(paths["two"]).stat().st_size == 100_000
        assert str(Path(paths["one"]).readlink()).startswith("/memfd:")
    assert not Path(paths["one"]).exists()


def test_secrets_are_gone_after_an_error():
    seen = {}
    with pytest.raises(KeyboardInterrupt), buildkit.secret_files({"one": b"first"}) as paths:
        seen.update(paths)
        raise KeyboardInterrupt
    assert not Path(seen["one"]).exists()


def test_a_secret_that_buildkit_would_refuse_is_refused_by_name():
    with pytest.raises(BuildError, match="envbuild-ca") as caught, buildkit.secret_files({"envbuild-ca": b"x" * 600_000}):
        pass
    assert caught.value.code == "secret-too-large"


def test_secrets_are_not_on_the_command_line():
    spec = buildkit.BuildSpec(
        context=Path("/c"),
        tags=("a:1", "b:2"),
        secrets={"s": b"very secret"},
        build_args={"X": "1"},
        labels={"l": "v"},
        no_cache=True,
    )
    options = buildkit.build_options(spec)
    assert options == ["--tag=a:1", "--tag=b:2", "--build-arg=X=1", "--label=l=v", "--no-cache"]
