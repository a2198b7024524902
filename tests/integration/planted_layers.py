"""Plant faults in an image: one more layer over an OCI image layout, with files of real packages."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envbuild.index import remote_file
from envbuild.index.client import Index
from envbuild.measure import published


def wheel_members(index: Index, wheel: str, *patterns: str) -> dict[str, bytes]:
    """The files of a wheel (``PROJECT==VERSION``) that match a pattern, fetched without the rest of the wheel."""
    file = published.find(index, wheel)
    stream = remote_file.open_remote(index, file.url, within_s=None)
    assert stream is not None
    with stream, zipfile.ZipFile(stream) as archive:
        names = [each for each in archive.namelist() if any(fnmatch.fnmatch(each, pattern) for pattern in patterns)]
        return {name: _read(archive, name) for name in names}


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, read by small parts: an index limits the size of one."""
    with archive.open(name) as stream:
        return b"".join(iter(functools.partial(stream.read, 1 << 20), b""))


def plant(
    layout: Path,
    out: Path,
    *,
    files: Mapping[str, bytes] | None = None,
    removed: Iterable[str] = (),
    environment: Iterable[str] = (),
) -> Path:
    """A layout ``out`` that has the image of ``layout`` with these files (absolute paths) above it, and without the removed
    ones. The blobs of the image are links."""
    blobs = out / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for blob in (layout / "blobs" / "sha256").iterdir():
        os.link(blob, blobs / blob.name)

    def read(digest: str) -> Any:
        return json.loads((blobs / digest.removeprefix("sha256:")).read_bytes())

    def write(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return f"sha256:{digest}"

    index = json.loads((layout / "index.json").read_text())
    manifest = read(index["manifests"][0]["digest"])
    config = read(manifest["config"]["digest"])
    layer = _layer(files or {}, removed)
    digest = write(layer)
    manifest["layers"].append({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": len(layer)})
    config["rootfs"]["diff_ids"].append(digest)
    config["config"]["Env"] = [*(config["config"].get("Env") or ()), *environment]
    written = json.dumps(config).encode()
    manifest["config"] |= {"digest": write(written), "size": len(written)}
    written = json.dumps(manifest).encode()
    index["manifests"][0] |= {"digest": write(written), "size": len(written)}
    (out / "index.json").write_text(json.dumps(index))
    (out / "oci-layout").write_text((layout / "oci-layout").read_text())
    return out


def _layer(files: Mapping[str, bytes], removed: Iterable[str]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path in removed:
            folder, _, name = path.lstrip("/").rpartition("/")
            tar.addfile(tarfile.TarInfo(f"{folder}/.wh.{name}"))
        for path, content in files.items():
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return whole.getvalue()
