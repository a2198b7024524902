"""The sources from which the link check reads an image: the engine and the layer store, or an OCI image layout."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envbuild import files
from envbuild.errors import InvalidInputError, UnknownNameError, UsageError, VerifyError
from envbuild.model.progress import counted
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.compose.model import Layer

_PIECE = 1 << 20
_SYSTEM, _PROCESSOR = "linux", "amd64"
_LARGEST_DOCUMENT = 8 << 20
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = "org.opencontainers.image.ref.name"
# The name, tag, digest or id of an image: https://github.com/distribution/reference/blob/main/reference.go
_HOST, _PART = r"[A-Za-z0-9.-]+(?::\d+)?", r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"sha256:[0-9a-f]{{64}}|(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


class LayerStream(NamedTuple):
    """The uncompressed tar file of a layer, in pieces.

    ``diff_id`` returns the diff id (hex) of the layer. It may be called only after the last piece was read.
    """

    pieces: Iterable[bytes]
    diff_id: Callable[[], str]


Contents = Generator[LayerStream, None, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image: the diff ids (hex) of its ``layers``, lowest first, its environment variables, and a function to read layers.

    ``read`` yields the layers with the given diff ids in any order, and may also yield other layers. The caller must read each
    layer to its end before it requests the next layer.
    """

    name: str
    layers: tuple[str, ...]
    environment: Mapping[str, str]
    read: Callable[[Sequence[str]], Contents]


def of_engine(tools: Tools, reference: str) -> Image:
    """Return the image that the engine has under the name ``reference``. Layers that the layer store has are read from there.

    Raises :class:`UsageError` (``bad-image``) if ``reference`` cannot be a name, :class:`UnknownNameError` (``no-image``) if
    the engine has no such image, and :class:`InvalidInputError` (``image-platform``) if the image is for another processor.
    """
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(
            f"{reference!r} is not the name of an image.",
            code="bad-image",
            hint=_hint_for_folder(reference)
            or "Write NAME, NAME:TAG, NAME@sha256:DIGEST, or the id of an image, as `docker images` lists them.",
        )
    info = tools.engine.image(reference)
    if info is None:
        raise UnknownNameError(
            f"The engine has no image {reference!r}.",
            code="no-image",
            hint=_hint_for_folder(reference)
            or "`docker images` lists its images. To check an OCI image layout, write oci:FOLDER.",
        )
    if info.architecture not in ("", _PROCESSOR):
        raise _other_platform(reference, info.architecture)
    return Image(
        name=reference,
        layers=tuple(each.removeprefix("sha256:") for each in info.layers),
        environment=_variables(info.env),
        read=functools.partial(_read_engine, tools, info.id),
    )


def _hint_for_folder(reference: str) -> str:
    """Return a hint if the user named a folder instead of an image; otherwise an empty text."""
    return f"{reference} is a folder. If it is an OCI image layout, write oci:{reference}." if Path(reference).is_dir() else ""


def _read_engine(tools: Tools, image: str, wanted: Sequence[str]) -> Contents:
    from envbuild.compose import engine_image

    known = engine_image.recall(tools.workspace.composed_images, image)
    left = set(wanted)
    if known is not None:
        for layer in known.layers:
            if layer.diff_id in left and (pieces := _stored(tools, layer)) is not None:
                left.discard(layer.diff_id)
                yield _hashed(_intact(pieces, layer.digest))
    if not left:
        return
    with contextlib.closing(tools.engine.layer_tars(image, left)) as tars:  # type: ignore[type-var]  # it is a generator
        for tar in tars:
            yield LayerStream(tar, tar.diff_id)
            left.discard(tar.diff_id())
            if not left:
                return


def _hashed(pieces: Iterable[bytes]) -> LayerStream:
    """Return the pieces with a diff id that is computed from them, because a truncated layer may look like a whole one."""
    seen = hashlib.sha256()

    def noted() -> Iterator[bytes]:
        for piece in pieces:
            seen.update(piece)
            yield piece

    return LayerStream(noted(), seen.hexdigest)


def _intact(pieces: Iterable[bytes], digest: str) -> Iterator[bytes]:
    """Yield the pieces of a stored layer. Raises :class:`VerifyError` (``layer-damaged``) if a piece cannot be read."""
    from envbuild.compose.unpack import DamagedError

    try:
        yield from pieces
    except (DamagedError, OSError) as error:
        raise VerifyError(
            f"The layer sha256:{digest} in the cache folder cannot be read: {error}.",
            code="layer-damaged",
            hint="`envbuild cache verify` removes damaged layers; then build the image again.",
        ) from error


def _stored(tools: Tools, layer: Layer) -> Iterator[bytes] | None:
    """Return the uncompressed layer from the layer store; None if the store does not have the layer."""
    from envbuild.compose.unpack import unpacked
    from envbuild.pipeline import composing

    store = composing.store_of(tools)
    return unpacked(store.read(layer, checked=False), layer.media_type) if store.has(layer) else None


