"""``catalogue``: gathers the facts about every environment of the checkout, for a static site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import codec, files
from envbuild.catalogue import model
from envbuild.catalogue.changes import compare
from envbuild.catalogue.machines import Machines, MachineTable
from envbuild.catalogue.model import Catalogue, CatalogueEntry
from envbuild.errors import InvalidInputError, Problem, UsageError
from envbuild.model.progress import Progress
from envbuild.pipeline import (
    catalogue_entries,
    catalogue_registry,
    catalogue_release,
    catalogue_rows,
    committed,
    trusted_sources,
)
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey

_LARGEST = 256 * 2**20  # largest size of an earlier catalogue.json, in bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """The sources of a catalogue in addition to the checkout.

    ``url`` is the address of the finished site. ``databases`` are local OSV databases. ``registry`` is a repository with
    published images. Statements about these images are shown if they are signed with one of the keys ``trusted``, or with the
    key of a signer of the policy. ``since`` is an earlier ``catalogue.json``; without it, the changes since the last release of
    the ``registry`` are shown. ``with_machine`` includes the proofs and measurements of this machine.
    """

    title: str = "Deep-learning environments"
    url: str = ""
    databases: tuple[Path, ...] = ()
    registry: str = ""
    trusted: tuple[PublicKey, ...] = ()
    since: Path | None = None
    with_machine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteContents:
    """The catalogue, its table of machines, and the bills of materials. ``sboms`` maps the path of each file to its text."""

    catalogue: Catalogue
    machines: Machines
    sboms: Mapping[str, str]


def gather(tools: Tools, sources: Sources) -> SiteContents:
    """Gather the content of the catalogue.

    Raises :class:`InvalidInputError` for damaged locks and evidence, and :class:`PolicyError` if the policy does not allow the
    registry or a trusted key. Errors of the registry of ``sources`` are passed on.
    """
    import envbuild

    earlier = _earlier(sources.since) if sources.since is not None else None
    trusted = trusted_sources.trusted(tools, sources.registry, sources.trusted) if sources.registry else ()
    if sources.registry:
        catalogue_registry.require_repository(sources.registry)  # before the locks are read, which takes long
    locks = list(_locks(tools))
    reasons = committed.listed(tools.workspace)
    entries, sboms = [], {}
    for index, locked in enumerate(locks):
        name = locked.lock.environment.name
        tools.on_progress(Progress(stage="catalogue", message=name, done=index, total=len(locks), unit="environments"))
        entry = catalogue_entries.entry_of(
            tools,
            locked,
            reasons.get(name, ""),
            with_machine=sources.with_machine,
        )
        sboms[entry.sbom] = _sbom(locked)
        entries.append(entry)
    if sources.registry:
        entries = list(catalogue_registry.published(tools, entries, sources.registry, trusted))
    if sources.databases:
        entries = [_audited(tools, entry, locked, sources) for entry, locked in zip(entries, locks, strict=True)]
    table = MachineTable(matrix=tools.matrix)
    tools.on_progress(Progress(stage="catalogue", message="listing the environments of the matrix"))
    rows = catalogue_rows.rows_of(tools, entries, [locked.lock.environment for locked in locks], table)
    tools.on_progress(Progress(stage="catalogue", message="resolving for each driver and GPU"))
    whole = Catalogue(
        schema=model.SCHEMA,
        made_by=f"envbuild {envbuild.__version__}",
        title=sources.title,
        updated=max((entry.updated for entry in entries), default=""),
        matrix=tools.matrix.fingerprint,
        since="",
        words=catalogue_rows.words_of(tools),
        entries=tuple(entries),
        rows=tuple(rows),
    )
    if earlier is not None:
        label = f"{earlier['title']}, as of {earlier['updated'] or 'an unknown day'}"
        whole = compare(whole, earlier, label, is_registry_known=bool(sources.registry))
    elif sources.registry:
        whole = catalogue_release.with_changes(tools, whole, sources.registry, trusted)
    return SiteContents(catalogue=whole, machines=table.machines(), sboms=sboms)


def files_of(gathered: SiteContents, sources: Sources) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every file of the site."""
    from envbuild.catalogue.pages import pages
    from envbuild.run_commands.model import SHM_SIZE

    url = f"{sources.url.rstrip('/')}/" if sources.url else ""
    has_asked = bool(sources.registry)
    yield from pages(gathered.catalogue, gathered.machines, shm_size=SHM_SIZE, url=url, asked_registry=has_asked)
    yield from gathered.sboms.items()


def _locks(tools: Tools) -> Iterator[Locked]:
    for name in committed.names(tools):
        locked = read_locked(tools, name)
        if locked is not None:
            yield locked


def _sbom(locked: Locked) -> str:
    from envbuild import sbom

    return sbom.dumps(locked.lock, locked.digest)


def _audited(tools: Tools, entry: CatalogueEntry, locked: Locked, sources: Sources) -> CatalogueEntry:
    """Return the entry with the known vulnerabilities of the packages that the lock pins.

    The system packages are read from the local image. They are read only if the catalogue includes results of this machine.
    """
    from envbuild.audit import audit
    from envbuild.pipeline import image_checks

    found, why = None, "this catalogue was made without `--this-machine`, so no image was read"
    if sources.with_machine:
        found, why = image_checks.sources_of_image(tools, entry.name, locked.digest)
    if entry.published is not None:
        here = f"; {why}" if sources.with_machine else ""
        why = f"the contents of the published image were not read{here}"
    tools.on_progress(Progress(stage="audit", message=entry.name))
    known = audit(locked.lock, databases=sources.databases, service="", sources=found, why_no_sources=why)
    return replace(entry, vulnerabilities=known)


def _earlier(path: Path) -> Mapping[str, Any]:
    """Return the content of an earlier ``catalogue.json``.

    Raises :class:`UsageError` if the file cannot be read. Raises :class:`InvalidInputError` (``catalogue``) if the file is not
    a ``catalogue.json`` of this version of envbuild.
    """
    try:
        content = codec.loads(files.read_bytes(path, _LARGEST))
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror or error}.",
            hint="--since needs the catalogue.json of an earlier catalogue.",
        ) from error
    except ValueError as error:
        raise _no_catalogue(path, str(error)) from error
    import jsonschema

    schema = json.loads(resources.files("envbuild.schemas").joinpath("catalogue.json").read_text(encoding="utf-8"))
    problem = next(jsonschema.validators.validator_for(schema)(schema).iter_errors(content), None)
    if problem is not None:
        raise _no_catalogue(path, f"{problem.json_path}: {problem.message[:200]}")
    found: Mapping[str, Any] = content
    return found


def _no_catalogue(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is not a catalogue.json of this version of envbuild.",
        code="catalogue",
        hint="--since needs the catalogue.json of an earlier catalogue.",
        problems=[Problem(where=str(path), line=0, message=why)],
    )
