"""Debian's docker-registry on loopback."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests


@contextlib.contextmanager
def serve_debians(folder: Path, *, deletes: bool = False) -> Iterator[str]:
    """Run a registry with its data in ``folder`` until the block ends; yield its address.

    ``deletes`` says whether the registry allows deletions.
    """
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: {str(deletes).lower()}}}}}\n"
        f"http: {{addr: {host}}}\n"
    )
    process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                requests.get(f"http://{host}/v2/", timeout=5)
                break
            except requests.ConnectionError:
                assert time.monotonic() < end and process.poll() is None, "docker-registry does not start"
                time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait(30)
