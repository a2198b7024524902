"""Debian's docker-registry on loopback."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import judges
import requests


class DebianRegistry:
    """A registry that can be killed and started again at the same address, with the same data."""

    def __init__(self, host: str, config: Path) -> None:
        self.host, self._config, self._log = host, config, config.with_suffix(".log")
        self.process = self.start()

    def uploads(self) -> Counter[str]:
        """How often each blob was uploaded completely, by digest, as the registry's own log says."""
        done = re.findall(
            r'"PUT /v2/\S+/blobs/uploads/\S+digest=sha256(?::|%3A)([0-9a-f]{64})\S* HTTP/1.1" 201', self._log.read_text()
        )
        return Counter(done)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the registry, and wait until it answers."""
        argv = ["docker-registry", "serve", str(self._config)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=subprocess.DEVNULL)
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