def of_layout(folder: Path, name: str) -> Image:
    """Return the image ``name`` in an OCI image layout. If ``name`` is empty, return the only image in the layout.

    Raises :class:`InvalidInputError` (``not-a-layout``, or ``image-platform`` if the image is for another system or processor),
    and :class:`UnknownNameError` (``no-image``).
    """
    try:
        entries = _document(folder, folder / "index.json")["manifests"]
        held = {str((each.get("annotations") or {}).get(_NAME, "")): each for each in entries}
        if (name and name not in held) or (not name and len(entries) != 1):
            names = ", ".join(sorted(filter(None, held))) or "no image there has a name"
            wanted = f"no image {name!r}" if name else counted(len(entries), "image")
            raise UnknownNameError(
                f"{folder} has {wanted}.",
                code="no-image",
                hint=f"Write oci:FOLDER:NAME with the name of one of its images: {names}.",
            )
        manifest = _manifest(folder, held[name] if name else entries[0])
        config = _blob(folder, manifest["config"]["digest"])
        platform = (str(config.get("os") or _SYSTEM), str(config.get("architecture") or _PROCESSOR))
        layers = tuple(_hex(each) for each in config["rootfs"]["diff_ids"])
        blobs = {
            diff_id: (folder / "blobs" / "sha256" / _hex(each["digest"]), str(each["mediaType"]))
            for diff_id, each in zip(layers, manifest["layers"], strict=True)
        }
        environment = _variables((config.get("config") or {}).get("Env") or ())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _not_a_layout(folder, f"{type(error).__name__}: {str(error)[:200]}") from error
    if platform != (_SYSTEM, _PROCESSOR):
        raise _other_platform(f"The image in {folder}", "/".join(platform)[:80])
    return Image(name=f"oci:{folder}", layers=layers, environment=environment, read=functools.partial(_read_layout, blobs))


def _read_layout(blobs: Mapping[str, tuple[Path, str]], wanted: Sequence[str]) -> Contents:
    for diff_id in wanted:
        yield _hashed(_unpacked_blob(*blobs[diff_id]))


def _unpacked_blob(path: Path, media_type: str) -> Iterator[bytes]:
    from envbuild.compose.unpack import DamagedError, unpacked

    try:
        with path.open("rb") as stream:
            yield from unpacked(iter(functools.partial(stream.read, _PIECE), b""), media_type)
    except DamagedError as error:
        raise _not_a_layout(path, f"the layer is damaged ({error})") from error
    except OSError as error:
        raise _not_a_layout(path, f"the layer cannot be read ({error.strerror})") from error


def _manifest(folder: Path, entry: Mapping[str, Any]) -> Any:
    """Return the manifest of an image in the index of the layout.

    If the image is for several platforms, return its manifest for Linux on x86-64.
    """
    found = _blob(folder, entry["digest"])
    if entry.get("mediaType") in _INDEXES or "manifests" in found:
        fitting = [
            each
            for each in found["manifests"]
            if (_platform(each).get("os"), _platform(each).get("architecture")) == (_SYSTEM, _PROCESSOR)
        ]
        if not fitting:
            platforms = ", ".join(f"{told.get('os')}/{told.get('architecture')}" for told in map(_platform, found["manifests"]))
            raise _other_platform(f"The image in {folder}", platforms[:80] or "no platform")
        found = _blob(folder, fitting[0]["digest"])
    return found


def _platform(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("platform") or {}


def _blob(folder: Path, digest: str) -> Any:
    return _document(folder, folder / "blobs" / "sha256" / _hex(digest))


def _document(folder: Path, path: Path) -> Any:
    try:
        return json.loads(files.read_bytes(path, _LARGEST_DOCUMENT))
    except OSError as error:
        raise _not_a_layout(folder, f"{path.name} cannot be read ({error.strerror})") from error


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest!r} is not a sha256")
    return match[1]


def _other_platform(image: str, platform: str) -> InvalidInputError:
    return InvalidInputError(
        f"{image} is for {platform}, and linkcheck reads only programs and libraries for Linux on x86-64.",
        code="image-platform",
        hint="Pull or save the image for linux/amd64.",
    )


def _not_a_layout(folder: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{folder} is not an OCI image layout: {why}.",
        code="not-a-layout",
        hint="`envbuild save NAME --to oci:FOLDER` writes one.",
    )


def _variables(texts: Iterable[str]) -> dict[str, str]:
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def system_of(texts: Mapping[str, str]) -> str:
    """Return the operating system of an image, such as ``debian12``, from its os-release file; empty without such a file."""
    text = texts.get("/etc/os-release") or texts.get("/usr/lib/os-release") or ""
    found = {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in text.splitlines())}
    return f"{found.get('ID', '')}{found.get('VERSION_ID', '')}"
