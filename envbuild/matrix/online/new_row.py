"""Write a row for a release that the matrix lacks. Facts that are neither in the index nor in the wheel are copied from the
newest release of the series."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.errors import InvalidInputError
from envbuild.index.project_pages import IndexFile
from envbuild.matrix.online.published import Published, Wheels, indexed
from envbuild.matrix.online.wheel_metadata import Declared, Reader, admits, below, exactly, library_of, lowest
from envbuild.matrix.types import FrameworkTable, LibraryNeed, Matrix, Release, Variant
from envbuild.matrix.versions import numbers

_TAKEN = "CUDA, libraries and GPU code copied from {}, not checked"
_DECLARED = "CUDA and its libraries as the wheel requires them"
_ASKED = "its wheel requires {}; the pair was not tested"
_UNASKED = "its files do not say which {} they need; the version of {} is assumed, not checked"
_SAME = "its GPU code is that of {}, measured from both wheels"


class MeasuredNeeds(NamedTuple):
    """The needs of the libraries in a wheel, in the form in which rows state them.

    ``native`` and ``ptx`` list the GPU code. Both are empty if the libraries have no GPU code, and None if it is unclear which
    GPU code is the framework's own.
    """

    native: Sequence[str] | None
    ptx: Sequence[str] | None
    glibc: str


def not_measured(_file: IndexFile) -> None:
    """Return None for every wheel: no wheel is measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSources:
    """The data for a new row: the matrix, which lacks the release, and the answers of the index, which has the release.
    ``today`` is YYYY-MM-DD.

    ``needs_of`` measures a wheel. The function returns None for a wheel that is not measured, and raises
    :class:`InvalidInputError` for a damaged wheel.
    """

    matrix: Matrix
    published: Published
    reader: Reader
    today: str
    needs_of: Callable[[IndexFile], MeasuredNeeds | None] = not_measured

    def needs(self, variant: Variant, version: str) -> MeasuredNeeds | None:
        """Return what the wheel of this release needs, or None if the wheel is not measured.

        An add-on that is a part of its base framework has no wheel of its own.
        """
        if not indexed(variant) or canonicalize_name(variant.package) in self.base_packages(variant):
            return None
        wheels = self.published[variant.package].get(Version(version))
        return self.needs_of(wheels.file) if wheels is not None and wheels.file is not None else None

    def needs_before(self, variant: Variant, version: str) -> MeasuredNeeds | None:
        """Return what the wheel of an earlier release needs. A damaged earlier wheel counts as not measured, because it says
        nothing about the new wheel."""
        try:
            return self.needs(variant, version)
        except InvalidInputError:
            return None

    def base_packages(self, variant: Variant) -> set[str]:
        """Return the packages of an add-on's base framework, with normalized names; the result is empty for a build that is not
        an add-on."""
        names = {name for name, _, _ in variant.upon[:1]}
        return {
            canonicalize_name(each.package)
            for table in self.matrix.frameworks
            if table.name in names
            for release in table.releases
            for each in release.variants
        }


def row(source: RowSources, framework: FrameworkTable, series: str, version: str) -> str | None:
    """Return the row of ``version``, modelled on the newest release of ``series``, without indentation.

    Returns None if the index's files fit no build of the series.
    """
    like = next(release for release in framework.releases if release.series == series)
    number = Version(version)
    there = {
        variant.name: source.published[variant.package][number]
        for variant in like.variants
        if indexed(variant) and number in source.published[variant.package]
    }
    days = [wheels.day for wheels in there.values() if wheels.day]
    if not days:
        return None
    parts = [f'version: "{version}"', f'released: "{min(days)}"']
    standing = [variant for variant in like.variants if variant.upon and variant.name in there]
    if standing:
        upon, note = _upon(source, standing[0], (series, version), min(days))
        glibc, compared = _compared(source, standing[0], (like.version, version))
        return _closed(
            source, [*parts, upon, *_narrowed(standing, there), *glibc], "; ".join(filter(None, (note, compared))), {}
        )
    companions = _companions(source, like, there, version)
    if companions is None:
        return None
    changed = _changed(source, like, version, there)
    without = [variant.name for variant in like.variants if indexed(variant) and variant.name not in there]
    without += _displaced(like, changed)
    parts += [f"without: [{', '.join(without)}]"] if without else []
    parts += [f"requirements: {_quoted(companions)}"] if companions else []
    return _closed(source, parts, _note(source, like, (series, version), set(without)), changed)


