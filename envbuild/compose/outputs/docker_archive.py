"""Writes a composed image as one file for ``docker load``, ``podman load`` and ``skopeo copy docker-archive:``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envbuild import files
from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import archive
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.model.progress import OnProgress, Progress


def write(image: ComposedImage, store: LayerStore, target: Path, references: Sequence[str], on_progress: OnProgress) -> None:
    """Write ``image`` with its names to ``target`` atomically. The layers stay compressed, as they are in the store."""
    total = float(sum(layer.size for layer in archive.layers_once(image)))
    done = 0
    try:
        files.refuse_device(target)
        with store.in_use(), files.made_folder(target.parent), files.new_file(target.parent, f".{target.name}.") as new:
            for piece in archive.pieces(image, store, references):
                new.stream.write(piece.content)
                if piece.of_layers:
                    done += piece.of_layers
                    news = Progress(stage="archive", message=f"writing {target}", done=float(done), total=total, unit="bytes")
                    on_progress(news)
            if not new.keep(target):
                raise BuildError(
                    f"Another process is writing {target} at the same time.", code="busy", hint="Run the command again."
                )
    except OSError as error:
        raise files.explain_os_error(error, target) from error
