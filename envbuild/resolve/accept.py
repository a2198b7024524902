"""Whether the matrix still accepts an earlier decision. Preferred or not does not matter: a lock outlives preferences."""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.errors import Conflict
from envbuild.matrix.libraries import accepts
from envbuild.matrix.types import Matrix, Release, Variant
from envbuild.matrix.versions import numbers
from envbuild.model import Environment, Framework, Python
from envbuild.resolve.facts import Facts, row_of, status_objection
from envbuild.resolve.places import offers_on, python_on, system_objections


def refusals(matrix: Matrix, environment: Environment) -> list[Conflict]:
    """What the matrix now says against a decision; empty where it still accepts it."""
    facts = Facts(matrix)
    found: list[Conflict] = []
    for framework in environment.frameworks:
        found.extend(_framework(facts, environment, framework))
    return list(dict.fromkeys(found))


def _framework(facts: Facts, environment: Environment, framework: Framework) -> Iterator[Conflict]:
    row = f"{framework.name} {framework.version}"
    table = next((table for table in facts.matrix.frameworks if table.name == framework.name), None)
    release = next((item for item in table.releases if item.version == framework.version), None) if table else None
    if release is None:
        yield Conflict(row=row, reason="is not in the matrix", source=table.origin.source if table else "")
        return
    variants = [item for item in release.variants if _same_build(item, environment, framework)]
    if not variants:
        built = f"CUDA {environment.cuda}" if environment.cuda else "CPU"
        reason = f"has no build {framework.package} for {built} any more"
        yield Conflict(row=row, reason=reason, source=release.origin.source)
        return
    options = [list(_variant(facts, environment, framework, release, variant)) for variant in variants]
    yield from min(options, key=len)


def _same_build(variant: Variant, environment: Environment, framework: Framework) -> bool:
    return (variant.package, variant.cuda or None, variant.cuda_libraries) == (
        framework.package,
        environment.cuda,
        framework.cuda_libraries,
    )


def _variant(
    facts: Facts, environment: Environment, framework: Framework, release: Release, variant: Variant
) -> Iterator[Conflict]:
    row = row_of(framework.name, release, variant)
    origin = variant.origin
    if origin.status == "known-bad":
        yield Conflict(row=row, reason=f"known not to work: {origin.note}", source=origin.source)
    if (cuda := facts.cuda.get(variant.cuda)) and (bad := status_objection(cuda.key, cuda.origin)):
        yield bad.conflict
    if environment.python.version not in variant.python:
        reason = f"supports Python {', '.join(variant.python)}, no longer {environment.python.version}"
        yield Conflict(row=row, reason=reason, source=origin.source_of("python"))
    for own in variant.pins(release.version):
        if own not in framework.requirements:
            yield Conflict(row=row, reason=f"is now installed as {own}", source=origin.source_of("package"))
    if variant.index != framework.index:
        yield Conflict(row=row, reason=f"now comes from another index: {variant.index}", source=origin.source_of("index"))
    yield from _libraries(row, environment, variant)
    yield from _place(facts, environment, variant)


def _libraries(row: str, environment: Environment, variant: Variant) -> Iterator[Conflict]:
    for name, need, version in (("cudnn", variant.cudnn, environment.cudnn), ("nccl", variant.nccl, environment.nccl)):
        if need is not None and version is not None and not accepts(need, version):
            reason = f"no longer accepts {name} {version}"
            yield Conflict(row=row, reason=reason, source=variant.origin.source_of(name))


def _place(facts: Facts, environment: Environment, variant: Variant) -> Iterator[Conflict]:
    base = environment.base
    system = facts.systems.get(environment.system.name)
    if system is None:
        yield Conflict(row=f"system {environment.system.name}", reason="is not in the matrix", source="")
        return
    image = base.image if base.provider == "local" else ""
    yield from (item.conflict for item in system_objections(variant, system))
    if numbers(system.glibc) != numbers(environment.system.glibc):
        reason = f"has glibc {system.glibc}, not {environment.system.glibc}"
        yield Conflict(row=system.key, reason=reason, source=system.origin.source)
    python = python_on(facts, environment.python.version, system, image)
    if not isinstance(python, Python):
        yield python.conflict
    offers, against = offers_on(facts, variant, system, image)
    serving = [offer for offer in offers if offer.provider == base.provider]
    if not serving:
        reason = f"{base.provider} no longer serves CUDA {environment.cuda or 'none'} here"
        ours = against.get(base.provider, against.get(""))
        yield ours.conflict if ours else Conflict(row=system.key, reason=reason, source=system.origin.source)
    elif base.provider == "tag" and base.image not in {offer.row.image for offer in serving if offer.row}:
        yield Conflict(row=system.key, reason=f"the image {base.image} is no longer listed", source=system.origin.source)
