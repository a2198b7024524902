"""Writes a composed image into an OCI image layout: a folder that skopeo, Podman, Apptainer and containerd read."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import archive, manifest
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError, InvalidInputError
from envbuild.model.progress import OnProgress, Progress


def write(image: ComposedImage, store: LayerStore, folder: Path, name: str, on_progress: OnProgress) -> str:
    """Add ``image`` to the layout in ``folder`` as ``name`` (empty: no name), and return the digest of its manifest.

    The folder is made if it is absent. The index keeps its entries of other images, but an entry with the same name is
    replaced. If the layout and the store are on one file system, the layers are hard links to the files of the store.
    Otherwise, they are copies. The index is written last, so it never names an incomplete image, even after a kill. Raises
    :class:`InvalidInputError` (``not-a-layout``) if the folder has other content.
    """
    found = _index(folder)
    blobs = folder / "blobs" / "sha256"
    told = manifest.manifest(image)
    layers = archive.layers_once(image)
    total = sum(layer.size for layer in layers)
    try:
        blobs.mkdir(parents=True, exist_ok=True)
        with store.in_use():
            done = 0
            for layer in layers:
                _place(layer, store, blobs / layer.digest)
                done += layer.size
                on_progress(
                    Progress(stage="oci", message=f"writing {folder}", done=float(done), total=float(total), unit="bytes")
                )
        for document in (manifest.config(image), told):
            files.write_atomic(blobs / document.digest, document.content)
        files.write_atomic(folder / "oci-layout", manifest.LAYOUT)
        with files.locked(folder / ".index.json.lock", limit_s=files.SHORT_WAIT_S):
            others = _others(_index(folder) if found else [], told.digest, name)
            files.write_atomic(folder / "index.json", manifest.index([*others, _named(told, name)]).content)
    except OSError as error:
        raise files.explain_os_error(error, folder, continues=True) from error
    return f"sha256:{told.digest}"


def _place(layer: Layer, store: LayerStore, target: Path) -> None:
    """Link or copy a layer to ``target``, unless this file exists and is right. The file is always read and compared with the
    digest of the layer, because a link to a damaged file would be damaged, too."""
    source = store.blob(layer.digest, layer.size)
    if target.is_symlink() and not target.exists():  # a dangling link would make os.link fail
        target.unlink()
    with contextlib.suppress(FileNotFoundError):
        if target.stat().st_size == layer.size and files.sha256_of(target) == layer.digest:
            return
        target.unlink()
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:  # another file system, no support for hard links, or too many links
        _copy(layer, store, target)
        return
    try:
        for _ in store.read(layer):
            pass
    except BuildError:
        target.unlink(missing_ok=True)
        raise


def _copy(layer: Layer, store: LayerStore, target: Path) -> None:
    with files.new_file(target.parent) as new:
        for piece in store.read(layer):
            new.stream.write(piece)
        new.keep(target)


def _index(folder: Path) -> list[dict[str, Any]]:
    """The entries in ``index.json`` of the layout in ``folder``."""
    place = folder / "index.json"
    if not place.exists():
        if folder.exists() and (not folder.is_dir() or _strangers(folder)):
            raise _not_a_layout(folder, "it contains other files")
        return []
    try:
        manifests = json.loads(files.read_bytes(place))["manifests"]
        if not isinstance(manifests, list) or not all(map(_is_descriptor, manifests)):
            raise ValueError("its manifests are not a list of objects")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise _not_a_layout(folder, f"its index.json cannot be read ({error})") from error
    return manifests


def _is_descriptor(told: object) -> bool:
    return isinstance(told, dict) and isinstance(told.get("annotations") or {}, dict)


def _strangers(folder: Path) -> bool:
    """Whether the folder has files that do not belong to an unfinished layout."""
    ours = (".index.json", ".oci-layout.")  # beginnings of names of files that a killed run was writing
    return any(path.name not in ("blobs", "oci-layout") and not path.name.startswith(ours) for path in folder.iterdir())


def _others(manifests: list[dict[str, Any]], digest: str, name: str) -> list[dict[str, Any]]:
    """The entries of the index that stay when the new image is added. An older image with the same name is not among them."""
    kept = []
    for each in manifests:
        own = (each.get("annotations") or {}).get(manifest.NAME, "")
        if own == name and (name or each.get("digest") == f"sha256:{digest}"):
            continue
        kept.append(each)
    return kept


def _named(told: manifest.Document, name: str) -> dict[str, Any]:
    return {**told.descriptor(), **({"annotations": {manifest.NAME: name}} if name else {})}


def _not_a_layout(folder: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{folder} is not an OCI image layout: {why}.",
        code="not-a-layout",
        hint="Name a new folder, an empty folder, or a folder with an OCI image layout.",
    )
