"""Read from the text files of a wheel with which versions of CUDA, cuDNN and NCCL it was compiled.

Frameworks write these versions into a small file when they are built. The names of the libraries that a wheel needs show less:
from CUDA 11 on, they contain only the major version, and a framework that opens its libraries by name needs none of them.
"""

from __future__ import annotations

import re
import zipfile
from typing import NamedTuple

_FILE = re.compile(r"(?!.*\.dist-info/)(?:.*/)?(?:build_info\.py|version\.py|_wheel\.json)")
_MOST_FILES, _MOST_BYTES, _MOST_VERSIONS = 200, 2**16, 20
# Four forms: ('cuda_version', '11.2'); cudnn_version_number = '7'; cuda: Optional[str] = '12.4'; "cudnn": {"version": "8.0.3".
_VERSION = re.compile(
    r"""\b(?P<library>cuda|cudnn|nccl)(?:_version(?:_number)?)?['"]?[ ]?
        (?::[ ]?[\w.]{1,40}(?:\[\w{1,40}\])?[ ]?=|[:=,])[ ]?
        (?:\{[ ]?['"]version['"][ ]?:[ ]?)?
        ['"](?P<version>\d{1,3}(?:\.\d{1,4}){0,3})(?:\.x)?['"]""",
    re.VERBOSE,
)


class BuiltWith(NamedTuple):
    """A ``library`` (``cuda``, ``cudnn`` or ``nccl``), its ``version``, and the ``file`` of the wheel that states it."""

    library: str
    version: str
    file: str


def read(archive: zipfile.ZipFile) -> tuple[BuiltWith, ...]:
    """Return the versions that the files of a wheel state, sorted by library."""
    files = [each for each in archive.infolist() if _FILE.fullmatch(each.filename) and each.file_size <= _MOST_BYTES]
    found = {
        BuiltWith(match["library"], match["version"], each.filename)
        for each in files[:_MOST_FILES]
        for match in _VERSION.finditer(archive.read(each).decode("utf-8", errors="replace"))
    }
    return tuple(sorted(found)[:_MOST_VERSIONS])
