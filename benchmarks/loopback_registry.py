"""Debian's docker-registry on loopback, for benchmarks."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Registry:
    """A running registry, and the folder with its blobs."""

    host: str
    folder: Path

    def size(self) -> int:
        """The bytes of all files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def registry(scratch: Path) -> Iterator[Registry]:
    """Start an empty registry on loopback. Stop and remove the registry at the end of the block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{found.getsockname()[1]}"
    folder = Path(tempfile.mkdtemp(dir=scratch))
    config = folder / "config.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}"
    config.write_text(f"version: 0.1\nlog: {{level: error}}\n{storage}\nhttp: {{addr: {host}}}\n")
    program = ["docker-registry", "serve", str(config)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(tuple(host.split(":"))):  # type: ignore[arg-type]
                    break
            yield Registry(host, folder)
        finally:
            process.terminate()
    shutil.rmtree(folder)
