"""Reads the releases of add-ons: the build of an add-on is a build of the base framework with one more package.

Python, CUDA, cuDNN, NCCL, GPU code and all other facts about such a build come from the base framework's row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envbuild.matrix.pairs import upon as builds_upon
from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading.context import NAME, URL, Context, minors
from envbuild.matrix.reading.requirements import bad_capabilities
from envbuild.matrix.types import Added, BadPair, FrameworkTable, Pairs, Requirement, Variant
from envbuild.matrix.versions import NUMBERS
from envbuild.yaml_reader import Table

# Keys that hold for all builds of an add-on.
_OWN = ("package", "glibc", "bad_capabilities", "nvcc", "optional_nvcc", "only_ptx")
KEYS = ("upon", "python", "local_version", "repository", "revision", *_OWN)

Find = Callable[[Table, str], FrameworkTable | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """The additions of an add-on's release to each build of its base framework."""

    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...]
    asks: tuple[Requirement, ...]
    options: tuple[tuple[str, str], ...]
    contradicts: tuple[tuple[str, str], ...]
    without: tuple[str, ...]
    origin: Provenance


def standing(
    context: Context, levels: Sequence[Table], number: str, find: Find, own: Own
) -> tuple[list[Variant], tuple[Pairs, ...]]:
    """Return the builds of an add-on's release ``number``, and the base releases that the release supports. ``levels`` are the
    tables of the release, its series and its framework. Every key is read from the first of these tables that has the key. If
    ``upon`` is a table itself, each key in it is read in this way, too.

    If two base frameworks have a build for the same CUDA with the same ``cuda_libraries``, the framework that is named first is
    used.
    """
    of = {key: next((table for table in levels if key in table), levels[-1]) for key in KEYS}
    added = Added(
        package=of["package"].text("package", "", pattern=NAME),
        pythons=minors(of["python"], "python"),
        without=own.without,
        same_local_version=of["local_version"].text("local_version", "", choices=("same",)) == "same",
        repository=of["repository"].text("repository", "", pattern=URL),
        revision=of["revision"].text("revision", "", pattern=r"\S+"),
        requirements=own.requirements,
        constraints=own.constraints,
        asks=own.asks,
        options=own.options,
        contradicts=own.contradicts,
        origin=own.origin,
        glibc=of["glibc"].text("glibc", "", pattern=NUMBERS),
        bad_capabilities=bad_capabilities(context, of["bad_capabilities"], own.origin, of_add_on=True),
        nvcc=of["nvcc"].boolean("nvcc"),
        optional_nvcc=of["optional_nvcc"].boolean("optional_nvcc"),
        only_ptx=minors(of["only_ptx"], "only_ptx"),
    )
    table = of["upon"].table("upon")
    names = table.keys() if table is not None else []
    if bool(added.repository) != bool(added.revision):
        levels[0].problem("`repository` and `revision` belong together: set both, or neither")
    for key in _OWN:
        if key in of[key] and not names:
            of[key].problem(f"`{key}` can be written here only for an add-on (with `upon`); otherwise write it into a variant")
    found: list[Variant] = []
    every: list[Pairs] = []
    for name in names:
        framework = find(of["upon"], name)
        pairs = _pairs(context, levels, framework, added) if framework is not None else None
        if framework is None or pairs is None:
            continue
        every.append(pairs)
        others = {pairs.taken, *pairs.tested, *pairs.allowed} - {number}
        if not added.package and others:
            of["upon"].problem(
                f"without `package`, this is a part of {name} and must have the version of {name}, {max(others)}", "upon"
            )
        taken = {(variant.cuda, variant.cuda_libraries) for variant in found}
        for version in dict.fromkeys((pairs.taken, pairs.taken_cuda)):
            below = next(release for release in framework.releases if release.version == version)
            if added.package and not all(variant.pins(version) for variant in below.variants):
                of["upon"].problem(f"{name} {version} is on no package index, so no add-on can be based on it", "upon")
            ours = [built for built in builds_upon(pairs, below) if version == pairs.takes(built.cuda)]
            found += [built for built in ours if (built.cuda, built.cuda_libraries) not in taken]
    return found, tuple(every)


def bounds(variants: Sequence[Variant], table: Table, find: Find) -> list[str]:
    """Return the date limits of the base releases. An add-on may be older than the patch release of its base, so its own date
    limit is not enough."""
    below = dict.fromkeys(variant.upon[0][:2] for variant in variants if variant.upon)
    known = [(framework, version) for name, version in below if (framework := find(table, name)) is not None]
    return [
        release.exclude_newer for framework, version in known for release in framework.releases if release.version == version
    ]


