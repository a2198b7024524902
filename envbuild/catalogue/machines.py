"""Writes the resolver's rules about drivers and GPUs as a table. With the table, a static page can answer "what runs on my
machine?".

The table has a cell for each kind of build and each kind of GPU. A cell has the answer of
:mod:`envbuild.resolve.search.hardware` for every driver version. Versions are grouped into intervals: all versions of an
interval have the same answer. The page only looks up cells; the page has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from envbuild.matrix import gpu_names
from envbuild.matrix.libraries import drops
from envbuild.matrix.platform import LibraryRow
from envbuild.matrix.types import Matrix, Variant
from envbuild.matrix.versions import numbers
from envbuild.resolve.request.gpus import find_gpu
from envbuild.resolve.request.model import GpuWanted, Request
from envbuild.resolve.search.hardware import hardware_objections, hardware_warnings, last_branch
from envbuild.resolve.search.lookup import Lookup, lookup_of

# Placeholders in texts. The page replaces BUILD, DRIVER and GPU by the names of the reader's build, driver and GPU. It replaces
# ABOUT by the architecture and the capability of the GPU, in brackets.
BUILD, DRIVER, GPU, ABOUT = "{build}", "{driver}", "{gpu}", "{about}"
# An invented driver version stands for an interval of versions. The invented version ends with these digits, which no real
# version has. So the invented version can be found in a text and replaced by DRIVER.
_BEYOND = "0.7777"


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineAnswer:
    """One answer: objections to a build that does not fit, or remarks about a build that fits.

    The numbers are indexes in :attr:`Machines.texts`.
    """

    objections: tuple[int, ...] = ()
    remarks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """The table that says whether a build runs with a driver on a GPU.

    ``cells[build][gpu]`` is a flat list: a driver number, an index in ``outcomes``, the next driver number, and so on. An
    outcome is valid from its driver number up to the next driver number in the list. Driver number 0 stands for an unnamed
    driver. Driver number n stands for the interval that begins with ``drivers[n-1]``; ``drivers`` is in ascending order.
    GPU number 0 stands for an unnamed GPU, and every other GPU number for a kind of GPU. ``about[n]`` describes GPU number n.

    Each item of ``boards`` is (name, aliases, capability, GPU number). Each item of ``capabilities`` is (capability,
    architecture, GPU number). Each item of ``texts`` is (text, source), and each item of ``vendors`` is (vendor, needs, names).
    ``branches`` are the known driver branches. ``names`` are the regular expressions for comparing names of GPUs.
    """

    drivers: tuple[str, ...]
    branches: tuple[str, ...]
    boards: tuple[tuple[str, tuple[str, ...], str, int], ...]
    capabilities: tuple[tuple[str, str, int], ...]
    about: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    outcomes: tuple[MachineAnswer, ...]
    cells: tuple[tuple[tuple[int, ...], ...], ...]
    names: gpu_names.Patterns
    vendors: tuple[tuple[str, str, tuple[str, ...]], ...]


_Found = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]  # objections and remarks, as (text, source)


@dataclass(kw_only=True)
class MachineTable:
    """Collects the kinds of builds that :meth:`kind_of` is called with, and makes their table."""

    matrix: Matrix
    _kinds: dict[object, int] = field(default_factory=dict)
    _builds: list[tuple[Variant, tuple[LibraryRow, ...]]] = field(default_factory=list)

    def kind_of(self, variant: Variant, cudnn: str | None, nccl: str | None) -> int | None:
        """Return the number of the kind of build to which ``variant`` with these libraries belongs.

        Return None for a CPU build, because such a build fits every machine.
        """
        if not variant.cuda:
            return None
        lookup = lookup_of(self.matrix)
        libraries = tuple(_libraries(lookup, variant, cudnn, nccl))
        code = (variant.sass, variant.ptx, variant.only_ptx, variant.bad_capabilities)
        facts = (variant.cuda, *code, variant.origin.source_of("capabilities"))
        key = (*facts, tuple(row.key for row in libraries))
        if key not in self._kinds:
            self._kinds[key] = len(self._builds)
            self._builds.append((variant, libraries))
        return self._kinds[key]

    def machines(self) -> Machines:
        """Return the table of all kinds of builds that :meth:`kind_of` was called with."""
        lookup = lookup_of(self.matrix)
        drivers = _intervals(self.matrix)
        boards, capabilities, gpus = _gpus(self.matrix)
        texts: dict[tuple[str, str], int] = {}
        outcomes: dict[MachineAnswer, int] = {}

        def number(found: _Found) -> int:
            objections, remarks = (tuple(texts.setdefault(each, len(texts)) for each in part) for part in found)
            return outcomes.setdefault(MachineAnswer(objections=objections, remarks=remarks), len(outcomes))

        cells = tuple(tuple(_cell(lookup, build, gpu, drivers, number) for gpu in (None, *gpus)) for build in self._builds)
        return Machines(
            drivers=drivers,
            branches=tuple(row.branch for row in self.matrix.drivers),
            boards=boards,
            capabilities=capabilities,
            about=("", *map(_about, gpus)),
            texts=tuple(texts),
            outcomes=tuple(outcomes),
            cells=cells,
            names=gpu_names.patterns(),
            vendors=tuple((row.vendor, row.needs, row.names) for row in self.matrix.gpu_vendors),
        )


def _libraries(lookup: Lookup, variant: Variant, cudnn: str | None, nccl: str | None) -> Iterator[LibraryRow]:
    """Yield the rows of cuDNN and NCCL, if the build uses the system's library and the row has a minimum compute capability."""
    for library, need, version in (("cudnn", variant.cudnn, cudnn), ("nccl", variant.nccl, nccl)):
        if need is None or version is None or need.taken_from != "system":
            continue
        yield from (row for row in lookup.libraries[library] if row.version == version and row.capability_min)


