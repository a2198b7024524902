"""The command line: one module per verb. Each parses, calls the library, prints, and returns its exit code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the ``envbuild`` command with ``argv`` (default: this process's arguments) and end the process with its exit code."""
    gc.set_threshold(50_000)  # a command makes thousands of objects and keeps them, so garbage collection would only take time
    from envbuild.cli import frame

    code = frame.run(sys.argv[1:] if argv is None else [*argv])  # `list` is a module here
    gc.freeze()  # the process ends now; a last garbage collection took a fifth of a short command
    sys.exit(code)
