"""Sum up the GPU code of libraries, and separate a framework's own kernels from those of CUDA libraries that are linked into
it.

All source files of a framework are compiled for one list of GPUs. Each CUDA library that is linked statically has its own list.
So containers with the same list are counted together. If the kernels of a list have names of CUDA's libraries, the list belongs
to these libraries. Among the remaining lists, the list with the most containers is the framework's own. The larger the share of
this list in the containers of all remaining lists is, the more certain is this conclusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from envbuild.measure.damage import DamagedError
from envbuild.measure.fatbin import NATIVE, PTX, Container, Entry, Read, containers
from envbuild.measure.kernel_names import first_kernel, is_of_cuda

_SAMPLES = 24
_UNLINKED = "nv_relfatbin"
_LARGE = 32 << 20  # bytes
# The most varied library measured so far has 40 lists of GPUs, and about 24 GPUs.
_MOST_LISTS, _MOST_GPUS, _MOST_VERSIONS = 2000, 2000, 200


class GpuList(NamedTuple):
    """Containers that have code for the same GPUs. ``of_cuda`` is true if their kernels have names of CUDA's own libraries."""

    native: tuple[str, ...]
    ptx: tuple[str, ...]
    containers: int
    size: int
    of_cuda: bool
    kernels: tuple[str, ...]


class OwnCode(NamedTuple):
    """The GPUs for which a framework itself was compiled. ``certainty`` is ``certain``, ``likely`` or ``unclear``.

    ``share`` is the number of containers with exactly this list of GPUs, as a fraction of all containers outside of CUDA's
    libraries.
    """

    native: tuple[str, ...]
    ptx: tuple[str, ...]
    share: float
    certainty: str


UNREADABLE = OwnCode((), (), 0.0, "unclear")
"""For a file whose GPU code, if it has any, cannot be read."""


@dataclass
class _Counted:
    containers: int = 0
    size: int = 0
    stride: int = 1
    samples: list[Entry] = field(default_factory=list)

    def add(self, container: Container) -> None:
        """Count a container of GPU code. Some containers, which are evenly distributed over the file, give one entry each as a
        sample. The names of kernels are later read from these samples."""
        if self.containers % self.stride == 0 and container.entries:
            self.samples.append(min(container.entries, key=lambda entry: (entry.kind != NATIVE, entry.size)))
            if len(self.samples) > _SAMPLES:
                self.samples = self.samples[::2]
                self.stride *= 2
        self.containers += 1
        self.size += container.size


class Reading(NamedTuple):
    """The GPU code of one library, and the versions of the PTX in it."""

    lists: tuple[GpuList, ...]
    ptx_versions: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]


def read_sections(read: Read, sections: Sequence[tuple[str, int, int]]) -> Reading:
    """Return the lists of GPUs in ``sections``, which are triples of name, offset and size. Raises :class:`DamagedError`.

    The section ``__nv_relfatbin`` has the kernels before they were linked, and ``.nv_fatbin`` has the linked kernels. So the
    lists of ``__nv_relfatbin`` are used only if there is no ``.nv_fatbin``. ``counts`` maps the name of each section to the
    numbers of its entries for each GPU. For capability 8.6, the keys of these numbers are ``8.6`` (native code) and ``8.6
    PTX``.
    """
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], _Counted] = {}
    versions: set[str] = set()
    counts: dict[str, dict[str, int]] = {}
    linked = any(not name.endswith(_UNLINKED) for name, _, _ in sections)
    for name, begin, size in sections:
        here = counts.setdefault(name, {})
        listed = not (linked and name.endswith(_UNLINKED))
        for container in containers(read, begin, size):
            key = (_of_kind(container, NATIVE), _of_kind(container, PTX))
            if key not in found and len(found) >= _MOST_LISTS:
                raise DamagedError(f"has more than {_MOST_LISTS} different lists of GPUs")
            if listed and any(key):
                found.setdefault(key, _Counted()).add(container)
            versions |= {entry.version for entry in container.entries if entry.version}
            _count(here, container)
            if len(here) > _MOST_GPUS or len(versions) > _MOST_VERSIONS:
                raise DamagedError("has GPU code for more GPUs, or of more versions of PTX, than there are")
    lists = tuple(_list(read, native, ptx, counted) for (native, ptx), counted in found.items())
    return Reading(by_count(lists), tuple(sorted(versions, key=_version)), counts)


