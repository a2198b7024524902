"""The merged file system of an image, to compare images that were made in different ways."""

import hashlib
import io
import tarfile
from typing import Any, NamedTuple

from envbuild.engine.client import Engine
from envbuild.engine.image_tar import AnswerReader


class Path(NamedTuple):
    """One path of an image: type, permissions and content."""

    kind: bytes
    mode: int
    owner: tuple[int, int]
    time: int
    link: str
    sha256: str


# The engine itself makes or changes these in every container.
_ENGINES = {"dev", "proc", "sys", ".dockerenv", "etc", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"}


def tree(engine: Engine, image: str) -> dict[str, Path]:
    """Every path of ``image``, as a container sees it when it starts."""
    api: Any = engine.client.api
    container = api.create_container(image)["Id"]
    found: dict[str, Path] = {}
    try:
        stream = io.BufferedReader(AnswerReader(api.export(container)), 1 << 20)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                digest = hashlib.file_digest(content, "sha256").hexdigest() if content else ""
                name = member.name.rstrip("/")
                if name not in _ENGINES and name.partition("/")[0] not in {"dev", "proc", "sys"}:
                    found[name] = Path(
                        member.type, member.mode, (member.uid, member.gid), int(member.mtime), member.linkname, digest
                    )
    finally:
        api.remove_container(container, force=True)
    return found


def differences(one: dict[str, Path], other: dict[str, Path]) -> list[str]:
    """The differences between two trees, one line per path."""
    lines = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if left != right:
            lines.append(f"{name}: {left} | {right}")
    return lines
