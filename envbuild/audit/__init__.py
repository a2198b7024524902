"""Known vulnerabilities of what a lock pins: what the databases say, and what they were not asked about."""

from __future__ import annotations

from pathlib import Path

from envbuild.audit.findings import Audit, Finding
from envbuild.model import Lock

__all__ = ["Audit", "Finding", "audit"]


def audit(lock: Lock, *, database: Path | None, service: str) -> Audit:
    """The known vulnerabilities of the Python packages of ``lock``, by package and advisory.

    ``database`` is a folder or zip of OSV records (as https://osv.dev offers for PyPI); without one, ``service`` (``osv`` or
    ``pypi``) is asked through pip-audit. Raises :class:`PublishError` (``advisories-unreachable``) where it does not answer,
    :class:`UsageError` or :class:`InvalidInputError` for a database that is none.
    """
    pinned = {(artifact.name, artifact.version): artifact for prefix in lock.prefixes for artifact in prefix.artifacts}
    packages = [pinned[key] for key in sorted(pinned)]
    if database is not None:
        from envbuild.audit import database as local

        answer = local.search(database, packages)
    else:
        from envbuild.audit import service as remote

        answer = remote.ask(service, packages)
    return Audit(
        database=answer.database,
        checked=len(packages) - len(answer.unchecked),
        findings=tuple(answer.findings),
        unchecked=(*answer.unchecked, *_unchecked(lock)),
    )


def _unchecked(lock: Lock) -> tuple[str, ...]:
    said: list[str] = []
    debian = len(lock.base.bootstrap.packages) if lock.base.bootstrap else 0
    if debian:
        said.append(f"{debian} Debian packages of the base")
    else:
        said.append(f"the packages inside {lock.base.image}")
    if lock.environment.base.packages:
        said.append(f"{len(lock.environment.base.packages)} packages of CUDA repositories")
    said += [f"{item.what}, which is not pinned" for item in lock.missing]
    return tuple(said)
