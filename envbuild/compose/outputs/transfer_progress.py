"""Counts the bytes of a transfer that several threads share, and reports its progress."""

from __future__ import annotations

import threading

from envbuild.model.progress import OnProgress, Progress


class TransferProgress:
    """The progress of one transfer of ``total`` bytes. Threads may share this object."""

    def __init__(self, on_progress: OnProgress, *, stage: str, message: str, total: int) -> None:
        self._on_progress = on_progress
        self._stage = stage
        self._message = message
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count ``size`` more bytes as done (a negative number subtracts bytes), and report the sum."""
        with self._lock:  # held during the report, so that no smaller number is reported after a larger one
            self._done += size
            news = Progress(
                stage=self._stage, message=self._message, done=float(self._done), total=float(self._total), unit="bytes"
            )
            self._on_progress(news)
