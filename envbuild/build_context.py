"""Assemble a build context: rendering, guest, adapters, tools and sources. The same inputs give the same bytes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from envbuild import files, git_sources, sbom
from envbuild.engine import package_store
from envbuild.errors import BuildError, InvalidInputError
from envbuild.image_inputs import BuildInputs, contents, guest_files, mode_of, step_files, users_files
from envbuild.lock import installers, lock_file
from envbuild.model.lock import Artifact, Lock, Prefix
from envbuild.model.progress import OnProgress, Progress
from envbuild.render import prefixes
from envbuild.render.dockerfile import MOUNT_FILES, MOUNT_FOLDERS
from envbuild.workspace import Workspace

GUEST = "envbuild"  # the folder of a context that only the last stage of a Dockerfile mounts
_EPOCH = 1577836800  # the oldest time stamp of files in a context (2020-01-01)
_YEAR = 31536000
# Users start pip as a module (`python -m pip`). For isolated builds, pip runs its own folder as a program (`python FOLDER`).
_PIP_MAIN = b"""\
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import envbuild_pip

envbuild_pip.main()
"""
_OVERLAY = "/opt/envbuild/overlay"
_PTH = (
    "import sys; '{folder}' in sys.path or sys.path.append('{folder}'); "
    "import envbuild_overlay; envbuild_overlay.activate('{name}', '{prefix}')\n"
)
_TOOL_WHEELS = {"pip": "pip.whl", "virtualenv": "virtualenv.whl"}


def assemble(inputs: BuildInputs, *, folder: Path | None = None, more: Mapping[str, Path] = MappingProxyType({})) -> Path:
    """Write a new build context into ``folder`` (default: a folder in the cache folder) and return it.

    ``more`` are further files: path in the context → file on this machine. If no step installs packages, the programs that
    install packages are left out.

    Raises :class:`BuildError` (``index-unreachable``, ``source-unreachable``) if a build tool or the source of a framework
    cannot be fetched. Raises :class:`BuildError` (``package-missing``) if a Debian package is not in the package store. Raises
    :class:`InvalidInputError` (``unpinned-tool``) if the lock does not pin a build tool.
    """
    final = folder or inputs.workspace.context(inputs.lock.environment.name)
    with _part_of(final, inputs) as part:
        _fill(part, inputs, more)
        _fill_guest(part, inputs)
        _normalise(part)
        _rename(part, final)
    return final


def assemble_without_guest(inputs: BuildInputs, more: Mapping[str, Path]) -> Path:
    """Write a new build context like :func:`assemble`, but without the folder ``GUEST``, and return it. All stages of a
    Dockerfile except the last one can be built from it.

    Raises the same errors. :func:`add_guest` adds the folder.
    """
    final = inputs.workspace.context(inputs.lock.environment.name)
    with _part_of(final, inputs) as part:
        _fill(part, inputs, more)
        _normalise(part)
        _rename(part, final)
    return final


def add_guest(context: Path, inputs: BuildInputs) -> None:
    """Add the folder ``GUEST`` to ``context``, so that the context is as :func:`assemble` makes it. Raises the same errors.

    Meanwhile, the engine may build other stages from ``context``: the finished folder is moved there in one step.
    """
    with _part_of(context.with_name(f"{context.name}.{GUEST}"), inputs) as part:
        _fill_guest(part, inputs)
        _normalise(part)
        _rename(part / GUEST, context / GUEST)
        os.utime(context, (_EPOCH, _EPOCH))


@contextlib.contextmanager
def _part_of(final: Path, inputs: BuildInputs) -> Iterator[Path]:
    """Yield an empty folder beside ``final``, and remove the folder at the end of the block."""
    require_tools(inputs.lock)
    part = final.with_name(f".{final.name}.part")
    try:
        with files.made_folder(final.parent):
            try:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                yield part
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise files.explain_os_error(error, final) from error


def _rename(part: Path, final: Path) -> None:
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)


def _fill(part: Path, inputs: BuildInputs, more: Mapping[str, Path]) -> None:
    """Write all files of the context except ``GUEST`` into ``part``, an empty folder. Raises OSError."""
    workspace, lock = inputs.workspace, inputs.lock
    inputs.on_progress(Progress(stage="context", message=f"assembling the build context of {lock.environment.name}"))
    for path, text in inputs.rendering.items():
        _put(part, path, text.encode())
    put_mount_points(part)
    for path, content in contents(step_files(workspace)).items():
        _put(part, path, content)
    for artifact in lock.tools if inputs.installs else ():
        wheel = _fetched(inputs, artifact)
        _put(part, f"tools/{artifact.name}", _program(wheel, artifact.name), mode=0o755)
    for path, source in _tool_wheels(inputs).items():
        _put(part, path, source.read_bytes())
    for path, source in users_files(workspace, lock.environment.custom).items():
        _copy(source, part, path, mode_of(source))
    _put_packages(part, workspace, lock)
    for path, source in {**_sources(workspace, lock, inputs.on_progress), **more}.items():
        _copy(source, part, path)


def _fill_guest(part: Path, inputs: BuildInputs) -> None:
    """Write the folder ``GUEST`` into ``part``: the smoke test, descriptions of the image, and pip for users. Raises
    OSError."""
    for path, text in _told(inputs.lock, inputs.rendering).items():
        _put(part, path, text.encode())
    for path, content in contents(guest_files(inputs.workspace, inputs.lock, inputs.recipes)).items():
        _put(part, path, content)
    for path, content in _users_pips(inputs):
        _put(part, path, content)


def _copy(source: Path, folder: Path, path: str, mode: int = 0o644) -> None:
    target = _place(folder, path)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _fetched(inputs: BuildInputs, artifact: Artifact) -> Path:
    return inputs.index.fetch_artifact(artifact, inputs.workspace.downloads, inputs.on_progress)


def _told(lock: Lock, rendering: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the context whose text is generated for this lock: path in the context → text."""
    told = {"lock.json": lock_file.dumps(lock), "sbom.cdx.json": sbom.dumps(lock, lock_file.digest(lock))}
    told |= {path: text for path, text in rendering.items() if path == prefixes.FILE}
    return {f"{GUEST}/{path}": text for path, text in told.items()}


