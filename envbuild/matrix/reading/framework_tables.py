"""Reads ``frameworks/<name>.yaml``. Releases and variants inherit values from their series and framework."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, get_args

from envbuild.matrix.pairs import DOUBTS
from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading.context import NAME, URL, Context, date, minor, minors, requirement_list, unique, version
from envbuild.matrix.reading.date_limit import date_limit
from envbuild.matrix.reading.derived_builds import KEYS, Find, Own, bounds, standing
from envbuild.matrix.reading.pinned_files import pinned_files
from envbuild.matrix.reading.platform_tables import Files
from envbuild.matrix.reading.requirements import bad_capabilities, need
from envbuild.matrix.reading.skipped_releases import left_out
from envbuild.matrix.types import FrameworkTable, LeftOut, MatrixPolicy, NameHint, Pairs, Release, Requirement, Variant
from envbuild.matrix.versions import newest_first
from envbuild.model.words import CudaLibraries
from envbuild.yaml_reader import Table

CUDA_LIBRARIES = get_args(CudaLibraries)
DIFFERENCES = ("gone", "yanked", "date", "python", "glibc", "cuda", "cudnn", "nccl", "beside")  # a row may explain these
_LEVELS = ("options", "constraints", "requirements", "asks", "margin_days", *KEYS)
_ONLY_RELEASES = "a series without `variants` only adds releases, and cannot have this key: write the key into each release"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parents:
    """The tables from which a variant inherits values, and values derived from them."""

    framework: Table
    series: Table
    release: Table
    origin: Provenance
    find: Find


def frameworks(context: Context, files: Files, policy: MatrixPolicy) -> tuple[FrameworkTable, ...]:
    """All frameworks, sorted by name.

    In an overlay, ``framework: {name: …}`` refers to the existing framework. A series in the overlay replaces the series of the
    same name. A series without ``variants`` instead adds releases to the existing series, or replaces single releases.
    """
    heads: list[tuple[str, Table, tuple[Table, Provenance]]] = []
    bodies: dict[str, list[tuple[Table, Provenance]]] = {}
    without: dict[str, tuple[LeftOut, ...]] = {}
    for file, defaults in files:
        head = file.table("framework")
        series = file.tables("series")
        missing = left_out(context, file, defaults)
        if head is None:
            without[""] = without.get("", ()) + missing
            if series:
                file.problem("a file with `series` must have `framework`, too", "series")
            continue
        name = head.text("name", pattern=r"[a-z][a-z0-9_-]*")
        if not (name in bodies and file.where in context.overlays and head.keys() == ["name"]):
            heads.append((f"framework {name}", head, (head, defaults)))
        bodies.setdefault(name, []).extend((table, defaults) for table in series)
        without[name] = without.get(name, ()) + missing
    found = _Frameworks(context, policy, unique(context, heads), bodies).all()
    return tuple(table._replace(left_out=without.get(table.name, ()) + without.get("", ())) for table in found)


class _Frameworks:
    """Reads each framework once, base frameworks first."""

    def __init__(
        self,
        context: Context,
        policy: MatrixPolicy,
        heads: Iterable[tuple[Table, Provenance]],
        bodies: dict[str, list[tuple[Table, Provenance]]],
    ) -> None:
        self._context = context
        self._policy = policy
        self._heads = {head.text("name"): (head, defaults) for head, defaults in heads}
        self._bodies = bodies
        self._read: dict[str, FrameworkTable | None] = {}

    def all(self) -> tuple[FrameworkTable, ...]:
        found = [self._framework(name) for name in sorted(self._heads)]
        return tuple(framework for framework in found if framework is not None)

    def find(self, table: Table, name: str) -> FrameworkTable | None:
        """Return the framework ``name``, which ``table`` names as a base framework."""
        if name not in self._heads:
            table.problem(f"the matrix has no framework {name}", "upon")
            return None
        found = self._framework(name)
        if found is None:
            table.problem(f"{name} is itself based on this framework, so it cannot be its base", "upon")
        return found

    def _framework(self, name: str) -> FrameworkTable | None:
        """Return a framework, which is read only once. The result is None if it is asked for while it is being read.

        In this case the framework would be its own base framework.
        """
        if name not in self._read:
            self._read[name] = None
            body = _series(self._context, self._bodies.get(name, ()))
            self._read[name] = _framework(self._context, self._heads[name], body, self._policy, self.find)
            self._heads[name][0].finish()
        return self._read[name]


class _Series(NamedTuple):
    """The releases of one series table. The releases in ``listing`` inherit from ``values``."""

    values: Table
    listing: Table
    defaults: Provenance


def _series(context: Context, tables: Iterable[tuple[Table, Provenance]]) -> list[_Series]:
    """The series of one framework; an overlay's additions come after the series that they extend."""
    found: dict[str, list[_Series]] = {}
    for table, defaults in tables:
        name = version(table, "series")
        before = found.get(name, [])
        again = next((part.listing for part in before if part.listing.where == table.where), None)
        overlay = table.where in context.overlays
        if before and (again is not None or not overlay):
            first = again or before[0].listing
            table.problem(f"series {name} is defined twice; the first definition is in {first.where}:{first.line}")
        if before and overlay and "variants" not in table:
            before.append(_Series(before[0].values, table, defaults))
        else:
            found[name] = [_Series(table, table, defaults)]
    return [part for parts in found.values() for part in parts]


