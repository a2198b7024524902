"""Write small OCI image layouts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def write_layout(folder: Path, layer: bytes, media_type: str, diff_id: str, **platform: str) -> Path:
    """Write a layout whose only image has one layer, and return ``folder``.

    ``diff_id`` is the sha256 (hex) that the image states of the uncompressed layer. ``platform`` goes into its config.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return f"sha256:{digest}"

    config = {"rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]}, **platform}
    layers = [{"digest": blob(layer), "mediaType": media_type}]
    manifest = {"config": {"digest": blob(json.dumps(config).encode())}, "layers": layers}
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": blob(json.dumps(manifest).encode())}]}))
    return folder
