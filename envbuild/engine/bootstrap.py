"""Make a root file system from a Debian mirror with mmdebstrap. The same packages give the same bytes."""

from __future__ import annotations

import atexit
import contextlib
import email.utils
import errno
import functools
import hashlib
import os
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from envbuild import codec, files, network, procs
from envbuild.engine import host_apt
from envbuild.engine.apt_archive import Archive
from envbuild.engine.package_store import Store, link
from envbuild.errors import BuildError, EngineError, EnvbuildError
from envbuild.model.lock import Bootstrap, DebianPackage
from envbuild.model.progress import OnProgress, Progress, as_news
from envbuild.workspace import Workspace

CREATED = "2020-01-01T00:00:00Z"
_EPOCH = "1577836800"  # CREATED in seconds since 1970: the newest time stamp that a file of a base may have
LAYOUT = "2"  # increase this when a change of _CLEAN or of the options below gives another result for the same packages
_VARIANT = "minbase"
_LARGEST_STATUS = 64 * 2**20  # bytes of dpkg's status file; that of a minimal Debian has 100 kB
_KEPT = 3  # root file systems kept for each suite; several, because a mirror has only today's packages

# This script runs outside the new root, whose folder is $1. It removes everything that names this machine or its mirror, or
# that differs between runs. Builders mount two files of /etc (resolv.conf and hosts). These files must exist, because a builder
# would make a missing one, with the time of the build.
_CLEAN = """set -e
: > "$1/etc/apt/sources.list"
rm -rf "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/auth.conf.d/*
rm -f "$1/etc/hostname" "$1/etc/machine-id" "$1/var/lib/dbus/machine-id"
: > "$1/etc/resolv.conf"
: > "$1/etc/hosts"
rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/ldconfig/* "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old
rm -rf "$1"/var/cache/apt/*.bin "$1"/var/cache/apt/archives/*.deb "$1"/var/cache/apt/archives/lock
chown 0:0 "$1/var/cache/apt/archives/partial"
rm -f "$1/var/lib/systemd/random-seed"
find "$1/var/log" -type f -delete
find "$1/var/tmp" -mindepth 1 -delete
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rootfs:
    """A root file system on this machine, with its packages. ``archive_sha256`` is the hash of its tar file.

    If another machine made it, ``adopted`` is true. Then only the names and versions of its packages were checked, not its
    other content.
    """

    path: Path
    bootstrap: Bootstrap
    archive_sha256: str
    adopted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The manifest that the cache stores next to a root file system."""

    bootstrap: Bootstrap
    archive_sha256: str
    layout: str
    adopted: bool = field(default=False, metadata={"left_out_if_default": True})


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def key(bootstrap: Bootstrap) -> str:
    """Return twelve hexadecimal digits that identify a package list; equal lists give equal root file systems."""
    lines = [f"{p.name} {p.version} {p.sha256}" for p in sorted(bootstrap.packages, key=lambda p: p.name)]
    text = "\n".join([LAYOUT, bootstrap.suite, bootstrap.architecture, bootstrap.variant, *lines])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def reference(bootstrap: Bootstrap) -> str:
    """Return the name that the image of this base has in the engine."""
    return f"envbuild/base:{bootstrap.suite}-{key(bootstrap)}"


def mirror(workspace: Workspace, suite: str, components: tuple[str, ...] = ()) -> list[host_apt.Source]:
    """Return those of the host's sources for ``suite`` that answer now. Each source has the components main and ``components``.

    Raises :class:`BuildError` (``base-unreachable``).
    """
    if procs.find("apt-get") is None:
        raise BuildError(f"This machine has no apt, so there is no mirror for {suite}.", code="base-unreachable")
    found = host_apt.sources_for(suite, host_apt.host_sources(), codename=host_apt.codename(), components=components)
    if not found:
        raise BuildError(
            f"The apt configuration of this machine names no Debian mirror for {suite}.",
            code="base-unreachable",
            hint="Add a Debian source under /etc/apt/sources.list.d, or let the engine pull the base image.",
        )
    return host_apt.answering(found, workspace.bases)


def source_lines(sources: Sequence[host_apt.Source]) -> bytes:
    """Return the content of a file with the sources. A build gets this file as a secret, so it never becomes part of an
    image."""
    return "".join(f"{source.line()}\n" for source in sources).encode()