def _closed(source: RowSources, parts: list[str], note: str, changed: dict[str, str]) -> str:
    parts = [*parts, f'checked: "{source.today}"', "status: unknown", f'note: "{note}"']
    if not changed:
        return f"- {{{', '.join(parts)}}}"
    variants = ",\n              ".join(f"{name}: {{{text}}}" for name, text in changed.items())
    return f"- {{{', '.join(parts)},\n   variants: {{{variants}}}}}"


def _companions(source: RowSources, like: Release, there: dict[str, Wheels], version: str) -> list[str] | None:
    """Return a pin for each package that the series pins beside the framework: the newest release that the wheel accepts.

    The release ``like`` may pin a package to the framework's own version, although the wheel does not require the package. The
    new row then pins this package to the new version. Return None if the index has no release for one of the pins.
    """
    found: dict[str, str] = {}
    for variant in (variant for variant in like.variants if variant.name in there):
        declared = source.reader.read(variant.requirement, version, max(variant.python, key=numbers))
        for ours in (Requirement(each.requirement) for each in variant.requirements):
            same = SpecifierSet(f"=={version}") if exactly(ours.specifier) == like.version else None
            asked = declared.projects.get(canonicalize_name(ours.name), same) if declared else same
            if exactly(ours.specifier) and asked is not None:
                newest = source.reader.newest(ours.name, asked)
                if newest is None:
                    return None
                found[ours.name] = f"{ours.name}=={newest}"
    return list(found.values())


def _changed(source: RowSources, like: Release, version: str, there: dict[str, Wheels]) -> dict[str, str]:
    """Return how each build of the new release differs from the same build of ``like``, the newest release of its series."""
    changed = {}
    for variant in like.variants:
        if variant.name not in there:
            continue
        fields = dict(_tags(variant, there[variant.name]))
        stated = set()
        declared = _declared(source, variant, version)
        if declared is not None:
            fields |= {**dict(_libraries(variant, declared)), **dict(_held(variant, declared))}
            stated |= set(declared.libraries)
        needs = source.needs(variant, version)
        if needs is not None:
            measured = dict(_measured(variant, needs, fields.get("glibc", "").strip('"')))
            fields |= measured
            stated |= set(measured)
        if stated:
            purl = f'"pkg:pypi/{variant.package}@{version}"'
            fields["field_source"] = f"{{{', '.join(f'{key}: {purl}' for key in sorted(stated))}}}"
        if fields:
            changed[variant.name] = ", ".join(f"{key}: {value}" for key, value in fields.items())
    return changed


def _declared(source: RowSources, variant: Variant, version: str) -> Declared | None:
    """Return what the wheel requires if its metadata names CUDA libraries, else None."""
    if variant.cuda_libraries != "wheels":
        return None
    declared = source.reader.read(variant.requirement, version, max(variant.python, key=numbers))
    return declared if declared and declared.libraries else None


def _measured(variant: Variant, needs: MeasuredNeeds, glibc: str) -> Iterator[tuple[str, str]]:
    """Return the fields (name, text) of the new row whose measured values differ from those of the series.

    ``glibc`` is the version in the tags of the wheels if it is higher than that of the series, else empty.
    """
    if needs.glibc and not variant.systems and numbers(needs.glibc) > numbers(glibc or variant.glibc):
        yield "glibc", f'"{needs.glibc}"'
    native, ptx = needs.native or (), needs.ptx or ()
    said = (set(variant.sass), set(variant.ptx))
    # If the series lists no GPU code, the framework compiles its kernels at run time. Then GPU code of other libraries in the
    # wheel does not count.
    if any(said) and (native or ptx) and (set(native), set(ptx)) != said:
        yield "capabilities", f"{{sass: {_quoted(native)}, ptx: {_quoted(ptx)}}}"


