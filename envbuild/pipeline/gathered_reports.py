"""The smoke reports of other machines that ``evidence --from`` accepted, as they are kept in the cache folder."""

from __future__ import annotations

from dataclasses import dataclass

from envbuild import codec
from envbuild.errors import InvalidInputError
from envbuild.pipeline import evidence, proofs, stage_cache
from envbuild.pipeline.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedReport:
    """A smoke report that was accepted: where it comes from, who signed it (``signer``), what it tested, and on which machine.

    ``gpus`` are names, ``capabilities`` such as ``6.1``; both are empty for a test on the CPU.
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
    """The accepted reports about one environment, as they are kept in the cache folder."""

    schema: int
    name: str
    reports: tuple[AcceptedReport, ...]


def held(tools: Tools, name: str) -> tuple[AcceptedReport, ...]:
    """Return the stored reports about ``name`` whose lock, rendering and guest are the current ones."""
    path = tools.workspace.gathered_file(name)
    if not path.exists():
        return ()
    try:
        kept = codec.decode(Gathered, stage_cache.read_json(path), path.name)
    except InvalidInputError:
        return ()  # damaged, or of another version: the next `evidence --from` writes it again
    subject = proofs.subject_of(tools, name)
    return tuple(each for each in kept.reports if (each.lock, each.rendering, each.guest) == subject)