@functools.lru_cache(maxsize=4)  # cached, because the locks of one run use the same few suites
def archive(workspace: Workspace, suite: str, components: tuple[str, ...] = ()) -> Archive:
    """Return the packages of ``suite`` on the host's mirrors now, from main and ``components``.

    Raises :class:`BuildError` (``base-unreachable``).
    """
    return _updated(
        workspace, mirror(workspace, suite, components), dates_matter=not host_apt.dates_ignored(host_apt.host_options())
    )


@functools.lru_cache(maxsize=4)
def snapshot_archive(workspace: Workspace, suite: str, snapshots: tuple[str, ...], components: tuple[str, ...] = ()) -> Archive:
    """Return the packages of ``suite`` in the distribution's snapshots. Raises :class:`BuildError` (``base-unreachable``).

    The dates of the indices are not checked, because the indices of old snapshots have always expired.
    """
    endings = {"debian": ("", "-updates"), "debian-security": ("-security",)}
    wanted = [
        host_apt.Source(uri=url, suite=f"{suite}{ending}", components=("main", *components))
        for url in snapshots
        for ending in endings.get(url.rstrip("/").split("/")[-2], ())
    ]
    if procs.find("apt-get") is None or not wanted:
        raise BuildError(
            f"The snapshot archive has no package lists of {suite}, or this machine has no apt to read them.",
            code="base-unreachable",
        )
    return _updated(workspace, host_apt.answering(wanted, workspace.bases), dates_matter=False)


def _updated(workspace: Workspace, sources: Sequence[host_apt.Source], *, dates_matter: bool) -> Archive:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(host_apt.folder_in(workspace.bases))
        made = Archive(folder, sources, architecture())
        made.update(dates_matter=dates_matter)
        atexit.register(stack.pop_all().close)
    return made


def plan(workspace: Workspace, suite: str, components: tuple[str, ...] = ()) -> Bootstrap:
    """Return the packages that a bootstrap of ``suite`` would contain now.

    ``components`` are the components that later steps need in addition to main. They are passed here, because all packages of a
    lock come from the same package lists.
    """
    packages = archive(workspace, suite, components).minimal()
    return Bootstrap(suite=suite, architecture=architecture(), variant=_VARIANT, packages=packages)


def cached(workspace: Workspace, bootstrap: Bootstrap) -> Rootfs | None:
    """Return the root file system of exactly these packages from the cache, or None.

    An adopted root file system is used only with ``--offline``, and only on a machine without mmdebstrap.
    """
    found = _read(_folder(workspace, bootstrap.suite) / key(bootstrap))
    if found is not None and found.adopted and not (network.is_forbidden() and procs.find("mmdebstrap") is None):
        return None
    return found


def adopt(workspace: Workspace, wanted: Bootstrap, archive: Path, archive_sha256: str) -> Rootfs:
    """Store a copy of ``archive`` in the cache. Another machine made this root file system from ``wanted``.

    Raises :class:`BuildError` (``base-differs``) if the file has changed, or is not a root file system of these packages.
    """
    work = workspace.bases / "work"
    with files.locked(workspace.bases / "lock"):
        discard(work)
        try:
            work.mkdir(parents=True)
            shutil.copyfile(archive, work / "rootfs.tar")
            if files.sha256_of(work / "rootfs.tar") != archive_sha256:
                raise BuildError(f"{archive} has changed since it was made.", code="base-differs")
            return _keep(workspace, wanted, work / "rootfs.tar", adopted=True)
        except (tarfile.TarError, LookupError, ValueError, EOFError) as error:
            raise BuildError(f"{archive} is not a root file system of Debian: {error}.", code="base-differs") from error
        except OSError as error:
            raise files.explain_os_error(error, work) from error
        finally:
            discard(work)


def is_whole(rootfs: Rootfs) -> bool:
    """Whether the tar file of ``rootfs`` is unchanged. Call this before each use of the file."""
    return files.sha256_of(rootfs.path) == rootfs.archive_sha256


