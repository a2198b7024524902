"""The order in which the releases of a framework are tried: newest first, except for narrowed patches.

Some patches were published with code for a single GPU. A patch is called *narrowed* if its build has native code for far fewer
architectures than the build of an earlier patch: for fewer than half of the earlier build's architectures. The two patches must
have the same minor version, and their builds must be for the same CUDA. A narrowed patch comes after the other patches of its
minor version. The limit is a half, so that a patch in which upstream dropped a single old architecture on purpose is not
narrowed (docs/decisions, narrowed patches).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.types import Release, Variant


def in_order_of_choice(releases: Sequence[Release]) -> Iterator[Release]:
    """Yield ``releases``, which are newest first, with narrowed patches after the other patches of their minor version."""
    for _, each in itertools.groupby(releases, key=lambda release: _minor(release.version)):
        patches = list(each)
        yield from sorted(patches, key=lambda release: wider_patch(release, patches) is not None)


def wider_patch(release: Release, releases: Sequence[Release]) -> Release | None:
    """Return the newest earlier patch of the same minor version for which this holds: ``release`` has native code for fewer
    than half of the GPU architectures for which that patch has native code. None if there is no such patch.

    ``releases`` are newest first and include all patches of that minor version.
    """
    earlier = [other for other in releases if _minor(other.version) == _minor(release.version)]
    for other in earlier[earlier.index(release) + 1 :]:
        pairs = itertools.product(release.variants, other.variants)
        if any(_is_narrowed(one, another) for one, another in pairs if (one.name, one.cuda) == (another.name, another.cuda)):
            return other
    return None


def _is_narrowed(ours: Variant, earlier: Variant) -> bool:
    if not (ours.cuda and ours.sass and earlier.sass):
        return False
    native = [capability for capability in earlier.sass if code_for(ours, capability) == "native"]
    return 2 * len(native) < len(earlier.sass)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
