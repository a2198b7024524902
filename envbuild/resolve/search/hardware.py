"""The rules about drivers and GPUs: objections to running a build on them, and warnings about a build that can run on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envbuild.matrix.gpu_code import code_for, oldest_for_ptx
from envbuild.matrix.gpu_rows import Architecture, Gpu
from envbuild.matrix.libraries import accepts, drops
from envbuild.matrix.platform import CudaRow, DriverRow, LibraryRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import numbers
from envbuild.resolve.request.model import DRIVER, GPU, GpuWanted, Part, Request
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, objection, status_objection


def newer_or_equal(driver: str, minimum: str) -> bool:
    """Whether the driver version ``driver`` is ``minimum`` or newer. A branch (``384``) or the beginning of a version
    (``525.60``) stands for the latest driver that begins with it."""
    given = [int(part) for part in driver.split(".")]
    return given >= [int(part) for part in minimum.split(".")][: len(given)]


def hardware_objections(lookup: Lookup, request: Request, row: str, variant: Variant) -> list[Objection]:
    """The objections to running a build on the request's driver and GPUs."""
    if not variant.cuda:
        return []
    known = [status_objection(row.key, row.origin, part) for part, row in hardware_rows(lookup, request)]
    found = [item for item in known if item is not None]
    found.extend(limit_objections(lookup, variant))
    if request.driver:
        found.extend(_driver_objections(lookup, request.driver, variant, f"the request names {request.driver}"))
        if not any(gpu.capability for gpu in request.gpus):
            found.extend(_nothing_left(lookup, request.driver, row, variant))
    for gpu in request.gpus:
        found.extend(_gpu_objections(lookup, request, row, variant, gpu))
    return found


def in_order_of_driver(lookup: Lookup, request: Request, variants: Sequence[Variant]) -> Sequence[Variant]:
    """Sort the builds of a release by the expected driver. Of the builds for one major version of CUDA, those come first that
    the driver runs without minor-version compatibility. Upstream's own default stays before them."""
    driver, _ = expected_driver(lookup, request)
    if not driver:
        return variants
    majors = [variant.cuda.partition(".")[0] for variant in variants]

    def key(variant: Variant) -> tuple[int, bool]:
        first = majors.index(variant.cuda.partition(".")[0])
        return first, not (variant.default or _runs_fully(lookup, driver, variant))

    return sorted(variants, key=key)


def only_by_compatibility(lookup: Lookup, request: Request, ours: Variant, others: Iterable[Variant]) -> list[Variant]:
    """Of ``others``, the builds that come after ``ours`` because the expected driver runs them only by minor-version
    compatibility."""
    driver, _ = expected_driver(lookup, request)
    if not driver or ours.default or not _runs_fully(lookup, driver, ours):
        return []
    major = ours.cuda.partition(".")[0]
    same = [other for other in others if other.cuda.partition(".")[0] == major and not other.default]
    return [other for other in same if not _runs_fully(lookup, driver, other)]


def expected_driver(lookup: Lookup, request: Request) -> tuple[str, str]:
    """The driver of the request, else that of the site, else the last one that supports the GPUs of the request; and its name
    in messages. Both are empty if any driver may be there."""
    limit = lookup.matrix.driver_limit
    if driver := request.driver or (limit.driver if limit is not None else ""):
        return driver, f"driver {driver}"
    lasts = [(gpu.architecture.last_driver_branch, gpu.text) for gpu in request.gpus if gpu.architecture is not None]
    driver, gpu_text = min(filter(lambda last: last[0], lasts), key=lambda last: numbers(last[0]), default=("", ""))
    return driver, f"driver {driver}, the last one for {gpu_text}," if driver else ""


def _runs_fully(lookup: Lookup, driver: str, variant: Variant) -> bool:
    """Whether a driver is at least the one that the build's CUDA needs. An older driver may run the build by minor-version
    compatibility, but then it cannot compile the build's PTX."""
    return newer_or_equal(driver, lookup.driver_min(variant.cuda) or "0")


