"""The one secret of a build: a shell file that gives a step its variables and files, whatever they hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild import build_secret

PARTS = {
    "envbuild-env": b"export SECRET='it'\\''s $HOME'\n",
    "envbuild-ca": b"-----BEGIN CERTIFICATE-----\n$(touch /pwned) `id` \\n\nEOF\n",
    "envbuild-apt": b"deb http://mirror.example/debian bookworm main\n\n",
    "envbuild-apt-conf": b'Acquire::http::Proxy "http://proxy.example";',
}


def test_every_part_arrives_as_it_was(tmp_path: Path) -> None:
    (secret,) = build_secret.joined(PARTS).values()
    script = secret.replace(build_secret.FOLDER.encode(), str(tmp_path).encode()) + b'printf %s "$SECRET"\n'
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, check=True)
    assert done.stdout == b"it's $HOME"
    for name, file in (("envbuild-ca", "ca"), ("envbuild-apt", "sources.list"), ("envbuild-apt-conf", "apt.conf")):
        assert (tmp_path / file).read_bytes() == PARTS[name].rstrip(b"\n") + b"\n"
    assert build_secret.CA.startswith(f"{build_secret.FOLDER}/")


def test_without_parts_there_is_no_secret_and_a_part_that_no_step_knows_is_an_error() -> None:
    assert build_secret.joined({}) == {}
    with pytest.raises(KeyError):
        build_secret.joined({"envbuild-other": b"x"})
