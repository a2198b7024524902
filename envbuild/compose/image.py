"""The configuration of a composed image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.compose.model import ComposedImage, Layer

# The settings in an engine's answer that belong to the image, not to one of its containers. ``Shell`` is an addition of Docker
# to the OCI settings: https://github.com/opencontainers/image-spec/blob/main/config.md
_KEPT = ("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal", "Shell")


def image(
    layers: Sequence[tuple[Layer, str]], settings: Mapping[str, Any], *, architecture: str, created: str
) -> ComposedImage:
    """Make the image of ``layers``, lowest first. Each layer comes with its text for the image's history.

    ``settings`` are the skeleton's container settings as the engine reports them. ``created`` is a time in the form of RFC
    3339. Equal arguments give equal bytes.
    """
    config = {
        "architecture": architecture,
        "config": {name: settings[name] for name in _KEPT if settings.get(name)},
        "created": created,
        "history": [{"created": created, "created_by": words} for _, words in layers],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff_id}" for layer, _ in layers]},
    }
    content = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    return ComposedImage(config=content, layers=tuple(layer for layer, _ in layers))