def limit_objections(lookup: Lookup, variant: Variant) -> Iterator[Objection]:
    """The objection to a build that needs a newer driver than the site has. A rule of the site's policy states the site's
    driver."""
    limit = lookup.matrix.driver_limit
    if limit is None:
        return
    for item in _driver_objections(lookup, limit.driver, variant, f"the site has driver {limit.driver}: {limit.reason}"):
        yield item._replace(part=None, remedy="")


def hardware_rows(lookup: Lookup, request: Request) -> Iterator[tuple[Part, DriverRow | Gpu | Architecture]]:
    """Return the rows of the matrix about the driver and the GPUs of the request."""
    branch = request.driver.partition(".")[0]
    if branch in lookup.drivers:
        yield DRIVER, lookup.drivers[branch]
    for gpu in request.gpus:
        yield from ((GPU, row) for row in (gpu.board, gpu.architecture) if row is not None)


def _driver_objections(lookup: Lookup, driver: str, variant: Variant, stated: str) -> Iterable[Objection]:
    """The objection to a build that needs a newer driver. ``stated`` says where the driver is from."""
    row = lookup.cuda.get(variant.cuda)
    if row is None or newer_or_equal(driver, row.driver_min):
        return
    rule = lookup.native_rule(row)
    if rule is None or not newer_or_equal(driver, rule.driver_min):
        least = (rule or row).driver_min
        source = rule.origin.source if rule is not None else row.origin.source_of("driver_min")
        reason = f"CUDA {row.version} needs driver {least} or newer; {stated}"
        yield objection(DRIVER, row.key, reason, source, "cuda")._replace(remedy=_forward(driver, row))


def _nothing_left(lookup: Lookup, driver: str, row: str, variant: Variant) -> Iterable[Objection]:
    """The objection to a build for GPUs that the driver no longer supports."""
    last = last_branch(lookup, variant)
    if last and numbers(driver)[0] > numbers(last)[0]:
        reason = f"no GPU that driver {driver} supports can run it; the last driver branch that supports its GPUs is {last}"
        yield objection(DRIVER, row, reason, variant.origin.source_of("capabilities"))


def last_branch(lookup: Lookup, variant: Variant) -> str:
    """The newest driver branch that supports any GPU on which a build runs; empty if that is every later branch, too."""
    fitting = (row for row in lookup.matrix.architectures if any(_fits(variant, row, item) for item in row.capabilities))
    found = [row.last_driver_branch for row in fitting]
    return max(found, key=numbers) if found and all(found) else ""


def _fits(variant: Variant, architecture: Architecture, capability: str) -> bool:
    """Whether a build runs on a GPU of this architecture and capability with a suitable driver."""
    code, last = code_for(variant, capability), architecture.last_cuda
    bad = (item for rule in variant.bad_capabilities for item in rule.capabilities)
    if code == "none" or (last and numbers(variant.cuda) > numbers(last)) or numbers(capability) in map(numbers, bad):
        return False
    return code == "native" or numbers(variant.cuda) >= numbers(oldest_for_ptx(architecture))


def _forward(driver: str, row: CudaRow) -> str:
    """Name NVIDIA's package with a newer driver library. With this package, ``driver`` can run this CUDA. The text is empty if
    there is no such package."""
    branch = driver.partition(".")[0]
    if branch not in row.forward_compat:
        return ""
    package = f"cuda-compat-{row.version.replace('.', '-')}"
    document = row.origin.source_of("forward_compat")
    return (
        f"; on data-center GPUs, drivers of branch {branch} can run this CUDA if the image contains NVIDIA's package {package} "
        f"[{document}]"
    )


def takes_compat(lookup: Lookup, request: Request) -> bool:
    """Whether a newer driver library works with all GPUs of the request. For this, the GPUs must be data-center boards that the
    requested driver supports."""
    branch = int(request.driver.partition(".")[0] or 0)
    return all(
        gpu.board is not None
        and gpu.architecture is not None
        and gpu.board.kind == "datacenter"
        and branch >= int(lookup.first_branch(gpu.architecture) or 0)
        for gpu in request.gpus
    )


