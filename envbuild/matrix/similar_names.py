"""Find the known names or versions that are most similar to an unknown name or version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.matrix.versions import version_parts


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names that are most similar to ``name``, best first."""
    import difflib

    return difflib.get_close_matches(name.lower(), sorted(set(known)), n=count, cutoff=0.6)


def did_you_mean(near: Sequence[str]) -> str:
    """Return a question for the beginning of a hint, about the first of the names ``near``; empty if there are none."""
    return f"Did you mean {near[0]}? " if near else ""


def nearest_versions(known: Sequence[str], wanted: str) -> list[str]:
    """Sort ``known`` versions (given newest first), the nearest to ``wanted`` first. Versions with the major version of
    ``wanted`` come first, then all others. Both groups are sorted by the number of releases between the version and
    ``wanted``."""
    parts = version_parts(wanted)
    place = sum(version_parts(version) > parts for version in known) - 0.5
    order = sorted((version_parts(version)[:1] != parts[:1], abs(index - place), index) for index, version in enumerate(known))
    return [known[index] for *_, index in order]
