"""Compare the contents of an image with its lock. The functions are pure (no network, files or clock)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envbuild.model.lock import Lock, Prefix
from envbuild.verify.findings import Findings

if TYPE_CHECKING:
    from envbuild.engine.model import ImageInfo

LOCK = "/opt/envbuild/lock.json"
ENTRY = "/opt/envbuild/smoke/enter.sh"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
_SETUID_OR_SETGID = 0o6000
_ROOT = ("", "0", "root")


def compare_lock(lock: Lock, embedded: bytes | None, found: Findings) -> None:
    """Check that the lock file in the image is byte for byte equal to ``lock``."""
    from envbuild import codec

    if embedded is None:
        found.wrong(LOCK, "missing")
    elif embedded != codec.dumps(lock).encode():
        found.wrong(LOCK, "differs from the given lock: the image was built from another one")


def compare_configuration(lock: Lock, info: ImageInfo, found: Findings) -> None:
    """Compare the labels, the user, the init program and the environment variables of the image with the lock."""
    from envbuild.lock.lock_file import digest

    environment = lock.environment
    for label, content in (("org.envbuild.name", environment.name), ("org.envbuild.lock", digest(lock))):
        if info.labels.get(label) != content:
            found.wrong(f"label {label}", f"expected {content}, found {info.labels.get(label) or 'none'}")
    if info.user.partition(":")[0] in _ROOT:
        found.wrong("user", f"the image runs as root ({info.user or 'no USER'})")
    _compare_entrypoint(environment.system.init, info.entrypoint, found)
    variables = dict(entry.partition("=")[::2] for entry in info.env)
    for name in variables:
        if name.lower() in _PROXIES:
            found.wrong(f"variable {name}", "a proxy of the machine that built the image is in its configuration")
    if environment.cuda is not None:
        for name, wanted in (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_REQUIRE_CUDA", environment.require_cuda)):
            if wanted and variables.get(name) != wanted:
                found.wrong(f"variable {name}", f"expected {wanted}, found {variables.get(name) or 'none'}")


def _compare_entrypoint(init: str, entrypoint: Sequence[str], found: Findings) -> None:
    if init and tuple(entrypoint[:1]) != (init,):
        found.wrong("entrypoint", f"expected the init {init}, found {list(entrypoint) or 'none'}")
    elif tuple(entrypoint[-1:]) != (ENTRY,):
        found.wrong("entrypoint", f"expected to end with {ENTRY}, found {list(entrypoint) or 'none'}")


def compare_paths(lock: Lock, told: Mapping[str, Any], found: Findings) -> None:
    """Check that the required programs exist and are executable, and that each prefix has the right version of Python."""
    for path, about in told["paths"].items():
        if about is None:
            found.wrong(path, "missing")
        elif not about["executable"] and "/bin/" in path:
            found.wrong(path, "not executable")
    for prefix in lock.prefixes:
        version = ".".join(str((told["prefixes"].get(prefix.path) or {}).get("python", "")).split(".")[:2])
        if version != prefix.python.version:
            found.wrong(f"{prefix.path}/bin/python", f"expected Python {prefix.python.version}, found {version or 'none'}")


def compare_prefix(lock: Lock, prefix: Prefix, told: Mapping[str, Any], found: Findings) -> None:
    """Compare the version of each Python package with the lock. Compare each file with the hash in the RECORD of its package.

    Only METADATA and WHEEL of a locked wheel may differ from RECORD, because some publishers change the version in these files
    before the upload. The name and version in these files are compared with the lock.
    """
    from packaging.utils import canonicalize_name

    if not told.get("sites"):
        found.wrong(prefix.path, "contains no packages")
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
        found.wrong(f"{prefix.path}: {name}", f"is installed ({versions}), but is not in the lock")
    retitled = _retitled(prefix, told)
    found.files("modified since it was installed", [item for item in told["modified"] if item not in retitled], prefix.path)
    if retitled:
        found.notes.append(
            "METADATA or WHEEL differs from RECORD, as happens if a publisher changes the version after building: "
            + ", ".join(sorted({item["of"] for item in retitled}))
        )
    for name in sorted({item["of"] for item in told["unhashed"]}):  # only a note, because publishers forget hundreds of hashes
        paths = [item["path"] for item in told["unhashed"] if item["of"] == name]
        found.notes.append(f"{len(paths)} files of {name} have no hash in its RECORD and were not compared, such as {paths[0]}")
    found.notes.extend(_overwritten(told["replaced"]))
    found.files("missing", told["missing"], prefix.path)
    found.files("cannot be read", told["unreadable"], prefix.path)
    found.files("belongs to no package", [{"path": path} for path in told["unrecorded"]], prefix.path)
    found.count("distributions", len(told["distributions"]))
    for key in ("files", "hashed"):
        found.count(key, sum(one[key] for one in told["distributions"]))
    found.count("bytes", told["bytes"])
    built = sorted([*made, *(a.name for a in prefix.artifacts if not a.filename.endswith(".whl"))])
    if built:
        found.notes.append(f"built from source, so their files were compared with the record of this build: {', '.join(built)}")


def _overwritten(replaced: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes, one for each pair of packages that have different files at the same paths."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for item in replaced:
        if item["of"] != item["by"]:  # skip a package whose own RECORD lists a file twice
            pairs.setdefault((item["of"], item["by"]), []).append(item["path"])
    return [
        f"{name} and {winner} have different files at the same path: the image has those of {winner} "
        f"({len(paths)} in all, such as {paths[0]})"
        for (name, winner), paths in sorted(pairs.items())
    ]


def _retitled(prefix: Prefix, told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those modified files that are METADATA or WHEEL of a locked wheel, in the wheel's own folder."""
    from packaging.utils import canonicalize_name

    wheels = {str(canonicalize_name(a.name)) for a in prefix.artifacts if a.filename.endswith(".whl")}
    own = {
        f"{site}/{one['folder']}/{file}": one["name"]
        for site in told["sites"]
        for one in told["distributions"]
        for file in ("METADATA", "WHEEL")
        if str(canonicalize_name(one["name"])) in wheels
    }
    return [item for item in told["modified"] if own.get(item["path"]) == item["of"]]


