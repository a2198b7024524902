"""Decide which new releases get no row yet, because a package or a framework that belongs to the release is still missing.

The rows of the matrix show which frameworks upstream publishes together, so this module names no framework.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.errors import InvalidInputError
from envbuild.matrix.online.new_row import MeasuredNeeds, RowSources
from envbuild.matrix.online.published import indexed
from envbuild.matrix.types import FrameworkTable, Matrix, Release, Variant
from envbuild.matrix.versions import numbers

_NEWEST = 3  # newest releases to look at: an add-on that came with each of them is expected with the next release, too
_DAYS = 14  # a framework and its add-ons are published within two weeks of each other

Key = tuple[str, str]  # framework, version


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A release that gets no row yet, and the reason as a sentence."""

    framework: str
    version: str
    reason: str


def partners(matrix: Matrix, base: FrameworkTable) -> list[FrameworkTable]:
    """Return the add-ons that upstream publishes together with each release of ``base``.

    Such an add-on has one release for each of the newest releases of ``base``. The release of the add-on uses that base release
    by default, and both were published at about the same time.
    """
    newest = sorted(base.releases, key=lambda release: Version(release.version), reverse=True)[:_NEWEST]
    addons = (table for table in matrix.frameworks if _stands_upon(table, base.name))
    return [table for table in addons if len(newest) == _NEWEST and all(_has_partner(table, base, each) for each in newest)]


def together(matrix: Matrix, names: Iterable[str]) -> set[str]:
    """Return ``names``, and the frameworks that are published together with one of them."""
    wanted = set(names)
    for base in matrix.frameworks:
        of_base = {base.name, *(each.name for each in partners(matrix, base))}
        wanted |= of_base if wanted & of_base else set()
    return wanted


def _stands_upon(table: FrameworkTable, base: str) -> bool:
    return any(variant.upon and variant.upon[0][0] == base for release in table.releases for variant in release.variants)


def _has_partner(table: FrameworkTable, base: FrameworkTable, release: Release) -> bool:
    return any(
        (base.name, release.version) == variant.upon[0][:2] and _days_between(each, release) <= _DAYS
        for each in table.releases
        for variant in each.variants
        if variant.upon
    )


def _days_between(one: Release, other: Release) -> int:
    days = [datetime.date.fromisoformat(each.released) for each in (one, other)]
    return abs((days[0] - days[1]).days)


def incomplete(source: RowSources, framework: FrameworkTable, version: str) -> str:
    """Return why a new release cannot get a row yet; empty if nothing is missing.

    Every package that the release's wheels require must be on the index in an allowed version that was not withdrawn. For an
    add-on, the matrix must have a release of the base framework that the wheel allows. A measured wheel must not be damaged. It
    must have GPU code if the build of the series has GPU code, and none if that build is for the CPU. The wheel of an add-on
    must have the same GPU code as the wheel of the preceding release.
    """
    newest = framework.releases[0]
    variants = [variant for variant in newest.variants if indexed(variant)]
    there = source.published
    number = Version(version)
    variants = [variant for variant in variants if number in there[variant.package]]
    for variant in variants:
        before = there[variant.package].get(Version(newest.version))
        if there[variant.package][number].file is None and (before is None or before.file is not None):
            return (
                f"the index has only a source archive of {variant.package} {version} so far, and no wheel for Linux on x86-64"
            )
        reason = _unmet(source, variant, version)
        if reason:
            return reason
    model = next((each for each in framework.releases if Version(each.version) < number), newest)
    return next(filter(None, (_unlike(source, variant, (model.version, version)) for variant in model.variants)), "")


def _unmet(source: RowSources, variant: Variant, version: str) -> str:
    if source.published[variant.package][Version(version)].file is None:
        return ""  # source archives do not state their requirements
    declared = source.reader.read(variant.requirement, version, max(variant.python, key=numbers))
    if declared is None:
        return f"the requirements of the wheel of {variant.package} {version} cannot be read"
    under = {name for name, _, _ in variant.upon}
    bases: dict[str, str] = {canonicalize_name(each): name for name in under for each in _packages(source.matrix, name)}
    for project, asked in sorted(declared.projects.items()):
        if project in bases and not _has_base(source.matrix, bases[project], asked):
            return f"its wheel requires {project}{asked}, but the matrix has no such release of {bases[project]}"
        if not source.reader.offers(project, asked):
            return f"its wheel requires {project}{asked}, but the index has no such release"
    return ""


