"""List the known vulnerabilities of an environment, and the packages that could not be checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.audit.database import AuditedPackage
from envbuild.model.lock import Lock
from envbuild.model.vulnerabilities import Audit


def audit(
    lock: Lock,
    *,
    databases: Sequence[Path],
    service: str,
    sources: Sequence[tuple[str, str, str]] | None = None,
    why_no_sources: str = "no image was read",
) -> Audit:
    """Return the known vulnerabilities of the packages of ``lock`` and of its image, sorted by package and advisory.

    ``databases`` are folders or zips of OSV records (as https://osv.dev offers them for PyPI and for Debian). Without a
    database, pip-audit queries ``service`` (``osv`` or ``pypi``) for the Python packages only. ``sources`` lists the binary
    package, source package and source version of every package that the image's package manager installed. ``sources`` is None
    if no image was read, for the reason ``why_no_sources``, and empty if the image has no dpkg.

    Raises :class:`PublishError` (``advisories-unreachable``) if the service does not answer. Raises :class:`UsageError` or
    :class:`InvalidInputError` if a database or pip-audit cannot be used.
    """
    pinned = {(artifact.name, artifact.version): artifact for prefix in lock.prefixes for artifact in prefix.installed}
    artifacts = [pinned[key] for key in sorted(pinned)]
    system = list(_system_packages(lock, sources or ()))
    if databases:
        from envbuild.audit import database as local

        python = [AuditedPackage(ecosystem=local.PYPI, name=each.name, version=each.version) for each in artifacts]
        answer = local.search(databases, [*python, *system])
        not_asked: tuple[str, ...] = ()
    else:
        from envbuild.audit import service as remote

        answer = remote.ask(service, artifacts)
        why = "the service knows Python packages only; for others, use a local OSV database (--database)"
        not_asked = (f"{len(system)} packages of {system[0].ecosystem}: {why}",) if system else ()
    return Audit(
        database=answer.database,
        checked=answer.checked,
        findings=answer.findings,
        unchecked=(*answer.unchecked, *not_asked, *_unchecked(lock, sources, why_no_sources)),
    )


def _system_packages(lock: Lock, sources: Sequence[tuple[str, str, str]]) -> Iterator[AuditedPackage]:
    """Return the distribution's source packages, each once. Packages from CUDA repositories are left out."""
    system = lock.environment.system
    foreign = {package.name for package in lock.environment.base.packages}
    found = {(source, version) for name, source, version in sources if name not in foreign}
    ecosystem = f"{system.family.capitalize()}:{system.version}"
    yield from (AuditedPackage(ecosystem=ecosystem, name=name, version=version) for name, version in sorted(found))


def _unchecked(lock: Lock, sources: Sequence[tuple[str, str, str]] | None, why_no_sources: str) -> Iterator[str]:
    environment = lock.environment
    if sources is not None and not sources:
        yield "the system packages of the image: it has no dpkg, so they cannot be listed"
    if sources is None:
        yield f"the packages of {environment.system.name}: {why_no_sources}"
    if environment.base.packages:
        yield f"{len(environment.base.packages)} packages of CUDA repositories, which no database covers"
    if environment.base.files:
        yield f"{len(environment.base.files)} conda packages of CUDA, which no database covers"
    for prefix in lock.prefixes:
        if prefix.python.is_fetched:
            yield f"Python {prefix.python.version} of {prefix.path}, which is not a package of the distribution"
    for framework in environment.frameworks:
        if framework.options.get("repository"):
            yield f"{framework.name} {framework.version}, which is built from its repository"
    yield from (f"{item.what}, which is not pinned" for item in lock.missing)
