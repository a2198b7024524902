"""Debian's docker-registry on loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import judges
import requests


class DebianRegistry:
    """A registry that can be killed and started again at the same address, with the same data."""

    def __init__(self, host: str, config: Path) -> None:
        self.host, self._config = host, config
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the registry, and wait until it answers."""
        argv = ["docker-registry", "serve", str(self._config)]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                requests.get(f"http://{self.host}/v2/", timeout=5)
                return self.process
            except requests.ConnectionError:
                assert time.monotonic() < end and self.process.poll() is None, "docker-registry does not start"
                time.sleep(0.05)


@contextlib.contextmanager
def serve_debians(folder: Path, *, deletes: bool = False) -> Iterator[str]:
    """Run a registry with its data in ``folder`` until the block ends; yield its address.

    ``deletes`` says whether the registry allows deletions.
    """
    with run_debians(folder, deletes=deletes) as registry:
        yield registry.host


@contextlib.contextmanager
def run_debians(folder: Path, *, deletes: bool = False) -> Iterator[DebianRegistry]:
    """Run a registry as :func:`serve_debians` does, and yield it."""
    judges.require("docker-registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: {str(deletes).lower()}}}}}\n"
        f"http: {{addr: {host}}}\n"
    )
    registry = DebianRegistry(host, config)
    try:
        yield registry
    finally:
        registry.process.terminate()
        registry.process.wait(30)