def put_mount_points(folder: Path) -> None:
    """Make empty files as mount points in the folder of step.sh, because this folder is mounted read-only."""
    for name in (*MOUNT_FILES, *(f"{name}/.keep" for name in MOUNT_FOLDERS)):
        _put(folder, f"step/{name}", b"")


def require_tools(lock: Lock) -> None:
    """Raise :class:`InvalidInputError` (``unpinned-tool``) if ``lock`` does not pin a program that its build needs."""
    if missing := installers.missing_tools(lock):
        name = lock.environment.name
        raise InvalidInputError(
            f"The lock of {name} does not pin {', '.join(missing)}, which installs its packages.",
            code="unpinned-tool",
            hint=f"`envbuild lock {name}` adds that pin and changes no other.",
        )


def _program(wheel: Path, name: str) -> bytes:
    """Extract the program ``name`` from its ``wheel``: one file below ``*.data/scripts/``."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [each for each in archive.namelist() if re.fullmatch(rf"[^/]+\.data/scripts/{re.escape(name)}", each)]
            if len(found) == 1:
                return archive.read(found[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InvalidInputError(f"{wheel.name} cannot be read as a wheel: {error}.", code="broken-tool") from error
    raise InvalidInputError(
        f"{wheel.name} contains no program named {name}.",
        code="broken-tool",
        hint="Correct the row of that tool in matrix/build_tools.yaml, and lock the environment again.",
    )


def _tool_wheels(inputs: BuildInputs) -> dict[str, Path]:
    """Return the wheels of pip and virtualenv for prefixes whose packages pip installs: path in the context → file."""
    tools: dict[str, Path] = {}
    prefixes = inputs.lock.prefixes
    for prefix in prefixes:
        for artifact in prefix.build_artifacts if prefix.backend == "pip" else ():
            if artifact.name in _TOOL_WHEELS:
                folder = "tools" if len(prefixes) == 1 else f"tools/{prefix.name}"
                tools[f"{folder}/{_TOOL_WHEELS[artifact.name]}"] = _fetched(inputs, artifact)
    return tools


def _users_pips(inputs: BuildInputs) -> Iterator[tuple[str, bytes]]:
    for prefix in inputs.lock.prefixes:
        if prefix.pip is not None:
            for path, content in pip_files(inputs.lock, prefix, _fetched(inputs, prefix.pip)).items():
                yield f"{GUEST}/overlay/{prefix.name}/{path}", content


def pip_files(lock: Lock, prefix: Prefix, wheel: Path, folder: str = _OVERLAY) -> dict[str, bytes]:
    """Return the files with which users of ``prefix`` add packages: path below ``folder``/NAME in the image → content.

    The files are pip from ``wheel``, the program that starts pip, the .pth file for the prefix, and the file ``site-packages``,
    which names the folder for the .pth file. Raises :class:`InvalidInputError` (``broken-tool``) if ``wheel`` is not a wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = {name: archive.read(name) for name in archive.namelist() if re.fullmatch(r"pip/([\w.-]+/)*[\w.-]+", name)}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InvalidInputError(f"{wheel.name} cannot be read as a wheel: {error}.", code="broken-tool") from error
    site = f"{prefix.path}/lib/python{prefix.python.version}/site-packages"
    told = _PTH.format(folder=folder, name=lock.environment.name, prefix=prefix.name)
    return {**found, "pip/__main__.py": _PIP_MAIN, "site-packages": f"{site}\n".encode(), "prefix.pth": told.encode()}


