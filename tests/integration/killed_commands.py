"""Runs commands of envbuild in child processes, and kills them at chosen moments."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import requests
from signing import write_pair

from envbuild.cli import frame
from envbuild.compose.outputs import registry_client


def run_and_kill(
    words: list[str], *, after_requests: int = 0, after_seconds: float = 0.0, after_write: str = "", registry: int = 0
) -> int:
    """Run the command in a child process and kill it; return its exit code, which is negative if it was killed.

    The kill comes after so many requests or seconds, or after a manifest was written whose tag or digest fits the pattern
    ``after_write``. With the process id of a ``registry``, kill this registry instead.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            if after_requests:
                _kill_after(after_requests, registry or os.getpid())
            if after_write:
                _kill_after_write(after_write)
            code = frame.run(words)
        finally:
            os._exit(code)
    if after_seconds:
        time.sleep(after_seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_after(count: int, process: int) -> None:
    """Let this process kill ``process`` as soon as the registry has answered ``count`` requests."""
    plain, answers = registry_client.Client._send, iter(range(1, 100_000))

    def send(*words: Any, **named: Any) -> requests.Response:
        answer = plain(*words, **named)
        number = next(answers)
        if number == count or (number > count and process == os.getpid()):
            os.kill(process, signal.SIGKILL)
        return answer

    registry_client.Client._send = send  # type: ignore[method-assign]


def _kill_after_write(pattern: str) -> None:
    """Let this process kill itself as soon as the registry has stored a manifest whose tag or digest fits ``pattern``."""
    plain = registry_client.Client._send

    def send(client: registry_client.Client, method: str, url: str, *words: Any, **named: Any) -> requests.Response:
        answer = plain(client, method, url, *words, **named)
        reference = url.partition("/manifests/")[2]
        if method == "PUT" and reference and re.fullmatch(pattern, reference):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    registry_client.Client._send = send  # type: ignore[method-assign]


def publish_words(host: str, folder: Path, *words: str) -> list[str]:
    key = folder / "cosign.key"
    if not key.exists():
        write_pair(folder)
    return ["publish", *words, "--to", f"{host}/lab/dl", "--key", str(key), "-q"]
