"""Compare the facts that a framework reports about itself with the lock. The functions are pure (no network, files or
clock)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from envbuild.model.environment import Framework
from envbuild.model.lock import Lock
from envbuild.verify.findings import Findings

UNKNOWN = "unknown"  # an adapter reports this if the version of the framework's CUDA is unknown


def named(lock: Lock, framework: Framework) -> str:
    """The name of a framework in messages. If the image has several prefixes, the name of its prefix is added."""
    inside = [prefix.name for prefix in lock.prefixes if framework.name in prefix.frameworks]
    return f"{inside[0]}: {framework.name}" if len(lock.prefixes) > 1 and inside else framework.name


def compare_framework(lock: Lock, framework: Framework, told: Mapping[str, Any], found: Findings) -> None:
    """Compare the version, CUDA, cuDNN and NCCL that a framework reports with those in the lock.

    If the lock has no CUDA and the framework was built for CUDA, a note says so. In an image of several frameworks, a build
    with its own CUDA also has its own cuDNN and NCCL. These are not compared, because the lock has only the image's cuDNN and
    NCCL.
    """
    who = named(lock, framework)
    version = str(told.get("version") or "")
    if _own_version(version) != _own_version(framework.version):
        found.wrong(f"{who} version", f"expected {framework.version}, but it reports {version or 'none'}")
    for prefix in (each for each in lock.prefixes if framework.name in each.frameworks and told.get("python")):
        if not _same_release(str(told["python"]), prefix.python.version):
            found.wrong(f"{who} Python", f"expected {prefix.python.version}, but it runs under {told['python']}")
    _compare_cuda(lock, framework, told, found)


def _compare_cuda(lock: Lock, framework: Framework, told: Mapping[str, Any], found: Findings) -> None:
    environment, who = lock.environment, named(lock, framework)
    expected, cuda = environment.cuda_of(framework), told.get("cuda_build")
    libraries = environment.base.libraries_cuda if framework.cuda_libraries == "system" else ""
    if expected is not None and not cuda:
        found.wrong(f"{who} CUDA", f"a build without CUDA in an image for CUDA {expected}")
    elif expected is not None and cuda == UNKNOWN:
        found.notes.append(f"not compared: {who} does not report its CUDA version")
    elif expected is not None and not any(_same_release(str(cuda), each) for each in (expected, libraries) if each):
        found.wrong(f"{who} CUDA", f"expected {expected}, but it was built with {cuda}")
    elif expected is None and cuda and cuda != UNKNOWN:
        found.notes.append(f"{who} was built with CUDA {cuda}, but this environment is for CPUs")
    if len(environment.frameworks) == 1 or framework.cuda_libraries == "system":
        for name, wanted in (("cudnn", environment.cudnn), ("nccl", environment.nccl)):
            if wanted and not told.get(name):
                found.notes.append(f"not compared: {who} does not report its {name} version")
            elif wanted and not _same_release(str(told[name]), wanted):
                found.wrong(f"{who} {name}", f"expected {wanted}, but it reports {told[name]}")
    if expected is not None:
        _compare_architectures(lock, framework, told.get("arch_list") or [], found)


def _compare_architectures(lock: Lock, framework: Framework, listed: Sequence[str], found: Findings) -> None:
    """Check that the list of GPU code that the framework reports contains what the lock promises: native code (such as
    ``sm_80``) and PTX (such as ``compute_90``).

    In an image of several frameworks, the lock promises GPUs that all of the frameworks can use. Then native code for an
    earlier GPU of the same major version, or earlier PTX, is enough.
    """
    alone = len(lock.environment.frameworks) == 1
    promised = lock.environment.compute_capability
    if promised is None:
        return
    if not listed:
        found.notes.append(f"not compared: {named(lock, framework)} does not list the GPUs that it has code for")
        return
    for kind, wanted in (("sm", promised.sass), ("compute", promised.ptx)):
        codes = {divmod(int(match[1]), 10) for name in listed if (match := re.fullmatch(rf"{kind}_(\d+)[a-z]?", str(name)))}
        lacking = [version for version in wanted if not _runs(kind, version, codes, alone=alone)]
        if lacking:
            what = "native code" if kind == "sm" else "PTX"
            message = f"no {what} for {', '.join(lacking)}; it lists {' '.join(map(str, listed))}"
            found.wrong(f"{named(lock, framework)} GPU code", message)


def _runs(kind: str, version: str, codes: Collection[tuple[int, int]], *, alone: bool) -> bool:
    major, minor = map(int, version.split("."))
    if alone:
        return (major, minor) in codes
    return any(code <= (major, minor) and (kind == "compute" or code[0] == major) for code in codes)


def _own_version(version: str) -> str:
    """Remove the suffixes that packages add to a framework's version, as in 2.13.0+cpu and 2.7.post2."""
    return re.sub(r"\.post\d+$", "", version.partition("+")[0])


def _same_release(one: str, other: str) -> bool:
    """Whether two versions are equal in all parts that both have, as 9.0 and 9.0.176 are."""
    return all(a == b for a, b in zip(one.split("."), other.split("."), strict=False))