def _note(source: RowSources, like: Release, names: tuple[str, str], without: set[str]) -> str:
    """Return the note of the row. The note says which facts come from the wheel, and which come from the series."""
    series, version = names
    variants = [variant for variant in like.variants if variant.name not in without]
    read = any(indexed(variant) and _declared(source, variant, version) is not None for variant in variants)
    needs = {variant.name: source.needs(variant, version) for variant in variants}
    measured = [name for name, each in needs.items() if each is not None and each.native is not None]
    if not measured:
        return f"GPU code copied from {series}, not checked; {_DECLARED}" if read else _TAKEN.format(series)
    # If the series lists no GPU code, the new row lists none either (see _measured).
    lists_none = any(each.cuda and not (each.sass or each.ptx) for each in variants if each.name in measured)
    what = "glibc" if lists_none else "GPU code and glibc"
    of = f" of {', '.join(measured)}" if len(measured) < len(variants) else ""
    code = f"{what}{of} {'agrees' if lists_none else 'agree'} with the measured wheel"
    code += f", others copied from {series}, not checked" if of else ""
    code += "; the row lists no GPU code" if lists_none else ""
    return f"{code}; {_DECLARED if read else f'CUDA and libraries copied from {series}, not checked'}"


def _displaced(like: Release, changed: dict[str, str]) -> list[str]:
    """Return the builds from other indexes that are for the same CUDA as a build of the new row. The new row leaves these
    builds out. Otherwise environments of two builds would have the same name."""
    others = [variant for variant in like.variants if variant.cuda and variant.name not in changed and not indexed(variant)]
    return [variant.name for variant in others if any(f'cuda: "{variant.cuda}"' in text for text in changed.values())]


def _tags(variant: Variant, there: Wheels) -> Iterator[tuple[str, str]]:
    exact = _exact(there)
    if exact and exact != sorted(variant.python, key=numbers):
        yield "python", _quoted(exact)
    if there.glibc and numbers(there.glibc) > numbers(variant.glibc):  # binaries may need a higher glibc than their tag says
        yield "glibc", f'"{there.glibc}"'


def _libraries(variant: Variant, declared: Declared) -> Iterator[tuple[str, str]]:
    """Return the fields ``cuda``, ``cudnn`` and ``nccl`` with the versions that the wheel requires. A field is left out if the
    value of ``variant`` is in the wheel's range."""
    for key, asked in declared.libraries.items():
        version, ours = _least(key, asked), _ours(variant, key)
        if not version or (ours and not exactly(asked) and admits(asked, ours)):
            continue
        end = f', below: "{below(asked)}"' if below(asked) else ""
        whole = key == "cuda" or exactly(asked)
        yield key, f'"{version}"' if whole else f'{{min: "{version}"{end}, prefer: "{version}", from: wheels}}'


def _least(key: str, asked: SpecifierSet) -> str:
    """Return the lowest required version, cut to the number of parts that rows of the matrix use."""
    return ".".join(re.findall(r"\d+", lowest(asked))[: 2 if key == "cuda" else 3])


def _ours(variant: Variant, key: str) -> str:
    need: LibraryNeed | None = variant.cudnn if key == "cudnn" else variant.nccl
    return variant.cuda if key == "cuda" else need.prefer or need.minimum if need else ""


