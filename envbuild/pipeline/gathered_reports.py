"""Reads the smoke reports of other machines that ``evidence --from`` accepted and stored in the cache folder."""

from __future__ import annotations

from dataclasses import dataclass

from envbuild import codec
from envbuild.errors import InvalidInputError
from envbuild.pipeline import evidence, proofs, stage_cache
from envbuild.pipeline.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedReport:
    """A smoke report that was accepted: its source, the key that signed it (``signer``), the tested image, and the machine.

    ``gpus`` are names of GPUs. ``capabilities`` are compute capabilities such as ``6.1``. Both are empty for a test on the CPU.
    """

    repository: str
    digest: str
    signer: str
    status: str
    kind: evidence.Kind
    gpus: tuple[str, ...]
    capabilities: tuple[str, ...]
    driver: str
    processor: str
    date: str
    lock: str
    rendering: str
    guest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """The content of a file in the cache folder. The file contains the accepted reports about one environment."""

    schema: int
    name: str
    reports: tuple[AcceptedReport, ...]


def held(tools: Tools, name: str) -> tuple[AcceptedReport, ...]:
    """Return the stored reports about ``name`` that were made with the current lock, rendering and guest."""
    path = tools.workspace.gathered_file(name)
    if not path.exists():
        return ()
    try:
        kept = codec.decode(Gathered, stage_cache.read_json(path), path.name)
    except InvalidInputError:
        return ()  # the file is damaged or from another version; the next `evidence --from` writes it again
    subject = proofs.subject_of(tools, name)
    return tuple(each for each in kept.reports if (each.lock, each.rendering, each.guest) == subject)