def make(workspace: Workspace, wanted: Bootstrap, store: Store, on_progress: OnProgress) -> Rootfs:
    """Bootstrap exactly the packages of ``wanted`` from the files in ``store``, and store the result in the cache.

    Raises :class:`EngineError` (``missing-program``) if mmdebstrap is not installed, and :class:`BuildError` if mmdebstrap
    fails. A kill at any moment leaves only a work folder, which the next run removes.
    """
    program = procs.find("mmdebstrap")
    if program is None:
        raise EngineError(
            f"The base {wanted.suite} must be made with mmdebstrap, which is not installed.",
            code="missing-program",
            hint="To install it, run: apt-get install --no-install-recommends mmdebstrap",
        )
    work = workspace.bases / "work"
    with files.locked(workspace.bases / "lock", as_news("base", on_progress)):
        existing = cached(workspace, wanted)
        if existing is not None and is_whole(existing):  # another run has made it meanwhile
            return existing
        discard(work)
        try:
            work.mkdir(parents=True)
            tar = work / "rootfs.tar"
            _write_repository(work / "repository", wanted, store)
            _mmdebstrap(program, wanted, work / "repository", tar, on_progress)
            return _keep(workspace, wanted, tar)
        except OSError as error:
            raise files.explain_os_error(error, work) from error
        finally:
            discard(work)