def _unlike(source: RowSources, variant: Variant, versions: tuple[str, str]) -> str:
    """Return why a person must look at the measured wheel of a new version. The text is empty if the row of the earlier version
    can be the model for the new row. ``versions`` are the earlier and the new version."""
    model, version = versions
    named = f"the wheel of {variant.package} {version}"
    try:
        needs = source.needs(variant, version)
    except InvalidInputError as error:
        return f"{named} cannot be measured: {error.message.rstrip('.')}"
    if needs is None or needs.native is None:
        return ""
    if variant.upon:
        return _changed_code(source, variant, model, needs, named)
    has_code = bool(needs.native or needs.ptx)
    if has_code and variant.cuda_libraries == "none":
        return f"{named} has GPU code, but the build {variant.name} of the series is for the CPU"
    if not has_code and (variant.sass or variant.ptx):
        return f"{named} has no GPU code, but the build {variant.name} of the series has"
    return ""


def _changed_code(source: RowSources, variant: Variant, model: str, needs: MeasuredNeeds, named: str) -> str:
    """Return how the GPU code of an add-on's wheel differs from the GPU code of the release ``model``; empty if there is no
    difference."""
    before = source.needs_before(variant, model)
    if before is None or before.native is None:
        return ""
    for what, old, new in (("native", before.native, needs.native), ("PTX", before.ptx, needs.ptx)):
        if set(old or ()) != set(new or ()):
            lists = [", ".join(each or ()) or "none" for each in (new, old)]
            return f"{named} has other {what} GPU code ({lists[0]}) than that of {model} ({lists[1]})"
    return ""


def _packages(matrix: Matrix, framework: str) -> set[str]:
    tables = [table for table in matrix.frameworks if table.name == framework]
    return {variant.package for table in tables for release in table.releases for variant in release.variants}


def _has_base(matrix: Matrix, framework: str, asked: SpecifierSet) -> bool:
    tables = [table for table in matrix.frameworks if table.name == framework]
    return any(asked.contains(release.version, prereleases=True) for table in tables for release in table.releases)


def split_pairs(before: Matrix, after: Matrix, added: Iterable[Key]) -> dict[Key, str]:
    """Return the releases in ``added`` that must wait, each with the reason. A release must wait if upstream publishes an
    add-on together with it, and no release of this add-on in ``after`` is based on it.

    ``before`` says which frameworks are published together; ``after`` is the matrix with the proposed rows.
    """
    tables = {table.name: table for table in after.frameworks}
    found: dict[Key, str] = {}
    for name, version in added:
        base = next((table for table in before.frameworks if table.name == name), None)
        for partner in partners(before, base) if base else ():
            release = next(each for each in tables[name].releases if each.version == version)
            if not _stands(tables[partner.name], name, release.version):
                found[name, version] = (
                    f"upstream publishes {partner.title} together with this release, but no release of "
                    f"{partner.title} is based on it yet"
                )
    return found


def _stands(table: FrameworkTable, base: str, version: str) -> bool:
    return any(
        variant.upon and variant.upon[0][:2] == (base, version) for release in table.releases for variant in release.variants
    )


def held_with(source: RowSources, framework: FrameworkTable, version: str, waiting: Mapping[Key, str]) -> str:
    """Return why an add-on waits together with a release of its base framework; empty if the add-on does not wait."""
    for name, base_version in sorted(waiting):
        base = next((table for table in source.matrix.frameworks if table.name == name), None)
        if base is None or framework.name not in {each.name for each in partners(source.matrix, base)}:
            continue
        if _asks_for(source, framework, version, base_version, _packages(source.matrix, name)):
            return f"it belongs to {base.title} {base_version}, which has to wait, too"
    return ""


def _asks_for(source: RowSources, framework: FrameworkTable, version: str, base_version: str, names: set[str]) -> bool:
    """Whether the wheel of an add-on accepts ``base_version``, the release of its base framework that waits for a row."""
    projects = {canonicalize_name(name) for name in names}
    for variant in framework.releases[0].variants:
        if indexed(variant) and Version(version) in source.published[variant.package]:
            declared = source.reader.read(variant.requirement, version, max(variant.python, key=numbers))
            asked = [each for project, each in (declared.projects if declared else {}).items() if project in projects]
            return any(each.contains(base_version, prereleases=True) for each in asked)
    return False