def _framework(
    context: Context, file: tuple[Table, Provenance], body: Iterable[_Series], policy: MatrixPolicy, find: Find
) -> FrameworkTable:
    head, defaults = file
    origin = context.origin(head, defaults)
    hints = []
    for item in head.tables("hints"):
        hints.append(NameHint(says=item.text("says").lower(), means=item.text("means"), because=item.text("because", "")))
        item.finish()
    head.allow(*_LEVELS)
    _check_levels(context, head)
    releases: list[tuple[str, Table, Release]] = []
    for values, listing, inherited in body:
        series_origin = context.origin(listing, inherited)
        listing.allow("series")
        if listing is values:
            listing.allow("variants", *_LEVELS)
            _check_levels(context, listing)
        else:
            listing.refuse(_LEVELS, _ONLY_RELEASES)
        for table in listing.tables("releases", required=True):
            parents = _Parents(framework=head, series=values, release=table, origin=series_origin, find=find)
            releases.append((f"release {table.text('version')}", table, _release(context, parents, policy)))
            table.finish()
        listing.finish()
    return FrameworkTable(
        name=head.text("name"),
        title=head.text("title"),
        short=head.text("short", pattern=r"[a-z][a-z0-9]*"),
        aliases=tuple(alias.lower() for alias in head.texts("aliases", required=True, pattern=NAME)),
        recipe=head.text("recipe", pattern=NAME),
        hints=tuple(hints),
        left_out=(),
        releases=_newest_first(context, releases),
        origin=origin,
        instead_of=head.text("instead_of", ""),
        beside=head.text("beside", ""),
    )


def _check_levels(context: Context, table: Table) -> None:
    """Read inherited values once, so that their problems are reported even if no release uses these values."""
    table.text_map("options")
    requirement_list(context, table, "constraints", "")
    requirement_list(context, table, "requirements", "")
    table.integer("margin_days", 0)
    for python in minors(table, "python"):
        if python not in context.pythons:
            table.problem(f"the matrix has no Python {python}", "python")


def _newest_first(context: Context, rows: Iterable[tuple[str, Table, Release]]) -> tuple[Release, ...]:
    from packaging.version import InvalidVersion, Version

    rows = list(rows)
    ordered = []
    for _, table, release in rows:
        try:
            ordered.append((Version(release.version), release))
        except InvalidVersion:
            if release.version:
                table.problem(f"{release.version!r} is not a version", "version")
    unique(context, rows)
    kept = {release.version: (key, release) for key, release in ordered}
    return tuple(release for _, release in sorted(kept.values(), key=lambda pair: pair[0], reverse=True))