def _gpu_objections(lookup: Lookup, request: Request, row: str, variant: Variant, gpu: GpuWanted) -> Iterable[Objection]:
    if gpu.board is not None and gpu.board.host:
        reason = f"is sold only together with its own {gpu.board.host} processor, but images are built for x86-64 processors"
        yield objection(GPU, gpu.board.key, reason, gpu.board.origin.source_of("host"))
    if not gpu.capability:
        return
    code = code_for(variant, gpu.capability)
    yield from _window_objections(lookup, request, variant, gpu, code)
    for bad in variant.bad_capabilities:
        if numbers(gpu.capability) in map(numbers, bad.capabilities):
            yield objection(GPU, row, f"known not to work on {_gpu(gpu)}: {bad.reason}", bad.source)
    if code == "none":
        holds = ", ".join((*variant.sass, *(f"PTX {entry}" for entry in variant.ptx)))
        source = variant.origin.source_of("capabilities")
        reason = (
            f"its binaries contain GPU code for compute capability {holds}, which does not run on {_gpu(gpu)}: the first "
            'kernel fails with "no kernel image is available for execution on the device"'
        )
        yield objection(GPU, row, reason, source)
    if code == "ptx":
        yield from _ptx_objections(lookup, request, row, variant, gpu)


def _ptx_objections(lookup: Lookup, request: Request, row: str, variant: Variant, gpu: GpuWanted) -> Iterable[Objection]:
    """Object to a build that has only PTX for a GPU. Object only if the driver of the request, or that of the site, cannot
    compile the PTX."""
    cuda, limit = lookup.cuda.get(variant.cuda), lookup.matrix.driver_limit
    drivers = [(request.driver, DRIVER, f"driver {request.driver}", "")] if request.driver else []
    drivers += [(limit.driver, GPU, f"the site's driver {limit.driver}", f"; {limit.reason}")] if limit is not None else []
    for driver, part, named, rule in drivers:
        if cuda is not None and not newer_or_equal(driver, cuda.driver_min):
            reason = (
                f"its binaries have only PTX for {_gpu(gpu)}, and {named} is older than {cuda.driver_min}, the minimum "
                f"driver of CUDA {cuda.version}. So this driver cannot compile the PTX: minor-version compatibility covers "
                f"only native code{rule}"
            )
            found = objection(part, row, reason, variant.origin.source_of("capabilities"))
            yield found._replace(other_part=GPU) if part == DRIVER else found


def _window_objections(lookup: Lookup, request: Request, variant: Variant, gpu: GpuWanted, code: str) -> Iterable[Objection]:
    """Object to a CUDA toolkit or driver branch that does not support a GPU's architecture. The rule about toolkits older than
    the GPU is in ``matrix.gpu_code``."""
    architecture = gpu.architecture
    if architecture is None:
        row = lookup.cuda.get(variant.cuda)
        if row is not None and numbers(gpu.capability) < numbers(row.capability_min):
            reason = (
                f"CUDA {row.version} supports GPUs of compute capability {row.capability_min} or newer, not {gpu.capability}"
            )
            yield objection(GPU, row.key, reason, row.origin.source_of("capabilities"), "cuda")
        return
    origin = architecture.origin
    if architecture.last_cuda and numbers(variant.cuda) > numbers(architecture.last_cuda):
        reason = (
            f"CUDA {variant.cuda} no longer supports {_gpu(gpu)}; the last CUDA that supports it is {architecture.last_cuda}"
        )
        yield objection(GPU, architecture.key, reason, origin.source_of("last_cuda"), "cuda")
    oldest = oldest_for_ptx(architecture)
    if numbers(variant.cuda) < numbers(oldest) and code != "native":
        old_ptx = f", or one with PTX of CUDA {oldest} or newer" if oldest != architecture.first_cuda else ""
        reason = (
            f"CUDA {variant.cuda} predates {_gpu(gpu)}, which CUDA {architecture.first_cuda} was first to support. "
            "Its libraries have no code for this GPU, and compiling such old PTX takes half an hour or more, or fails. "
            f"Use a build for CUDA {architecture.first_cuda} or newer{old_ptx}"
        )
        yield objection(
            GPU, architecture.key, reason, origin.source_of("ptx_from" if architecture.ptx_from else "first_cuda"), "cuda"
        )
    last = architecture.last_driver_branch
    if request.driver and last and numbers(request.driver)[0] > numbers(last)[0]:
        reason = f"driver {request.driver} no longer supports {_gpu(gpu)}; the last driver branch that supports it is {last}"
        yield objection(DRIVER, architecture.key, reason, origin.source_of("last_driver_branch"))._replace(other_part=GPU)
    first = lookup.first_branch(architecture)
    if request.driver and first and numbers(request.driver)[0] < int(first):
        came = f"became supported with CUDA {architecture.first_cuda} and driver branch {first}"
        reason = f"driver {request.driver} does not support {_gpu(gpu)}, which {came}"
        yield objection(DRIVER, architecture.key, reason, origin.source_of("first_cuda"))._replace(other_part=GPU)


