"""Bytecode of wheels' modules, compiled by the interpreter of the image itself, in one container for many wheels."""

from __future__ import annotations

import contextlib
import shlex
import tarfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from envbuild.compose import kept_bytecode, wheel_layer
from envbuild.compose.layer import EPOCH
from envbuild.compose.members import PartOfFile
from envbuild.compose.model import InstallPlace
from envbuild.engine.client import Engine
from envbuild.engine.containers import Workshop
from envbuild.errors import BuildError
from envbuild.model.lock import Prefix
from envbuild.model.progress import OnProgress, Progress

_LIST = "envbuild-list"
_BYTECODE = "/envbuild-bytecode.tar"
_BLOCK = 512
_PIECE = 1 << 20
# The same as `compile` of step.sh, for the same reasons. A file that cannot be compiled is not an error, so `find` lists the
# files that were compiled.
# The files of one run are removed, so that the next one starts with the unchanged prefix.
_SCRIPT = """
set -eu
export LC_ALL=C.UTF-8
: > /envbuild-begun
{python} -c 'import compileall'
SOURCE_DATE_EPOCH={epoch} PYTHONHASHSEED=0 xargs -a /{list} -r -d '\\n' -n 400 -P "$(nproc)" {python} -m compileall -qq || true
find {prefix} -name '*.pyc' -newer /envbuild-begun > /envbuild-made
tar -cf {bytecode} -T /envbuild-made
cat /{list} /envbuild-made | xargs -r -d '\\n' rm -f
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """Compiles for ``prefix`` in ``workshop``, a container with the interpreter and the empty prefix.

    ``folder`` gets large files, to which the results refer.
    """

    workshop: Workshop
    prefix: Prefix
    place: InstallPlace
    folder: Path
    on_progress: OnProgress
    opened: wheel_layer.OpenWheels

    def compiled(self, wheels: Sequence[Path]) -> list[dict[str, PartOfFile]]:
        """For each of ``wheels``: the files with its bytecode, by absolute path in the image.

        Two wheels with the same path are compiled one after the other. Raises :class:`BuildError` (``no-bytecode``) if the
        container fails.
        """
        number = sum(1 for _ in self.folder.iterdir())
        archives = [self.folder / f"{number + each}-sources.tar" for each in range(len(wheels))]
        modules = [_archive(wheel, self.place, archive, self.opened) for wheel, archive in zip(wheels, archives, strict=True)]
        results: list[dict[str, PartOfFile]] = [{} for _ in wheels]
        for batch in batches(modules):
            owners = {path: which for which in batch for path in modules[which]}
            if not owners:
                continue
            self.on_progress(Progress(stage="build", message=f"compiling the bytecode of {len(owners)} modules"))
            made = self.folder / f"{number + batch[0]}-bytecode.tar"
            for path, content in self._compile(sorted(owners), [archives[which] for which in batch], made):
                owner = owners.get(source_of(path))
                if owner is not None:
                    results[owner][path] = content
        for archive in archives:
            archive.write_bytes(b"")
        return results

    def _compile(self, paths: Sequence[str], archives: Sequence[Path], made: Path) -> Iterator[tuple[str, PartOfFile]]:
        prefix = self.prefix
        script = _SCRIPT.format(
            list=_LIST,
            bytecode=_BYTECODE,
            epoch=EPOCH,
            python=shlex.quote(f"{prefix.path}/bin/python") + (" -S" if prefix.backend == "uv" else ""),
            prefix=shlex.quote(prefix.path),
        )
        self.workshop.deliver(_joined("".join(f"{path}\n" for path in paths).encode(), archives))
        code, output = self.workshop.run(["sh", "-c", script])
        if code != 0:
            raise BuildError(
                f"The bytecode of the packages in {prefix.path} could not be compiled (exit code {code}).",
                code="no-bytecode",
                hint="To build the image from its Dockerfile instead, use `--builder docker`.",
                details=tuple(output.splitlines()[-20:]),
            )
        self.workshop.take(_BYTECODE, made)
        yield from _parts(made)


@contextlib.contextmanager
def compiler(
    engine: Engine,
    image: str,
    prefix: Prefix,
    folder: Path,
    *,
    opened: wheel_layer.OpenWheels,
    on_progress: OnProgress,
) -> Iterator[Compiler]:
    """Yield a compiler for ``prefix`` of ``image``; it works within the block and keeps its files in ``folder``."""
    place = InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)
    with engine.workshop(image) as workshop:
        yield Compiler(workshop=workshop, prefix=prefix, place=place, folder=folder, on_progress=on_progress, opened=opened)


def batches(wheels: Sequence[Collection[str]]) -> list[list[int]]:
    """Group the wheels, given the paths of their modules, so that no path occurs twice in a group; return their numbers."""
    groups: list[tuple[list[int], set[str]]] = []
    for number, sources in enumerate(wheels):
        fitting = next((group for group in groups if group[1].isdisjoint(sources)), None)
        if fitting is None:
            fitting = ([], set())
            groups.append(fitting)
        fitting[0].append(number)
        fitting[1].update(sources)
    return [numbers for numbers, _ in groups]


def source_of(path: str) -> str:
    """The source file of a bytecode file: ``a/b.py`` for ``a/__pycache__/b.cpython-311.pyc`` and for Python 2's ``a/b.pyc``."""
    parts = PurePosixPath(path)
    if parts.parent.name == "__pycache__":
        return str(parts.parent.parent / f"{parts.name.split('.')[0]}.py") if parts.name.count(".") == 2 else _dotted(parts)
    return str(parts.with_suffix(".py"))


def _dotted(path: PurePosixPath) -> str:
    """Return the module's path if the module's own name contains a dot."""
    return str(path.parent.parent / f"{path.name.rsplit('.', 2)[0]}.py")


def _archive(wheel: Path, place: InstallPlace, archive: Path, opened: wheel_layer.OpenWheels) -> list[str]:
    """Write the modules of ``wheel`` to ``archive``, a tar without its end marker, and return their paths."""
    paths = []
    with archive.open("wb") as stream:
        for path, content in wheel_layer.sources(wheel, place, opened):
            stream.write(_header(path, len(content)))
            stream.write(content)
            stream.write(bytes(-len(content) % _BLOCK))
            paths.append(path)
    return paths


def _header(path: str, size: int) -> bytes:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mtime = size, EPOCH
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _joined(names: bytes, archives: Sequence[Path]) -> Iterator[bytes]:
    """Write one tar file that holds the list of files and all archives."""
    yield _header(_LIST, len(names)) + names + bytes(-len(names) % _BLOCK)
    for archive in archives:
        with archive.open("rb") as stream:
            while piece := stream.read(_PIECE):
                yield piece
    yield bytes(2 * _BLOCK)


def _parts(made: Path) -> Iterator[tuple[str, PartOfFile]]:
    """Read the files of the inner tar that the tar ``made`` contains."""
    with tarfile.open(made) as outer:
        begin = next(iter(outer)).offset_data
    yield from kept_bytecode.parts(made, begin)