def _release(context: Context, parents: _Parents, policy: MatrixPolicy) -> Release:
    table = parents.release
    refused = len(context.problems)
    number = table.text("version")
    released = date(table, "released", whole=True)
    origin = context.origin(table, parents.origin, inherit_note=True)
    table.allow(*_LEVELS, "contradicts")
    _check_levels(context, table)
    without = table.texts("without", pattern=NAME)
    layers: dict[str, list[Table]] = {}
    for level in (parents.series, table):
        for name, variant in level.named_tables("variants"):
            layers.setdefault(name, []).insert(0, variant)
    variants = [_variant(context, name, tables, parents, origin) for name, tables in layers.items() if name not in without]
    standing_upon, pairs = _standing(context, parents, origin, variants, without)
    variants.extend(standing_upon)
    if not variants and len(context.problems) == refused:
        table.problem("the release has no build: describe one under `variants`")
    variants.sort(key=lambda v: (not v.cuda, not v.default, newest_first(v.cuda or "0"), v.name))
    return Release(
        version=number,
        series=parents.series.text("series"),
        released=released,
        exclude_newer=date_limit(
            table,
            (parents.framework, parents.series, parents.release),
            released,
            checked=origin.checked,
            margin_days=policy.dependency_margin_days,
            of_bases=bounds(variants, table, parents.find),
        ),
        variants=tuple(variants),
        origin=origin,
        pairs=pairs,
    )


def _standing(
    context: Context, parents: _Parents, origin: Provenance, own: list[Variant], without: tuple[str, ...]
) -> tuple[list[Variant], tuple[Pairs, ...]]:
    """Return an add-on's builds, except those that the release replaces or leaves out, and the base releases that the release
    supports."""
    levels = [parents.release, parents.series, parents.framework]
    terms = Own(
        requirements=_handed_down(context, None, parents, "requirements"),
        constraints=_handed_down(context, None, parents, "constraints"),
        asks=_handed_down(context, None, parents, "asks"),
        options=_options(None, parents),
        contradicts=_contradicts(None, parents),
        without=without,
        origin=origin,
    )
    found, pairs = standing(context, levels, parents.release.text("version"), parents.find, terms)
    taken = {(variant.cuda, variant.cuda_libraries) for variant in own}
    replaced = {variant.name for variant in own}
    known = {variant.name for variant in own} | {name for name, _ in parents.series.named_tables("variants")}
    known |= {name for each in pairs for name in _builds_of(each, parents)}
    for name in without:
        if name not in known:
            parents.release.problem(f"`without` leaves out {name!r}, but there is no such variant", "without")
    kept = [
        variant for variant in found if variant.name not in replaced and (variant.cuda, variant.cuda_libraries) not in taken
    ]
    return kept, pairs


def _builds_of(pairs: Pairs, parents: _Parents) -> set[str]:
    """The names of all builds of the base framework on which an add-on's release can be based."""
    below = parents.find(parents.release, pairs.framework)
    versions = {*pairs.tested, *pairs.allowed}
    return (
        {variant.name for release in below.releases if release.version in versions for variant in release.variants}
        if below
        else set()
    )


class _Layers:
    """The tables of one variant, the most specific first: a key is read from the first table that has it."""

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables

    def of(self, key: str) -> Table:
        for table in self.tables:
            table.allow(key)
        return next((table for table in self.tables if key in table), self.tables[-1])