def _intervals(matrix: Matrix) -> tuple[str, ...]:
    """Return the driver versions at which an answer can change.

    These are the minimum drivers, the first version of each driver branch, and the first version after each driver branch.
    """
    branches = {int(row.branch) for row in matrix.drivers}
    branches |= {int(row.last_driver_branch) for row in matrix.architectures if row.last_driver_branch}
    branches |= {int(branch) for row in matrix.cuda for branch in row.forward_compat}
    found = {str(number) for branch in branches for number in (branch, branch + 1)}
    found |= {row.driver_min for row in matrix.cuda} | {row.driver_min for row in matrix.driver_rules} | {"0"}
    return tuple(sorted(filter(None, found), key=numbers))


def _gpus(
    matrix: Matrix,
) -> tuple[tuple[tuple[str, tuple[str, ...], str, int], ...], tuple[tuple[str, str, int], ...], list[GpuWanted]]:
    """Return boards and capabilities, each with the number of its kind of GPU. Also return one GPU of each kind."""
    kinds: dict[object, int] = {}
    gpus: list[GpuWanted] = []

    def kind_of(gpu: GpuWanted) -> int:
        board = gpu.board
        known = (board.host, board.origin.status, board.key if board.host else "") if board else None
        key = (gpu.capability, known if known and (known[0] or known[1] == "known-bad") else None)
        if key not in kinds:
            kinds[key] = len(gpus) + 1
            gpus.append(gpu._replace(text=GPU))
        return kinds[key]

    boards = []
    for row in matrix.gpus:
        architecture = gpu_names.find_architecture(matrix, row.capability)
        gpu = GpuWanted(text=row.name, capability=row.capability, board=row, architecture=architecture)
        boards.append((row.name, row.aliases, row.capability, kind_of(gpu)))
    capabilities = []
    for architecture in matrix.architectures:
        for capability in architecture.capabilities:
            gpu, _ = find_gpu(matrix, f"sm_{capability.replace('.', '')}")
            capabilities.append((capability, architecture.name, kind_of(gpu)))
    return tuple(boards), tuple(capabilities), gpus


def _cell(
    lookup: Lookup,
    build: tuple[Variant, tuple[LibraryRow, ...]],
    gpu: GpuWanted | None,
    drivers: Sequence[str],
    number_of: Callable[[_Found], int],
) -> tuple[int, ...]:
    changing = _changing(lookup, build[0], gpu)
    found: list[int] = []
    for index, driver in enumerate(("", *drivers)):
        if index > 1 and driver not in changing:
            continue
        number = number_of(_answer(lookup, build, gpu, f"{driver}.{_BEYOND}" if driver else ""))
        if not found or found[-1] != number:
            found += [index, number]
    return tuple(found)


def _changing(lookup: Lookup, variant: Variant, gpu: GpuWanted | None) -> set[str]:
    """Return the driver versions at which the answer for this build and this GPU can change. Between these versions, the answer
    stays the same."""
    row = lookup.cuda.get(variant.cuda)
    found = {each.driver_min for each in (row, lookup.native_rule(row)) if each is not None} if row is not None else set()
    branches = {int(each.branch) for each in lookup.matrix.drivers if each.origin.status == "known-bad"}
    branches |= {int(branch) for branch in row.forward_compat} if row is not None else set()
    if gpu is not None and gpu.architecture is not None:
        branches |= {int(each) for each in (gpu.architecture.last_driver_branch, lookup.first_branch(gpu.architecture)) if each}
    if gpu is None or not gpu.capability:
        branches |= {int(each) for each in (last_branch(lookup, variant),) if each}
    return found | {str(number) for branch in branches for number in (branch, branch + 1)}


def _answer(lookup: Lookup, build: tuple[Variant, tuple[LibraryRow, ...]], gpu: GpuWanted | None, driver: str) -> _Found:
    variant, libraries = build
    request = _request(driver, gpu)
    found = [each.conflict for each in hardware_objections(lookup, request, BUILD, variant)]
    against = [(f"{each.row}: {each.reason}", each.source) for each in found]
    for row in libraries if gpu is not None and gpu.capability else ():
        if drops(row, gpu.capability if gpu else ""):
            reason = f"{row.key}: supports GPUs of compute capability {row.capability_min} or higher, not {GPU}"
            against.append((reason, row.origin.source_of("capability_min")))
    remarks = [] if against else [(text, "") for text in hardware_warnings(lookup, request, BUILD, variant)]

    def asked(part: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        about = _about(gpu) if gpu is not None else ""
        plain = ((text.replace(driver, DRIVER) if driver else text, source) for text, source in part)
        return tuple(dict.fromkeys((text.replace(about, ABOUT) if about else text, source) for text, source in plain))

    return asked(against), asked(remarks)


def _about(gpu: GpuWanted) -> str:
    """Return the text that follows the name of a GPU in messages."""
    architecture = f"{gpu.architecture.name}, " if gpu.architecture is not None else ""
    return f"({architecture}compute capability {gpu.capability})"


def _request(driver: str, gpu: GpuWanted | None) -> Request:
    return Request(
        text="", wanted=(), device="gpu", cuda="", cudnn="", nccl="", python="", python_from="", systems=(), system_text="",
        base="", image="", driver=driver, gpus=() if gpu is None else (gpu,), warnings=(),
    )  # fmt: skip
