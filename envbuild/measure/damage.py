"""The error for a file that cannot be measured."""

from __future__ import annotations


class DamagedError(ValueError):
    """The file contradicts itself; the text is the end of a sentence that begins with the file's name."""
