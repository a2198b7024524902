"""Reads and writes ``images/recorded-layers.json``, the digests of the layers of huge wheels.

A huge wheel has more than 50 MB. The layer with its files depends only on the wheel, the prefix and the version of Python. So a
maintainer makes each such layer once, and records its digests. Then nobody needs to unpack the wheel again. Unpacking and
hashing the unpacked files is most of the work for such a layer. ``benchmarks/recorded_layers.py`` writes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.compose.model import Layer
from envbuild.errors import InvalidInputError

FILE = "recorded-layers.json"
_SCHEMA = 1
_HEX = re.compile(r"[0-9a-f]{64}")
_HASHES = ("digest", "diff_id", "files")
_SIZES = ("size", "unpacked")


def load(images: Path) -> Mapping[str, Layer]:
    """Read the file in the folder ``images``. Return the layers by their keys; no layers if the file does not exist.

    Raises :class:`InvalidInputError` (``recorded-layers``) if the file is damaged.
    """
    path = images / FILE
    if not path.exists():
        return {}
    try:
        told = json.loads(files.read_text(path))
        if told["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {str(told['schema'])[:20]} instead of {_SCHEMA}")
        return {key: _layer(row) for key, row in told["layers"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, LookupError) else str(error)[:200]
        raise InvalidInputError(
            f"{path} cannot be read: {why}.", code="recorded-layers", hint="Restore the file, for example with `git checkout`."
        ) from error


def _layer(row: Mapping[str, Any]) -> Layer:
    found = {name: row[name] for name in (*_HASHES, *_SIZES)}
    for name in _HASHES:
        if not _HEX.fullmatch(found[name]):
            raise ValueError(f"{found[name][:80]!r} is not a SHA-256")
    for name in _SIZES:
        if not isinstance(found[name], int) or found[name] < 0:
            raise ValueError(f"{str(found[name])[:20]!r} is not a number of bytes")
    return Layer(**found)


def write(images: Path, layers: Mapping[str, tuple[str, Layer]]) -> None:
    """Write the file in the folder ``images``. ``layers`` has for each key the title of the layer, and the layer."""
    names = (*_HASHES, *_SIZES)
    rows = {key: {"title": title, **{name: getattr(layer, name) for name in names}} for key, (title, layer) in layers.items()}
    lines = [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items(), key=lambda each: each[1]["title"])]
    files.write_atomic(images / FILE, f'{{"schema": {_SCHEMA}, "layers": {{\n' + ",\n".join(lines) + "\n}}\n")