def _gpu(gpu: GpuWanted) -> str:
    known = f"compute capability {gpu.capability}"
    if gpu.architecture is not None:
        known = f"{gpu.architecture.name}, {known}"
    return f"{gpu.text} ({known})"


def hardware_warnings(lookup: Lookup, request: Request, row: str, variant: Variant) -> list[str]:
    """Warnings about a build that is accepted for the request's driver and GPUs."""
    if not variant.cuda:
        return []
    found = []
    cuda = lookup.cuda.get(variant.cuda)
    if request.driver and cuda is not None and not newer_or_equal(request.driver, cuda.driver_min):
        found.append(
            f"Driver {request.driver} is older than the driver that CUDA {cuda.version} needs ({cuda.driver_min}). By "
            "minor-version compatibility it works, but only on GPUs with native code "
            f"({', '.join(variant.sass) or 'unknown'})."
        )
    for gpu in request.gpus:
        found.extend(_gpu_warnings(row, variant, gpu))
        found.extend(_host_warnings(lookup, gpu))
    return found


def cudnn_without(lookup: Lookup, variant: Variant, capability: str) -> LibraryRow | None:
    """The release of cuDNN that comes with the packages of a build, if this release does not support a GPU; else None."""
    need = variant.cudnn
    if need is None or need.taken_from == "system" or not variant.cuda or not capability:
        return None
    row = next((row for row in lookup.libraries["cudnn"] if row.version == need.prefer and accepts(need, row.version)), None)
    return row if row is not None and drops(row, capability) else None


def _host_warnings(lookup: Lookup, gpu: GpuWanted) -> Iterable[str]:
    """Warn if every board with the GPU's compute capability is sold only with its own processor, because images are for x86-64
    processors."""
    boards = [board for board in lookup.matrix.gpus if board.capability == gpu.capability]
    if boards and all(board.host for board in boards):
        names = ", ".join(f"{board.name} ({board.host})" for board in boards)
        yield (
            f"All GPUs of compute capability {gpu.capability} in the matrix come with a processor that is not x86-64: {names}. "
            "Images are built for x86-64."
        )


def _gpu_warnings(row: str, variant: Variant, gpu: GpuWanted) -> Iterable[str]:
    code = code_for(variant, gpu.capability) if gpu.capability else ""
    if code == "unknown":
        older = f" CUDA {variant.cuda} is older than this GPU." if older_than(variant, gpu) else ""
        yield f"The matrix does not say for which GPUs {row} contains code, so {_gpu(gpu)} was not checked.{older}"
    if gpu.architecture is None:
        return  # the request already has a warning that the GPU is unknown
    old = older_than(variant, gpu)
    if code == "ptx":
        libraries = (
            f"; CUDA {variant.cuda} is older than the GPU, so its libraries run only by PTX or not at all" if old else ""
        )
        yield (
            f"{row} has no native code for {_gpu(gpu)}: the driver compiles its PTX at the first start, which takes minutes"
            f"{libraries}."
        )
    if code == "native" and old:
        yield (
            f"CUDA {variant.cuda} is older than {_gpu(gpu)}, but native code for earlier GPUs of the same major "
            f"capability runs on it. Kernels that are compiled at run time fail: NVRTC of CUDA {variant.cuda} does not "
            f'support compute capability {gpu.capability} ("invalid value for --gpu-architecture").'
        )


def older_than(variant: Variant, gpu: GpuWanted) -> bool:
    """Whether the CUDA of a build is older than the first CUDA version that supports a GPU."""
    return gpu.architecture is not None and numbers(variant.cuda) < numbers(gpu.architecture.first_cuda)