def _pairs(context: Context, levels: Sequence[Table], framework: FrameworkTable, added: Added) -> Pairs | None:
    """Read ``upon`` for ``framework``: one release, or the releases that upstream tested or allows."""
    name = framework.name
    tables = [found for level in levels if "upon" in level and (found := level.table("upon")) is not None and name in found]
    table, versions = tables[0], [release.version for release in framework.releases]
    if table.is_text(name):
        only = table.text(name)
        if only not in versions:
            table.problem(f"the matrix has no {name} {only}", name)
            return None
        source = added.origin.source_of("upon")
        terms = {"taken": only, "taken_cuda": only, "tested": (only,), "allowed": (), "bad": (), "allows": ""}
        return Pairs(framework=name, source=source, allows_source=source, added=added, **terms)  # type: ignore[arg-type]
    layers = [found for each in tables if not each.is_text(name) and (found := each.table(name)) is not None]
    return _ranged(context, layers, framework, added) if layers else None


_TESTED = ("tested", "tested_cpu", "tested_cuda")
_UPON = ("default", "default_source", *_TESTED, "allows", "known_bad", "source", "allows_source")


def _ranged(context: Context, layers: Sequence[Table], framework: FrameworkTable, added: Added) -> Pairs | None:
    of = {key: next((table for table in layers if key in table), layers[-1]) for key in _UPON}
    of |= dict.fromkeys(_TESTED, next((table for table in layers if any(key in table for key in _TESTED)), layers[-1]))
    of["default_source"] = of["default"]  # this source is read from the table that states the default
    for table in layers:
        table.allow(*_UPON)
        table.finish()
    allows = of["allows"].text("allows", "")
    within = _versions_in(of["allows"], "allows", allows, framework) if allows else ()
    bad = tuple(_bad(context, table, framework) for table in of["known_bad"].tables("known_bad"))
    refused = {version for each in bad for version in each.releases}
    both, on_cpu, on_cuda = (of["tested"].texts(key) for key in _TESTED)
    named = (*both, *on_cpu, *on_cuda)
    tested = tuple(release.version for release in framework.releases if release.version in named)
    cpu_only = tuple(version for version in tested if version not in (*both, *on_cuda))
    cuda_only = tuple(version for version in tested if version not in (*both, *on_cpu))
    for version in (*cpu_only, *cuda_only):
        if version not in within:
            of["tested"].problem(
                f"{framework.name} {version} was tested only for CPU or only for CUDA, so `allows` must contain it, too"
            )
    for version in sorted(refused & set(named)):
        of["tested"].problem(f"{framework.name} {version} is listed both as tested and as known bad", "tested")
    allowed = tuple(version for version in within if version not in refused and version not in tested)
    default = of["default"].text("default", "")
    for_cpu, for_cuda = ([version for version in tested if version not in other] for other in (cuda_only, cpu_only))
    taken = default or next(iter((*for_cpu, *tested, *allowed)), "")
    if taken not in (*tested, *allowed):
        known = (
            f"{framework.name} {taken} is neither tested nor allowed"
            if taken
            else f"no version of {framework.name} is listed as tested or allowed"
        )
        of["default"].problem(known, "default")
        return None
    source = context.document(of["source"], "source", added.origin.source_of("upon"))
    return Pairs(
        framework=framework.name,
        taken=taken,
        tested=tested,
        allowed=allowed,
        bad=bad,
        allows=allows,
        source=source,
        allows_source=context.document(of["allows_source"], "allows_source", source),
        added=added,
        taken_cuda=default or next(iter((*for_cuda, *tested, *allowed)), ""),
        cpu_only=cpu_only,
        cuda_only=cuda_only,
        default_source=context.document(of["default_source"], "default_source"),
    )


def _bad(context: Context, table: Table, framework: FrameworkTable) -> BadPair:
    versions = table.text("versions")
    found = BadPair(
        versions=versions,
        releases=_versions_in(table, "versions", versions, framework),
        why=table.text("why"),
        source=context.document(table, "source"),
    )
    if not found.source:
        table.problem("an entry of `known_bad` needs a `source`: the report of the failure", "source")
    table.finish()
    return found


def _versions_in(table: Table, key: str, conditions: str, framework: FrameworkTable) -> tuple[str, ...]:
    """The releases of ``framework`` that conditions such as ``>=1.15,<2.13`` allow, newest first."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(conditions)
    except InvalidSpecifier:
        table.problem(f"{conditions!r} is not a condition on versions: write it as >=1.15,<2.13", key)
        return ()
    return tuple(release.version for release in framework.releases if wanted.contains(release.version, prereleases=True))
