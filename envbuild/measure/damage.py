"""The error for a file that cannot be measured."""

from __future__ import annotations


class DamagedError(ValueError):
    """The content of a file contradicts itself. The message is the end of a sentence that begins with the file's name."""