def _variant(context: Context, name: str, tables: list[Table], parents: _Parents, release_origin: Provenance) -> Variant:
    layers = _Layers(tables)
    of = layers.of
    refused = len(context.problems)
    origin = _provenance(context, tables, parents, release_origin)
    libraries: CudaLibraries = of("cuda_libraries").choice("cuda_libraries", CUDA_LIBRARIES) or "none"
    cuda = minor(of("cuda"), "cuda", "")
    if (libraries == "none") != (not cuda) and len(context.problems) == refused:
        where = f"the build is for CUDA {cuda}" if cuda else "the build has no `cuda`"
        of("cuda").problem(f"{where}, but its `cuda_libraries` is {libraries}")
    capabilities = of("capabilities").table("capabilities")
    sass, ptx = ((), ()) if capabilities is None else (minors(capabilities, "sass", required=True), minors(capabilities, "ptx"))
    if capabilities is not None:
        capabilities.finish()
    package = of("package").text("package", pattern=NAME)
    found = Variant(
        name=name,
        package=package,
        requirement=of("requirement").text(
            "requirement", package, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?"
        ),
        local_version=of("local_version").text("local_version", "", pattern=r"\+[A-Za-z0-9.]+"),
        requirements=_handed_down(context, of("requirements"), parents, "requirements"),
        constraints=_handed_down(context, of("constraints"), parents, "constraints"),
        python=_pythons(of("python"), parents),
        cuda=cuda,
        cuda_libraries=libraries,
        cudnn=need(of("cudnn"), "cudnn", libraries),
        nccl=need(of("nccl"), "nccl", libraries),
        sass=sass,
        ptx=ptx,
        glibc=version(of("glibc"), "glibc"),
        cpu_features=of("cpu_features").texts("cpu_features", pattern=NAME),
        index=of("index").text("index", "default", pattern=rf"default|{URL}"),
        repository=of("repository").text("repository", "", pattern=URL),
        revision=of("revision").text("revision", "", pattern=r"\S+"),
        distribution=of("distribution").text("distribution", "", pattern=r"\S+"),
        systems=tuple(system.lower() for system in of("systems").texts("systems", pattern=NAME)),
        options=_options(of("options"), parents),
        bad_capabilities=bad_capabilities(context, of("bad_capabilities"), origin),
        upon=(),
        default=of("default").boolean("default"),
        contradicts=_contradicts(of("contradicts"), parents),
        origin=origin,
        files=pinned_files(context, of("files")),
        choices=requirement_list(context, of("choices"), "choices", ""),
        asks=_handed_down(context, of("asks"), parents, "asks"),
        nvcc=of("nvcc").boolean("nvcc"),
        exact_cuda=of("exact_cuda").boolean("exact_cuda"),
    )
    if found.nvcc and not (found.repository and libraries == "system"):
        tables[0].problem("`nvcc` is only for builds from a `repository` that use the image's CUDA (cuda_libraries: system)")
    if bool(found.repository) != bool(found.revision) or (found.repository and found.distribution):
        tables[0].problem("`repository` and `revision` belong together, and cannot be combined with `distribution`")
    for table in tables:
        table.finish()
    return found


def _provenance(context: Context, tables: list[Table], parents: _Parents, ours: Provenance) -> Provenance:
    """Return the most specific table's provenance. A series cannot improve the status that a release states itself."""
    own = [(table.where, table.line) for _, table in parents.release.named_tables("variants")]
    found = ours
    for table in reversed(tables):
        found = context.origin(table, found, inherit_note=True)
        said = "status" in parents.release and (table.where, table.line) not in own
        if said and DOUBTS.index(ours.status) > DOUBTS.index(found.status):
            found = found._replace(status=ours.status, note=ours.note)
    return found


def _pythons(own: Table, parents: _Parents) -> tuple[str, ...]:
    """The variant's own list of Pythons, else the list of the release, of the series or of the framework."""
    levels = (own, parents.release, parents.series, parents.framework)
    return minors(next((table for table in levels if "python" in table), own), "python", required=True)


def _handed_down(context: Context, variant: Table | None, parents: _Parents, key: str) -> tuple[Requirement, ...]:
    """Return the inherited list, followed by the variant's own list. The inherited list is that of the release, else of the
    series, else of the framework."""
    levels = (parents.release, parents.series, parents.framework)
    level = next((table for table in levels if key in table), parents.series)
    ours = requirement_list(context, variant, key, "") if variant else ()
    return requirement_list(context, level, key, "") + ours


def _options(variant: Table | None, parents: _Parents) -> tuple[tuple[str, str], ...]:
    merged: dict[str, str] = {}
    for level in (parents.framework, parents.series, parents.release, variant):
        merged.update(level.text_map("options") if level else {})
    return tuple(sorted(merged.items()))


def _contradicts(variant: Table | None, parents: _Parents) -> tuple[tuple[str, str], ...]:
    reasons: dict[str, str] = {}
    for table in (parents.release, variant):
        said = table.text_map("contradicts") if table else {}
        for kind in sorted(set(said) - set(DIFFERENCES)):
            parents.release.problem(f"{kind!r} is not one of {', '.join(DIFFERENCES)}", "contradicts")
        reasons.update(said)
    return tuple(sorted(reasons.items()))
