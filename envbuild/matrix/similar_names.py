"""The known names and versions nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.matrix.versions import version_parts


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names that look most like ``name``, best first."""
    import difflib

    return difflib.get_close_matches(name.lower(), sorted(set(known)), n=count, cutoff=0.6)


def nearest_versions(known: Sequence[str], wanted: str) -> list[str]:
    """Versions, given newest first: those of the same major first, then by how few lie between them and the one asked for."""
    parts = version_parts(wanted)
    place = sum(version_parts(version) > parts for version in known) - 0.5
    order = sorted((version_parts(version)[:1] != parts[:1], abs(index - place), index) for index, version in enumerate(known))
    return [known[index] for *_, index in order]
