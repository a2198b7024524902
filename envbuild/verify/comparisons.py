"""Comparisons of what an image holds with what its lock says. Pure: values in, findings out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbuild.model import Framework, Lock, Prefix
from envbuild.verify.findings import Findings

if TYPE_CHECKING:
    from envbuild.engine import ImageInfo

LOCK = "/opt/envbuild/lock.json"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
_ROOT = ("", "0", "root")


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """(path, mode) of the base's own setuid and setgid files."""

    rights: frozenset[tuple[str, str]]


def compare_lock(lock: Lock, embedded: bytes | None, found: Findings) -> None:
    """The lock inside the image is byte for byte the lock that was given."""
    from envbuild import codec

    if embedded is None:
        found.wrong(LOCK, "missing")
    elif embedded != codec.dumps(lock).encode():
        found.wrong(LOCK, "is not the lock that was given: the image was built from another one")


def compare_configuration(lock: Lock, info: ImageInfo, found: Findings) -> None:
    """Labels, user, init and environment variables of the image."""
    from envbuild.lock import digest

    environment = lock.environment
    for label, content in (("org.envbuild.name", environment.name), ("org.envbuild.lock", digest(lock))):
        if info.labels.get(label) != content:
            found.wrong(f"label {label}", f"expected {content}, found {info.labels.get(label) or 'none'}")
    if info.user.partition(":")[0] in _ROOT:
        found.wrong("user", f"the image runs as root ({info.user or 'no USER'})")
    init = environment.system.init
    if init and info.entrypoint[:1] != (init,):
        found.wrong("entrypoint", f"expected the init {init}, found {list(info.entrypoint) or 'none'}")
    variables = dict(entry.partition("=")[::2] for entry in info.env)
    for name in variables:
        if name.lower() in _PROXIES:
            found.wrong(f"variable {name}", "a proxy of the machine that built the image is in its configuration")
    if environment.cuda is not None:
        for name, wanted in (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_REQUIRE_CUDA", environment.require_cuda)):
            if wanted and variables.get(name) != wanted:
                found.wrong(f"variable {name}", f"expected {wanted}, found {variables.get(name) or 'none'}")


def compare_paths(lock: Lock, told: Mapping[str, Any], found: Findings) -> None:
    """What must be there and executable, and the system Python's version."""
    for path, about in told["paths"].items():
        if about is None:
            found.wrong(path, "missing")
        elif not about["executable"] and not path.endswith(".py"):
            found.wrong(path, "not executable")
    version = ".".join(str(told["python"]).split(".")[:2])
    if version != lock.environment.python.version:
        found.wrong(lock.environment.python.executable, f"expected Python {lock.environment.python.version}, found {version}")


def compare_prefix(lock: Lock, prefix: Prefix, told: Mapping[str, Any], found: Findings) -> None:
    """Every distribution with its version, and every file with the hash that its distribution recorded.

    METADATA and WHEEL alone may differ: publishers rename a version there before they upload a wheel, and leave RECORD. What
    they say that matters, name and version, is compared with the lock.
    """
    from packaging.utils import canonicalize_name

    if not told.get("sites"):
        found.wrong(prefix.path, "holds no packages")
        return
    locked = {str(canonicalize_name(artifact.name)): artifact.version for artifact in prefix.artifacts}
    installed: dict[str, list[Mapping[str, Any]]] = {}
    for one in told["distributions"]:
        installed.setdefault(str(canonicalize_name(one["name"])), []).append(one)
    made = {name: version for name, version in _from_repositories(lock, prefix).items() if name in installed}
    locked |= made
    for name, version in locked.items():
        _compare_distribution(f"{prefix.path}: {name}", version, installed.get(name, []), found)
    for name in sorted(installed.keys() - locked.keys()):
        versions = ", ".join(one["version"] for one in installed[name])
        found.wrong(f"{prefix.path}: {name}", f"is not in the lock, but installed ({versions})")
    retitled = [item for item in told["modified"] if item["path"].endswith((".dist-info/METADATA", ".dist-info/WHEEL"))]
    found.files("modified since it was installed", [item for item in told["modified"] if item not in retitled], prefix.path)
    if retitled:
        found.notes.append(
            "METADATA or WHEEL is not what the RECORD says, as where publishers rename a version after building: "
            + ", ".join(sorted({item["of"] for item in retitled}))
        )
    found.files("missing", told["missing"], prefix.path)
    found.files("cannot be read", told["unreadable"], prefix.path)
    found.files("belongs to no package", [{"path": path} for path in told["unrecorded"]], prefix.path)
    found.count("distributions", len(told["distributions"]))
    for key in ("files", "hashed"):
        found.count(key, sum(one[key] for one in told["distributions"]))
    found.count("bytes", told["bytes"])
    built = sorted([*made, *(a.name for a in prefix.artifacts if not a.filename.endswith(".whl"))])
    if built:
        found.notes.append(
            f"built from source, so compared by version and by the record of their own build: {', '.join(built)}"
        )


def _from_repositories(lock: Lock, prefix: Prefix) -> dict[str, str]:
    """Versions of the frameworks that a repository's commit is the source of: no artifacts, and not always distributions."""
    from packaging.utils import canonicalize_name

    frameworks = [f for f in lock.environment.frameworks if f.name in prefix.frameworks and f.options.get("repository")]
    return {str(canonicalize_name(framework.package)): framework.version for framework in frameworks}


def _compare_distribution(where: str, version: str, copies: Sequence[Mapping[str, Any]], found: Findings) -> None:
    if not copies:
        found.wrong(where, f"not installed (locked: {version})")
    if len(copies) > 1:
        found.wrong(where, f"installed {len(copies)} times")
    for copy in copies:
        if not _same_version(copy["version"], version):
            found.wrong(where, f"expected {version}, found {copy['version'] or 'none'}")
        if copy["kind"] == "no-record":
            found.wrong(where, "has no RECORD: its files cannot be compared")


def _same_version(found: str, wanted: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(found) == Version(wanted)
    except InvalidVersion:
        return found == wanted


def compare_packages(lock: Lock, told: Mapping[str, Any], found: Findings) -> None:
    """The distribution's packages: those of the base provider and of a bootstrapped base at exactly their versions."""
    packages = told["packages"]
    environment, bootstrap = lock.environment, lock.base.bootstrap
    exact = {package.name: package.version for package in environment.base.packages}
    exact |= {package.name: package.version for package in bootstrap.packages} if bootstrap else {}
    wanted = [*environment.system.packages, *environment.python.packages, environment.system.init_package]
    own = [name.partition("=") for name in environment.custom.system_packages()] if environment.custom else []
    exact |= {name: version for name, _, version in own if version}
    wanted += [name for name, _, version in own if not version]
    if packages is None:
        if exact or any(wanted):
            found.notes.append("the image has no dpkg database: its system packages were not compared")
        return
    for name, version in exact.items():
        if packages.get(name) != version:
            found.wrong(f"package {name}", f"expected {version}, found {packages.get(name) or 'none'}")
    for name in filter(None, wanted):
        if name not in packages:
            found.wrong(f"package {name}", "not installed")
    found.count("packages", len(packages))
    found.count("package_files", told["packaged"]["compared"])
    found.files("modified since the package was installed", told["packaged"]["modified"], "system packages")
    found.files("missing", told["packaged"]["missing"], "system packages")


def compare_rights(told: Mapping[str, Any], base: Base | None, found: Findings) -> None:
    """Files that give rights, and what anybody may write.

    Only the base's own setuid and setgid files are accepted. Where the base cannot be asked, those that belong to a package
    are: dpkg does not record which mode a file came with.
    """
    if base is None:
        found.notes.append("the base image is not in the engine: setuid files were compared with the package database only")
    for item in told["privileged"]:
        owner = item["package"]
        accepted = bool(owner) if base is None else (item["path"], item["mode"]) in base.rights
        if not accepted:
            belongs = f"the base does not have it so (it belongs to {owner})" if owner else "belongs to no package"
            found.wrong(item["path"], f"gives rights to who runs it (mode {item['mode']}) and {belongs}")
    writable = [{"path": item["path"], "of": ""} for item in told["writable"]]
    found.files("can be written by anybody", writable, "permissions")


def compare_framework(lock: Lock, framework: Framework, told: Mapping[str, Any], found: Findings) -> None:
    """Version, CUDA, cuDNN and NCCL as a framework itself states them, and a build without CUDA where there should be one.

    Beside others, cuDNN and NCCL of a build that carries its own CUDA are its own: the lock has only the image's.
    """
    environment = lock.environment
    expected = environment.cuda_of(framework)
    version = str(told.get("version") or "")
    if _own_version(version) != _own_version(framework.version):
        found.wrong(f"{framework.name} version", f"expected {framework.version}, it says {version or 'nothing'}")
    cuda = told.get("cuda_build")
    if expected is not None and not cuda:
        found.wrong(f"{framework.name} CUDA", f"a build without CUDA in an image for CUDA {expected}")
    elif expected is not None and not _same_release(str(cuda), expected):
        found.wrong(f"{framework.name} CUDA", f"expected {expected}, it was built with {cuda}")
    elif expected is None and cuda:
        found.notes.append(f"{framework.name} was built with CUDA {cuda}, though this is a build for CPUs")
    if len(environment.frameworks) == 1 or framework.cuda_libraries == "system":
        for name, wanted in (("cudnn", environment.cudnn), ("nccl", environment.nccl)):
            if wanted and told.get(name) and not _same_release(str(told[name]), wanted):
                found.wrong(f"{framework.name} {name}", f"expected {wanted}, it says {told[name]}")
    if expected is not None:
        _compare_architectures(lock, framework, told.get("arch_list") or [], found)


def _compare_architectures(lock: Lock, framework: Framework, listed: Sequence[str], found: Findings) -> None:
    """The GPU code that the lock promises, native (``sm_80``) and PTX (``compute_90``), is in the framework's own list.

    Of several frameworks it promises what runs on all: code for an earlier GPU of the same major, or earlier PTX, keeps that.
    """
    alone = len(lock.environment.frameworks) == 1
    promised = lock.environment.compute_capability
    if promised is None or not listed:
        return
    for kind, wanted in (("sm", promised.sass), ("compute", promised.ptx)):
        codes = {divmod(int(match[1]), 10) for name in listed if (match := re.fullmatch(rf"{kind}_(\d+)[a-z]?", str(name)))}
        lacking = [version for version in wanted if not _runs(kind, version, codes, alone=alone)]
        if lacking:
            what = "native code" if kind == "sm" else "PTX"
            message = f"no {what} for {', '.join(lacking)}; it lists {' '.join(map(str, listed))}"
            found.wrong(f"{framework.name} GPU code", message)


def _runs(kind: str, version: str, codes: Collection[tuple[int, int]], *, alone: bool) -> bool:
    major, minor = map(int, version.split("."))
    if alone:
        return (major, minor) in codes
    return any(code <= (major, minor) and (kind == "compute" or code[0] == major) for code in codes)


def _own_version(version: str) -> str:
    """Without what packages add to the version that a framework itself knows: 2.13.0+cpu, 2.7.post2."""
    return re.sub(r"\.post\d+$", "", version.partition("+")[0])


def _same_release(one: str, other: str) -> bool:
    """Whether two versions agree as far as both go: 9.0 and 9.0.176 do."""
    return all(a == b for a, b in zip(one.split("."), other.split("."), strict=False))