def hides_code(size: int, sections: Iterable[tuple[str, int, int]], data: int = 0) -> bool:
    """Whether a large library of NVIDIA has its kernels outside of the sections for GPU code, so that its GPUs are not known.

    cuFFT from CUDA 12.2 on has one or two kernels in ``sections``, and hundreds of megabytes of kernels in another format.
    cuFFT of CUDA 13.5 has no such section: its kernels are among its variables, which take ``data`` bytes of the ``size`` of
    the file. The variables of NVIDIA's libraries without GPU code, such as NVRTC, are small.
    """
    read = sum(length for _, _, length in sections)
    return size > _LARGE and read * 100 < size and (read > 0 or data * 2 > size)


def _count(here: dict[str, int], container: Container) -> None:
    for entry in container.entries:
        label = entry.capability + (" PTX" if entry.kind == PTX else "")
        here[label] = here.get(label, 0) + 1


def merged(lists: Iterable[GpuList]) -> tuple[GpuList, ...]:
    """Merge the lists of several libraries: lists with code for the same GPUs become one list."""
    found: dict[tuple[object, ...], GpuList] = {}
    for each in lists:
        key = (each.native, each.ptx, each.of_cuda)
        known = found.get(key)
        if known is not None:
            kernels = tuple(dict.fromkeys([*known.kernels, *each.kernels]))[:3]
            each = each._replace(  # noqa: PLW2901
                containers=known.containers + each.containers, size=known.size + each.size, kernels=kernels
            )
        found[key] = each
    return by_count(found.values())


def by_count(lists: Iterable[GpuList]) -> tuple[GpuList, ...]:
    """The lists, sorted by their number of containers, the largest number first."""
    return tuple(sorted(lists, key=lambda each: (-each.containers, -each.size, each.native, each.ptx)))


def own_code(lists: Sequence[GpuList]) -> OwnCode | None:
    """The GPUs for which the framework itself was compiled; None if there is no GPU code.

    If all kernels belong to CUDA's libraries, the file is one of these libraries, and all its code counts.
    """
    own = own_lists(lists) or lists
    if not own:
        return None
    most = by_count(own)[0]
    share = most.containers / sum(each.containers for each in own)
    certainty = "certain" if share >= 0.9 else "likely" if share >= 0.5 else "unclear"
    return OwnCode(most.native, most.ptx, round(share, 3), certainty)


def own_lists(lists: Iterable[GpuList]) -> list[GpuList]:
    """The lists without those of CUDA's libraries."""
    return [each for each in lists if not each.of_cuda]


def capability_order(capability: str) -> tuple[int, int, str]:
    """The key that sorts capabilities in the order ``9.0``, ``9.0a``, ``10.0``."""
    number = capability.rstrip("af")
    major, _, minor = number.partition(".")
    return int(major), int(minor), capability[len(number) :]


def _of_kind(container: Container, kind: int) -> tuple[str, ...]:
    return tuple(sorted({entry.capability for entry in container.entries if entry.kind == kind}, key=capability_order))


def _list(read: Read, native: tuple[str, ...], ptx: tuple[str, ...], counted: _Counted) -> GpuList:
    names = [name for entry in counted.samples if (name := first_kernel(read, entry))]
    # Many kernels of CUDA's libraries have names that identify no library, so it is enough if a quarter of the names identifies
    # a library.
    of_cuda = bool(names) and sum(map(is_of_cuda, names)) * 4 >= len(names)
    shown = tuple(dict.fromkeys(name[:120] for name in names))[:3]
    return GpuList(native, ptx, counted.containers, counted.size, of_cuda, shown)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
