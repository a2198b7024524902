"""The contents of the catalogue, as values. ``catalogue.json`` is :class:`Catalogue` as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from envbuild.model.progress import counted_each
from envbuild.model.vulnerabilities import Audit

SCHEMA = 1
# The stages that can be proved, in their order, with their wording on the pages.
PROOFS = {
    "locked": "locked",
    "downloaded": "downloaded",
    "rendered": "rendered",
    "built": "built",
    "verified": "verified",
    "linked": "linked",
    "smoke-cpu": "trained on CPU",
    "smoke-gpu": "trained on GPU",
}
_OPTIONAL: Any = {"left_out_if_default": True}


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """One pinned file.

    ``source`` is the package index, archive or address that has the file. ``size`` is in bytes, and 0 if the size is unknown.
    """

    name: str
    version: str
    filename: str
    sha256: str
    size: int
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPart:
    """Files that one step installs together, such as the packages of a prefix."""

    title: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """The number of bytes to download. Files of unknown size do not count."""
        return sum(file.size for file in self.files)

    @property
    def unknown(self) -> int:
        """The number of files whose size is unknown."""
        return sum(not file.size for file in self.files)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One chosen version, why it was chosen, and the document that supports the choice."""

    what: str
    because: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkEntry:
    """One framework of an environment. ``source`` is the document about its release."""

    name: str
    title: str
    version: str
    package: str
    released: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proved:
    """One valid proof.

    ``where`` says where the proof is stored: ``repository``, ``this machine``, or ``registry``. A proof in a registry is a
    signed report of other people. ``gpus`` has the name of each GPU that a smoke test used.
    """

    kind: str
    date: str
    engine: str
    where: str
    gpus: tuple[str, ...] = field(default=(), metadata=_OPTIONAL)

    @property
    def machine(self) -> str:
        """The number and the name of the GPUs, such as ``2 x A100``. Empty if the test used none."""
        return counted_each(self.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfSupport:
    """The day (or month) after which a part of an environment, such as Python or the system, is no longer supported."""

    what: str
    date: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """One row of a smoke report."""

    workload: str
    workers: int
    images_per_s: float | None
    speedup: str
    efficiency: float | None
    accuracy: float | None
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoke:
    """One smoke report: its verdict in a sentence, the machine, and the speed on one and on several devices.

    ``signer`` is the key with which a report from a registry is signed. It is empty for a report of this machine. ``sha256`` is
    the hash of the report as JSON with sorted keys. Copies of one report have the same hash.
    """

    verdict: str
    sentence: str
    started: str
    machine: str
    rows: tuple[Speed, ...]
    signer: str = field(default="", metadata=_OPTIONAL)
    sha256: str = field(default="", metadata=_OPTIONAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerEntry:
    """One layer of a published image; ``size`` is the number of bytes that are transferred."""

    digest: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """A statement about an image: its type (``kind``), and the trusted key that signed it."""

    kind: str
    signer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedImage:
    """The image of a lock in a registry.

    ``reference`` is the name of the image in the registry, and ``digest`` is the digest of the image's manifest. ``signed_by``
    are the trusted keys with which the image is signed; it is None if no signature was checked. ``statements`` are the accepted
    statements that trusted keys signed. ``others`` is the number of attached statements that are not shown, because they could
    not be read or were not accepted. ``has_other_inputs`` is true if signatures were checked, and the image was made from
    another rendering or guest than this checkout has.
    """

    reference: str
    digest: str
    layers: tuple[LayerEntry, ...]
    signed_by: tuple[str, ...] | None = field(default=None, metadata=_OPTIONAL)
    statements: tuple[Stated, ...] = field(default=(), metadata=_OPTIONAL)
    others: int = field(default=0, metadata=_OPTIONAL)
    has_other_inputs: bool = field(default=False, metadata=_OPTIONAL)

    @property
    def size(self) -> int:
        """The bytes of all layers."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class LockEntry:
    """What the lock pins. ``missing`` says what could not be pinned, and why."""

    sha256: str
    missing: tuple[str, ...]
    parts: tuple[InstalledPart, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One environment of the checkout.

    ``vulnerabilities`` is None if no database was given. ``changes`` is None if no earlier catalogue was given. ``published``
    is None if no registry was given, or if the registry does not have the image. ``proved_on`` has the name and the compute
    capability of each GPU on which a smoke test passed, according to accepted reports in the registry.
    """

    name: str
    why: str
    frameworks: tuple[FrameworkEntry, ...]
    python: str
    os: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    driver_min: str | None
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    only_ptx: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    base: str
    base_provider: str
    base_digest: str
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
    proofs: tuple[Proved, ...]
    ends: tuple[EndOfSupport, ...]
    lock: LockEntry
    sbom: str
    page: str
    vulnerabilities: Audit | None = None
    reports: tuple[Smoke, ...] = ()
    published: PublishedImage | None = None
    changes: tuple[str, ...] | None = None
    proved_on: tuple[tuple[str, str], ...] = field(default=(), metadata=_OPTIONAL)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of proof, each once, in the order of the stages."""
        return tuple(dict.fromkeys(proof.kind for proof in self.proofs))

    @property
    def updated(self) -> str:
        """The day of the newest proof; empty if there is no proof."""
        return max((proof.date for proof in self.proofs), default="")

    @property
    def size(self) -> int:
        """The bytes to download, of the files whose size is known."""
        return sum(part.size for part in self.lock.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRow:
    """One row of the search page. Only an environment of the checkout has a ``page``; the other rows are environments of the
    matrix.

    ``builds`` are the kinds of its GPU builds, as numbers in the table of machines. ``builds`` is empty for a CPU environment,
    and None if the resolver now gives another environment for this name. ``driver`` and ``gpus`` are the driver and GPUs that
    the file of a stack states. ``proved_on`` has the same meaning as in :class:`CatalogueEntry`.
    """

    name: str
    frameworks: tuple[tuple[str, str], ...]
    python: str
    os: str
    cuda: str
    driver_min: str
    status: str
    released: str
    proofs: tuple[str, ...]
    page: str
    builds: tuple[int, ...] | None
    driver: str = ""
    gpus: tuple[str, ...] = ()
    proved_on: tuple[tuple[str, str], ...] = field(default=(), metadata=_OPTIONAL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """The whole catalogue. ``updated`` is the day of its newest proof.

    ``since`` is the label of the earlier catalogue with which this catalogue was compared. ``gone`` has the names of the
    environments that only the earlier catalogue has. ``words`` maps the title of a framework to the names by which people
    search for the framework.
    """

    schema: int
    made_by: str
    title: str
    updated: str
    matrix: str
    since: str
    words: dict[str, str]
    entries: tuple[CatalogueEntry, ...]
    rows: tuple[SearchRow, ...]
    gone: tuple[str, ...] = field(default=(), metadata=_OPTIONAL)