def _sources(workspace: Workspace, lock: Lock, on_progress: OnProgress) -> dict[str, Path]:
    """Return the source archives of the frameworks that are built from a repository: path in the context → file."""
    pinned = {(each.repository, each.revision): each.sha256 for each in lock.sources}
    found = {}
    for framework in lock.environment.frameworks:
        if "repository" in framework.options:
            where = framework.options["repository"], framework.options["revision"]
            found[f"sources/{framework.name}.tar"] = git_sources.archive(
                *where, workspace.downloads / "sources", on_progress, sha256=pinned.get(where, "")
            )
    return found


def _put_packages(folder: Path, workspace: Workspace, lock: Lock) -> None:
    """Add the Debian packages of each step from the package store, and a list of the packages' hashes from the lock."""
    store, name = package_store.Store(workspace), lock.environment.name
    for step in lock.apt.steps if lock.apt else ():
        _put(folder, f"apt/{step.name}/SHA256SUMS", package_store.sums(step.packages).encode())
        for package in step.packages:
            source = store.path(package)
            if not source.is_file():
                raise BuildError(
                    f"The Debian package {package.filename}, which {name} installs, is missing: there is no file {source}.",
                    code="package-missing",
                    hint=f"`envbuild fetch {name}` fetches it; then repeat the command.",
                )
            package_store.link(source, folder / "apt" / step.name / package.filename)


def _put(folder: Path, path: str, content: bytes, mode: int = 0o644) -> None:
    target = _place(folder, path)
    target.write_bytes(content)
    target.chmod(mode)


def _place(folder: Path, path: str) -> Path:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _normalise(folder: Path) -> None:
    """Give each file a time that depends only on its content, and each folder the same mode and time. Then equal contexts give
    equal archives.

    The time of a file must change with the file's content, because BuildKit sends a file again only if its size or time
    differs.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            moment = _EPOCH + int(files.sha256_of(path)[:12], 16) % _YEAR
            os.utime(path, (moment, moment))
        Path(parent).chmod(0o755)
        os.utime(parent, (_EPOCH, _EPOCH))