def _held(variant: Variant, declared: Declared) -> Iterator[tuple[str, str]]:
    """Return the field ``choices`` if it differs from the ``choices`` of ``variant``. The field has the pins of ``variant``,
    adapted to what the wheel allows. It also has pins that keep libraries at the versions of the row."""
    wanted = {}
    for ours in (Requirement(each.requirement) for each in variant.choices):
        asked, pin = declared.projects.get(canonicalize_name(ours.name), SpecifierSet()), exactly(ours.specifier)
        refused = pin and lowest(asked) and not asked.contains(pin, prereleases=True)
        wanted[canonicalize_name(ours.name)] = f"{ours.name}=={lowest(asked)}" if refused else str(ours)
    for project, asked in declared.projects.items():
        key = library_of(project)
        ranged = key and lowest(asked) and not exactly(asked)
        if ranged and (not admits(asked, _ours(variant, key) or "0") or _least(key, asked) == _ours(variant, key)):
            wanted.setdefault(canonicalize_name(project), f"{project}=={lowest(asked)}")
    if list(wanted.values()) != [str(Requirement(each.requirement)) for each in variant.choices]:
        yield "choices", _quoted(list(wanted.values()))


def _upon(source: RowSources, variant: Variant, names: tuple[str, str], day: str) -> tuple[str, str]:
    """Return the field ``upon`` and a note. The field names the newest release of the base framework that the wheel accepts and
    that existed on ``day``.

    If the wheel does not name the base framework, the field names the base release of the newest release in the series. An
    older base release is more likely to work than a newer base release.
    """
    name, like, _ = variant.upon[0]
    series, version = names
    declared = source.reader.read(variant.requirement, version, max(variant.python, key=numbers)) or Declared()
    base = next(table for table in source.matrix.frameworks if table.name == name)
    theirs = source.base_packages(variant)
    if canonicalize_name(variant.package) in theirs:  # the add-on is a part of its base framework
        return f'upon: {{{name}: "{version}"}}', _TAKEN.format(series)
    projects = theirs & {canonicalize_name(Requirement(each.requirement).name) for each in variant.requirements}
    asked = {project: asked for project, asked in declared.projects.items() if project in projects}
    is_exact = any(map(exactly, asked.values()))  # an add-on may be uploaded some hours before its base
    fitting = [
        r for r in base.releases if (is_exact or r.released <= day) and all(each.contains(r.version) for each in asked.values())
    ]
    said = ", ".join(f"{project}{each}" for project, each in asked.items())
    if not asked:
        return f'upon: {{{name}: "{like}"}}', _UNASKED.format(base.title, series)
    return f'upon: {{{name}: "{fitting[0].version if fitting else like}"}}', _ASKED.format(said)


def _compared(source: RowSources, variant: Variant, versions: tuple[str, str]) -> tuple[list[str], str]:
    """Compare the old and the new wheel of an add-on. Return a list and a note. The list has the field ``glibc`` if the new
    wheel needs a higher glibc than the old wheel; else the list is empty.

    An add-on's row has no list of GPU code, so a release with different GPU code waits for a person (``waiting.incomplete``).
    """
    before, now = source.needs_before(variant, versions[0]), source.needs(variant, versions[1])
    if before is None or now is None:
        return [], ""
    is_higher = numbers(now.glibc or "0") > max(numbers(before.glibc or "0"), numbers(variant.glibc))
    is_same = bool(now.native or now.ptx) and None not in (before.native, now.native)
    return [f'glibc: "{now.glibc}"'] if is_higher else [], _SAME.format(versions[0]) if is_same else ""


def _narrowed(standing: list[Variant], there: dict[str, Wheels]) -> list[str]:
    exact = {python for variant in standing for python in _exact(there[variant.name])}
    ours = {python for variant in standing for python in variant.python}
    return [f"python: {_quoted(sorted(exact, key=numbers))}"] if exact and not ours <= exact else []


def _exact(there: Wheels) -> list[str]:
    return sorted((python for python in there.pythons if re.fullmatch(r"\d+\.\d+", python)), key=numbers)


def _quoted(versions: Sequence[str]) -> str:
    quoted = (f'"{version}"' for version in versions)
    return f"[{', '.join(quoted)}]"
