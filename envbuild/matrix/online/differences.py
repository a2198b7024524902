"""Find differences between the package index and the matrix, row by row. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.matrix.online.published import Published, Wheels, indexed, packages
from envbuild.matrix.online.wheel_metadata import Declarations, Declared, admits, below, exactly, key_of, lowest
from envbuild.matrix.skipped_releases import why_left_out
from envbuild.matrix.types import FrameworkTable, LibraryNeed, Matrix, Release, Variant
from envbuild.matrix.versions import has_prefix, numbers

_PACKAGE = "pkg:pypi/"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexDifference:
    """One difference between the index and the matrix.

    If the matrix is wrong, ``kind`` is gone, yanked, date, python, glibc, cuda, cudnn, nccl or beside. ``kind`` is stale if a
    row explains a difference that does not exist. ``kind`` is new if the matrix lacks a release, and more if a row lacks a
    Python or a library. ``kind`` is known if the row explains the difference.

    ``at`` is the row's file and line. It is empty if there is no row.
    """

    kind: str
    framework: str
    version: str
    package: str
    message: str
    at: str

    @property
    def wrong(self) -> bool:
        """Whether the difference shows an error in the matrix. Otherwise the matrix lacks something, or explains the
        difference."""
        return self.kind not in ("new", "more", "known")


def compare(matrix: Matrix, published: Published, declared: Declarations) -> list[IndexDifference]:
    """Return all differences in the order of the matrix. For each framework, the differences of its rows come first, then its
    new releases."""
    found: list[IndexDifference] = []
    for framework in matrix.frameworks:
        for release in framework.releases:
            found.extend(_explained(framework, release, list(_release(matrix, framework, release, (published, declared)))))
        found.extend(sorted(_new(framework, published), key=lambda finding: Version(finding.version)))
    return found


def _explained(framework: FrameworkTable, release: Release, findings: list[IndexDifference]) -> Iterator[IndexDifference]:
    """Give each finding that the row explains the kind ``known``. Add a finding of the kind ``stale`` for each explanation
    without a difference."""
    reasons: dict[str, tuple[str, Variant]] = {}
    for variant in release.variants:
        reasons.update({kind: (reason, variant) for kind, reason in variant.contradicts})
    for finding in findings:
        if finding.wrong and finding.kind in reasons:
            message = f"{finding.message}: {reasons[finding.kind][0]}"
            yield replace(finding, kind="known", message=message)
        else:
            yield finding
    for kind in sorted(set(reasons) - {finding.kind for finding in findings}):
        variant = reasons[kind][1]
        yield IndexDifference(
            kind="stale",
            framework=framework.name,
            version=release.version,
            package=variant.package,
            message=f"the row explains a difference in {kind}, but there is none: remove it from `contradicts`",
            at=variant.origin.at,
        )


def _release(
    matrix: Matrix, framework: FrameworkTable, release: Release, index: tuple[Published, Declarations]
) -> Iterator[IndexDifference]:
    published, declared = index
    version = Version(release.version)
    ours = [variant for variant in release.variants if indexed(variant)]
    days = {}
    for variant in ours:
        there = published[variant.package].get(version)
        known = {"framework": framework.name, "version": release.version, "package": variant.package, "at": variant.origin.at}
        bad = variant.origin.status == "known-bad"
        if there is None:
            if not bad:
                yield IndexDifference(kind="gone", message="the index has no file of this release for Linux on x86-64", **known)
            continue
        days[variant.package] = there.day
        if there.yanked and not bad:
            yield IndexDifference(
                kind="yanked",
                message="every wheel of this release was yanked (withdrawn), but the row is not known-bad",
                **known,
            )
        yield from _wheels(matrix, variant, there, known)
        if (said := declared.get(key_of(variant, release.version))) is not None:
            yield from _metadata(variant, said, known)
    if any(days.values()) and release.released not in days.values():
        first = min(filter(None, days.values()))
        message = f"the row says that it was released on {release.released}, but its first wheel is from {first}"
        package = next(name for name, day in days.items() if day == first)
        at = release.origin.at
        yield IndexDifference(
            kind="date", framework=framework.name, version=release.version, package=package, message=message, at=at
        )


def _wheels(matrix: Matrix, variant: Variant, there: Wheels, known: dict[str, str]) -> Iterator[IndexDifference]:
    missing = [python for python in variant.python if not there.serves(python)]
    if missing:
        yield IndexDifference(
            kind="python", message=f"the index has no wheel of this release for Python {', '.join(missing)}", **known
        )
    more = [row.version for row in matrix.pythons if row.version in there.pythons and row.version not in variant.python]
    if more:
        text = ", ".join(sorted(more, key=numbers))
        yield IndexDifference(kind="more", message=f"the index also has wheels for Python {text}", **known)
    if there.glibc and numbers(there.glibc) > numbers(variant.glibc):
        message = f"the row says glibc {variant.glibc}, but the wheels need {there.glibc}"
        yield IndexDifference(kind="glibc", message=message, **known)


def _metadata(variant: Variant, said: Declared, known: dict[str, str]) -> Iterator[IndexDifference]:
    """Compare the wheel's requirements with the row's libraries and companion packages."""
    cuda = said.libraries.get("cuda")
    if cuda is not None and variant.cuda and not admits(cuda, variant.cuda):
        yield IndexDifference(kind="cuda", message=f"the row says CUDA {variant.cuda}, but the wheel requires {cuda}", **known)
    for what in ("cudnn", "nccl"):
        need: LibraryNeed | None = getattr(variant, what)
        asked = said.libraries.get(what)
        if asked is not None and need is not None:
            yield from (IndexDifference(kind=what, message=message, **known) for message in _library(what, need, asked))
            if need.taken_from == "wheels" and variant.origin.source_of(what).startswith(_PACKAGE):
                yield from (IndexDifference(kind=what, message=message, **known) for message in _quoted(what, need, asked))
        elif asked is not None and variant.cuda:
            yield IndexDifference(
                kind="more", message=f"the wheel requires {what} {asked}, which the row does not mention", **known
            )
        elif need is not None and need.taken_from == "wheels" and said.libraries:
            yield IndexDifference(
                kind=what,
                message=f"the row says that {what} comes as a package, but the wheel does not require such a package",
                **known,
            )
    for each in (*variant.requirements, *variant.constraints, *variant.choices):
        ours = Requirement(each.requirement)
        theirs = said.projects.get(canonicalize_name(ours.name))
        pinned = exactly(ours.specifier)
        if each.source.startswith(_PACKAGE) and theirs != ours.specifier:
            says = f"requires {ours.name}{theirs}" if theirs is not None else f"does not require {ours.name}"
            yield IndexDifference(
                kind="beside", message=f"the row names {each.source} as the source of {ours}, but that wheel {says}", **known
            )
        elif theirs is not None and pinned and not theirs.contains(Version(pinned).public, prereleases=True):
            yield IndexDifference(
                kind="beside", message=f"the row says {ours}, but the wheel requires {ours.name}{theirs}", **known
            )


def _library(what: str, need: LibraryNeed, asked: SpecifierSet) -> Iterator[str]:
    """Return how a row's need of a library differs from the wheel's requirement."""
    for text in dict.fromkeys(filter(None, (need.prefer, need.minimum))):
        if not admits(asked, text):
            yield f"the row says {what} {text}, but the wheel requires {asked}"
    end = below(asked)
    if need.below and end and numbers(need.below) > numbers(end):
        yield f"the row allows {what} below {need.below}, but the wheel requires {asked}"


def _quoted(what: str, need: LibraryNeed, asked: SpecifierSet) -> Iterator[str]:
    """Compare a row's range of versions of a library with the requirement of the wheel. The row names a package of the index as
    the source of the range, so both must be the same."""
    if need.exact and not exactly(asked):
        yield f"the row allows only {what} {need.prefer}, but the wheel requires {asked}"
    elif not need.exact and not has_prefix(lowest(asked), need.minimum):
        start = f"from {need.minimum} on" if need.minimum else "without a lowest version"
        yield f"the row allows {what} {start}, but the wheel requires {asked}"
    elif not need.exact and not exactly(asked) and numbers(need.below or "0") != numbers(below(asked) or "0"):
        end = f"below {need.below}" if need.below else "without a highest version"
        yield f"the row allows {what} {end}, but the wheel requires {asked}"


def against_metadata(matrix: Matrix, declared: Declarations) -> list[IndexDifference]:
    """Return differences between rows and the metadata of wheels. Differences that a row explains are left out."""
    found: list[IndexDifference] = []
    for framework in matrix.frameworks:
        for release in framework.releases:
            for variant in release.variants:
                said = declared.get(key_of(variant, release.version)) if indexed(variant) else None
                at, name = variant.origin.at, variant.package
                known = {"framework": framework.name, "version": release.version, "package": name, "at": at}
                told = list(_metadata(variant, said, known)) if said is not None else []
                found += [each for each in told if each.wrong and each.kind not in dict(variant.contradicts)]
    return found


def _new(framework: FrameworkTable, published: Published) -> Iterator[IndexDifference]:
    known = {Version(release.version) for release in framework.releases}
    oldest = min(known)
    seen: set[Version] = set()
    for package in packages(framework):
        for version, there in published[package].items():
            fresh = version > oldest and version not in known | seen and not version.local
            if fresh and not there.yanked and why_left_out(framework.left_out, str(version)) is None:
                seen.add(version)
                yield IndexDifference(
                    kind="new",
                    framework=framework.name,
                    version=str(version),
                    package=package,
                    message=f"published on {there.day or 'an unknown day'}, but not in the matrix",
                    at="",
                )