def discard(folder: Path) -> None:
    """Remove a work folder. Before that, unmount everything that a killed run left mounted in it."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    inside = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    for place in sorted(inside, reverse=True):
        result = procs.run(["umount", "--lazy", place], timeout_s=30)
        if result.code != 0:  # do not go on: removing the folder would delete the mounted files
            raise EngineError(f"{place} is still mounted from an earlier run: {result.output.strip()}")
    shutil.rmtree(folder, ignore_errors=True)


def _write_repository(folder: Path, wanted: Bootstrap, store: Store) -> None:
    """Write an apt repository with only these packages. It needs no signature, because the hash of each file was just
    checked."""
    entries = []
    for package in wanted.packages:
        if not store.holds(package):
            raise BuildError(f"The file of {package.name} {package.version} is not in the package store.", code="package-gone")
        link(store.path(package), folder / package.filename)
        control = procs.run(["dpkg-deb", "--field", str(folder / package.filename)], timeout_s=60)
        if control.code != 0:
            raise BuildError(f"{package.filename} is not a Debian package: {control.output.strip()}", code="package-gone")
        place = f"Filename: ./{package.filename}\nSize: {package.size}\nSHA256: {package.sha256}"
        entries.append(f"{control.output.strip()}\n{place}\n")
    index = "\n".join(entries)
    (folder / "Packages").write_text(index, encoding="utf-8")
    about = {"Origin": "Debian", "Label": "Debian", "Suite": wanted.suite, "Codename": wanted.suite}
    about |= {"Architectures": wanted.architecture, "Date": email.utils.formatdate(int(_EPOCH), usegmt=True)}
    digest = hashlib.sha256(index.encode()).hexdigest()
    lines = [*(f"{key}: {value}" for key, value in about.items()), "SHA256:", f" {digest} {len(index.encode())} Packages"]
    (folder / "Release").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _mmdebstrap(program: str, planned: Bootstrap, repository: Path, archive: Path, on_progress: OnProgress) -> None:
    names = [package.name for package in planned.packages]
    # From a mirror, mmdebstrap installs apt because the mirror's index marks apt as important. The index of our repository has
    # only the fields of the packages themselves, without this mark. So the option names apt.
    include = [f"--include={','.join(name for name in ('apt', 'usr-is-merged') if name in names)}"]
    hooks = Path("/usr/share/mmdebstrap/hooks/merged-usr")
    merged = [f"--hook-dir={hooks}"] if "usr-is-merged" in names and hooks.is_dir() else []
    argv = [
        *_apart(),
        program,
        f"--variant={planned.variant}",
        f"--architectures={planned.architecture}",
        "--format=tar",
        "--skip=output/dev",  # the engine makes the devices of each container
        # The hook _CLEAN cleans up instead. The step cleanup/apt of mmdebstrap would run this machine's apt-get. If that
        # program does not find the configuration of the new root, it deletes the package lists of this machine.
        "--skip=cleanup/apt",
        *merged,
        *include,
        f"--customize-hook={_CLEAN}",
        planned.suite,
        str(archive),
        f"deb [trusted=yes] copy:{repository} ./",
    ]
    environment = {"SOURCE_DATE_EPOCH": _EPOCH, "TMPDIR": str(archive.parent), "LC_ALL": "C.UTF-8"}
    on_progress(Progress(stage="base", message=f"bootstrapping {planned.suite} ({len(names)} packages)"))

    def tell(line: str) -> None:
        on_progress(Progress(stage="base", message=line.removeprefix("I: "), log=not line.startswith("I: ")))

    result = procs.run(argv, env=environment, on_line=tell, dies_with_us=True)
    if result.code != 0:
        raise _failed(planned.suite, archive, result.output)
    _add_dev(archive)


def _add_dev(archive: Path) -> None:
    """Add an empty /dev. Without it, a builder would make this folder, with the time of the build."""
    folder = tarfile.TarInfo("./dev")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, int(_EPOCH)
    with tarfile.open(archive, "a", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(folder)


def _apart() -> list[str]:
    # As root, mmdebstrap would mount /proc, /sys and /dev of the new root in this machine's mount namespace. In separate
    # namespaces, these mounts and all processes that dpkg started end when the first process ends for any reason.
    unshare = procs.find("unshare")
    if unshare is None or os.geteuid() != 0:
        return []
    return [unshare, "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation=slave"]


def _failed(suite: str, archive: Path, output: str) -> EnvbuildError:
    lines = output.splitlines()
    if "No space left" in output or "enough free space" in output:
        return files.explain_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), archive)
    telling = [line for line in lines if line.startswith("E: ") and "terminated" not in line] or lines or ["no output"]
    return BuildError(
        f"mmdebstrap could not make the base {suite}: {telling[-1].removeprefix('E: ')}",
        code="base-unreachable" if "fetch" in output.lower() else "build-step",
        hint="The last lines of its output are above.",
        details=lines[-20:],
    )


def _keep(workspace: Workspace, planned: Bootstrap, archive: Path, *, adopted: bool = False) -> Rootfs:
    bootstrap = replace(planned, packages=realised(archive, planned.packages))
    if adopted and key(bootstrap) != key(planned):
        raise BuildError(f"{archive} has different packages than the lock pins.", code="base-differs")
    manifest = Manifest(bootstrap=bootstrap, archive_sha256=files.sha256_of(archive), layout=LAYOUT, adopted=adopted)
    ready = archive.parent / "ready"
    ready.mkdir()
    archive.rename(ready / "rootfs.tar")
    files.write_atomic(ready / "manifest.json", codec.dumps(manifest))
    final = _folder(workspace, planned.suite) / key(bootstrap)
    final.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    ready.rename(final)
    prune(final.parent)
    return Rootfs(path=final / "rootfs.tar", bootstrap=bootstrap, archive_sha256=manifest.archive_sha256, adopted=adopted)


def prune(folder: Path) -> None:
    """Remove the root file systems of an earlier layout from ``folder``, the folder of one suite. Of the other root file
    systems, keep only the newest few."""
    usable = {made: made.stat().st_mtime for made in folder.iterdir() if _read(made) is not None}
    kept = sorted(usable, key=lambda made: usable[made], reverse=True)[:_KEPT]
    for made in folder.iterdir():
        if made not in kept:
            shutil.rmtree(made, ignore_errors=True)


def realised(archive: Path, planned: Sequence[DebianPackage]) -> tuple[DebianPackage, ...]:
    """Return the packages that dpkg lists in a root file system. A package gets the hash and the path of the planned package
    with the same name and version, if there is one."""
    known = {(package.name, package.version): package for package in planned}
    with tarfile.open(archive) as tar:
        status = tar.extractfile("./var/lib/dpkg/status")
        text = status.read(_LARGEST_STATUS).decode("utf-8", "replace") if status is not None else ""
    found: list[DebianPackage] = []
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            found.append(known.get((name, version), DebianPackage(name=name, version=version, sha256="")))
    return tuple(sorted(found, key=lambda package: package.name))


def _folder(workspace: Workspace, suite: str) -> Path:
    return workspace.bases / f"{suite}-{architecture()}"


def _read(folder: Path) -> Rootfs | None:
    try:
        manifest = codec.decode(Manifest, codec.loads(files.read_bytes(folder / "manifest.json")), str(folder))
    except Exception:  # made by another version, or not by envbuild at all: treat it as absent
        return None
    path = folder / "rootfs.tar"
    usable = manifest.layout == LAYOUT and path.is_file() and folder.name == key(manifest.bootstrap)
    if not usable:
        return None
    return Rootfs(path=path, bootstrap=manifest.bootstrap, archive_sha256=manifest.archive_sha256, adopted=manifest.adopted)