def _from_repositories(lock: Lock, prefix: Prefix) -> dict[str, str]:
    """The versions of frameworks that are built from a repository. The lock has no files of them, and some of them are not
    installed as Python packages."""
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
        if copy["kind"] == "wheel" and not _is_folder_of(copy["folder"], copy["name"]):
            found.wrong(where, f"lies in {copy['folder']}, the folder of another package: Python cannot find it by its name")


def _is_folder_of(folder: str, name: str) -> bool:
    """Whether ``folder`` (``NAME-VERSION.dist-info``) has the name of its package."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(folder.removesuffix(".dist-info").rpartition("-")[0]) == canonicalize_name(name)


def _same_version(found: str, wanted: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(found) == Version(wanted)
    except InvalidVersion:
        return found == wanted


def compare_packages(lock: Lock, told: Mapping[str, Any], found: Findings) -> None:
    """Compare the system packages. Some must have exact versions: those that the matrix lists for the base, those that the lock
    pins, and those for which a user's recipe states a version."""
    packages = told["packages"]
    environment = lock.environment
    exact = {package.name: package.version for package in environment.base.packages}
    exact |= {package.name: package.version for package in lock.image_packages()}
    pythons = [name for prefix in lock.prefixes for name in prefix.python.packages]
    wanted = list(dict.fromkeys([*environment.system.packages, *pythons, environment.system.init_package]))
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
    for package in environment.base.build_packages:
        if package.name in packages:
            found.wrong(f"package {package.name}", "is needed only for compiling and must not be in the image")
    for name in filter(None, wanted):
        if name not in packages:
            found.wrong(f"package {name}", "not installed")
    found.count("packages", len(packages))
    found.count("package_files", told["packaged"]["compared"])
    found.files("modified since the package was installed", told["packaged"]["modified"], "system packages")
    found.files("missing", told["packaged"]["missing"], "system packages")


def compare_rights(told: Mapping[str, Any], found: Findings) -> None:
    """Report files that give additional rights (setuid, setgid, capabilities), whatever their origin. Also report paths to
    which every user may write."""
    for item in told["privileged"]:
        owner = f" (of {item['package']})" if item["package"] else ", and belongs to no package"
        right = f"mode {item['mode']}" if int(item["mode"] or "0", 8) & _SETUID_OR_SETGID else "a file capability"
        found.wrong(item["path"], f"gives extra rights to all users ({right}){owner}")
    writable = [{"path": item["path"], "of": ""} for item in told["writable"]]
    found.files("everybody can write to it", writable, "permissions")


def compare_secrets(told: Mapping[str, Any], of_the_base: Collection[str], found: Findings) -> None:
    """Report credentials, private keys and proxies in the image, unless they came with its base or with a package."""
    for item in told["secrets"]:
        if item["path"] not in of_the_base:
            found.wrong(item["path"], f"{item['what']}, and belongs to no package")
